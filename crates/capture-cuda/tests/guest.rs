//! It is a guest: the thread's context and capture mode are what they were, a stream that is being captured into a graph is left
//! alone, and so is one of a context that is not the framework's.

#![expect(clippy::unwrap_used, reason = "a test")]

mod sim;

use capture_core::{Dtype, Element};
use sim::{
    Capture, RING, Tensor, call, calls, code_of, current_context, enter, is_real, new_stream, until, upload,
};

const BYTES: [u8; 6] = [1, 2, 3, 4, 5, 6];

fn tensor(device: i32, at: usize, stream: usize) -> Tensor<'static> {
    Tensor {
        device,
        stream,
        at,
        element: Element::Plain(Dtype::U8),
        shape: &[6],
        strides: &[1],
        ring_bytes: RING,
    }
}

/// One test, as switch and taps belong to the process.
#[test]
fn nothing_of_the_model_is_changed() {
    if is_real() {
        return;
    }
    let first = enter(0);
    let (at, stream) = (upload(&BYTES), new_stream());
    let second = enter(1);
    let (other_at, other_stream) = (upload(&BYTES), new_stream());
    let capture = Capture::begin("*", &[]);

    // A device from the other's context, and from none.
    tensor(0, at, stream).capture("first").unwrap();
    assert_eq!(current_context(), second);
    call!(cuCtxSetCurrent(first));
    call!(cuCtxSetCurrent(0));
    tensor(0, at, stream).capture("none").unwrap();
    assert_eq!(current_context(), 0);

    // The default streams, the thread's own among them.
    call!(cuCtxSetCurrent(first));
    for handle in [0, 1, 2] {
        tensor(0, at, handle).capture(&format!("default.{handle}")).unwrap();
    }

    // A stream that is being captured: nothing is recorded, nothing invalidated, and it is said.
    let mut graph = 0usize;
    call!(cuStreamBeginCapture_v2(stream, 0));
    assert!(tensor(0, at, stream).capture("graph").is_err());
    // Other streams of that time are captured, even where a device has to be opened and memory be allocated first.
    let fresh = enter_thread_and_capture(other_at, other_stream);
    assert_eq!(fresh, Ok(()));
    until("a copy from it", || calls(c"cuEventSynchronize") >= 6);
    call!(cuStreamEndCapture(stream, &raw mut graph));
    assert_ne!(graph, 0, "the capture into a graph was invalidated");

    tensor(1, other_at, other_stream).capture("second").unwrap();
    assert_eq!(current_context(), first);

    // The thread's mode is what it was: a call that the global mode forbids is still forbidden.
    call!(cuStreamBeginCapture_v2(stream, 0));
    let mut memory = 0usize;
    assert_eq!(code_of!(cuMemAlloc_v2(&raw mut memory, 16)), 900);
    assert_eq!(code_of!(cuStreamEndCapture(stream, &raw mut graph)), 901);

    // A context of somebody's own.
    let mut own = 0usize;
    call!(cuCtxCreate_v2(&raw mut own, 0, 0));
    let foreign = new_stream();
    assert!(tensor(0, at, foreign).capture("foreign").is_err());
    assert_eq!(current_context(), own);
    call!(cuCtxSetCurrent(first));

    let run = capture.end();
    for name in ["first", "second", "none", "default.0", "default.1", "default.2", "meanwhile"] {
        assert_eq!(run.tensors[&format!("step0/{name}")], BYTES, "{name}");
    }
    assert_eq!(run.tensors.len(), 7);
    let mut reasons = run.reasons();
    reasons.sort();
    assert_eq!(reasons.len(), 2);
    assert_eq!(reasons[0], "cuda:0: its stream does not belong to the primary context of cuda:0");
    assert!(reasons[1].starts_with("cuda:0: its stream was being captured into a CUDA graph"), "{reasons:?}");
    assert_eq!(run.manifest.last_error, None);
}

/// Another thread of the model, on the other device.
fn enter_thread_and_capture(at: usize, stream: usize) -> Result<(), String> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(1);
            tensor(1, at, stream).capture("meanwhile").map_err(|error| error.to_string())
        });
        thread.join().unwrap()
    })
}
