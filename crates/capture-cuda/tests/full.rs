//! A ring that is full loses what comes, by name, and nothing that is in it.

mod sim;

use capture_core::{Dtype, Element};
use sim::{Capture, Tensor, call, enter, is_real, new_stream, synchronize, upload};

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
    }
    // Everything is packed: were a range free by now, the next tensor would be, too.
    synchronize(stream);
    assert!(tensor(sources[7]).capture("t7").is_err());
    call!(cuda_sim_hold_copies(0));
    let run = capture.end();
    for i in 0..4 {
        assert!(run.tensors[&format!("step0/t{i}")] == bytes(i), "t{i}");
    }
    assert_eq!((run.tensors.len(), run.manifest.counters.lost), (4, 5));
    assert_eq!(run.reasons()[0], "cuda:0: the device's ring was full (TPCAPTURE_ON_FULL=drop)");
}
