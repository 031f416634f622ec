//! A ring that is full loses what comes, by name, and nothing that is in it.

mod sim;

use capture_core::control;
use capture_core::{Dtype, Element};
use sim::{Capture, Tensor, call, calls, enter, is_real, new_stream, synchronize, until, upload};
use std::sync::mpsc;
use std::time::Duration;

const N: usize = 64 << 10;

/// One test, as switch and taps belong to the process. A device's ring has room for four tensors.
#[test]
fn what_is_not_copied_yet_keeps_its_place() {
    if is_real() {
        return;
    }
    enter(0);
    let stream = new_stream();
    let bytes = |i: usize| vec![i as u8 + 1; N];
    let sources: Vec<usize> = (0..8).map(|i| upload(&bytes(i))).collect();
    let tensor = |at| {
        let element = Element::Plain(Dtype::U8);
        Tensor { device: 0, stream, at, element, shape: &[N as u64], strides: &[1], ring_bytes: 4 * N }
    };
    let capture = Capture::begin("*", &[("TPCAPTURE_ON_FULL", "drop")]);
    call!(cuda_sim_hold_copies(1));
    for (i, source) in sources.iter().enumerate() {
        let captured = tensor(*source).capture(&format!("t{i}"));
        assert_eq!(captured.is_ok(), i < 4, "t{i}: {captured:?}");
        if i == 3 {
            // All are packed and the first copy is asked for: were its range free by now, the next tensor would find it.
            synchronize(stream);
            until("a copy", || calls(c"cuMemcpyDtoHAsync_v2") >= 1);
        }
    }
    // Nor is a room taken for full.
    let (flushed, is_flushed) = mpsc::channel();
    let flush = std::thread::spawn(move || flushed.send(control::flush()));
    assert!(is_flushed.recv_timeout(Duration::from_millis(300)).is_err(), "a flush ended before the copies");
    call!(cuda_sim_hold_copies(0));
    assert_eq!(is_flushed.recv().unwrap(), None);
    flush.join().unwrap().unwrap();
    let run = capture.end();
    for i in 0..4 {
        assert!(run.tensors[&format!("step0/t{i}")] == bytes(i), "t{i}");
    }
    assert_eq!((run.tensors.len(), run.manifest.counters.lost), (4, 4));
    assert_eq!(run.reasons()[0], "cuda:0: the device's ring was full (TPCAPTURE_ON_FULL=drop)");
}
