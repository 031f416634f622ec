//! A record holds what the tensor was in the order of its stream at the call, whatever the model has the stream do next.

mod sim;

use capture_core::{Dtype, Element};
use sim::{Capture, RING, Tensor, call, enter, is_real, new_stream, overwrite, synchronize, upload};

const N: usize = 64 << 10;

fn bytes(seed: usize) -> Vec<u8> {
    (0..N).map(|i| (i.wrapping_mul(31) + seed * 7 + (i >> 8)) as u8).collect()
}

fn tensor(at: usize, stream: usize) -> Tensor<'static> {
    let element = Element::Plain(Dtype::U8);
    Tensor { device: 0, stream, at, element, shape: &[N as u64], strides: &[1], ring_bytes: RING }
}

fn gate(stream: usize, n: i64) {
    if !is_real() {
        call!(cuda_sim_gate(stream, n));
    }
}

/// One test, as switch and taps belong to the process.
#[test]
fn records_are_of_the_call() {
    let context = enter(0);
    let stream = new_stream();

    // The stream has not even begun when the call returns; then it computes the tensor, and spoils it.
    let capture = Capture::begin("*", &[]);
    let (made, from) = (upload(&[0; N]), upload(&bytes(1)));
    gate(stream, 0);
    call!(cuMemcpyAsync(made, from, N, stream));
    tensor(made, stream).capture("late").unwrap();
    overwrite(made, N, stream);
    // Many more than the ring holds, each into the same memory, as a model reuses its buffers.
    let sources: Vec<usize> = (0..40).map(|i| upload(&bytes(i + 2))).collect();
    let mut opened = false;
    for (i, source) in sources.iter().enumerate() {
        call!(cuMemcpyAsync(made, *source, N, stream));
        if i == 10 {
            opened = true;
            gate(stream, -1);
        }
        tensor(made, stream).capture(&format!("reused.{i}")).unwrap();
        overwrite(made, N, stream);
    }
    assert!(opened);
    // Freed in the order of the stream, right after.
    let mut freed = 0usize;
    call!(cuMemAlloc_v2(&raw mut freed, N));
    call!(cuMemcpyAsync(freed, from, N, stream));
    tensor(freed, stream).capture("freed").unwrap();
    synchronize(stream);
    call!(cuMemFree_v2(freed));
    let run = capture.end();
    assert_eq!(run.manifest.counters.lost, 0, "{:?}", run.manifest.losses);
    assert_eq!(run.tensors["step0/late"], bytes(1));
    assert_eq!(run.tensors["step0/freed"], bytes(1));
    for i in 0..40 {
        assert!(run.tensors[&format!("step0/reused.{i}")] == bytes(i + 2), "reused.{i}");
    }
    assert_eq!(sim::current_context(), context, "the model's context is current");
}
