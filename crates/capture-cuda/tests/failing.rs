//! Whatever call of the driver fails: the capture ends on that device and says so in one line; host memory is captured as before;
//! the model's context is current and usable; the next capture tries again.
//!
//! The test runs itself as a process for each call, as a device that failed stays failed in its process.

#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(unsafe_code, reason = "makes a view")]

mod sim;

use capture_core::{Dtype, Element, TensorView};
use sim::{Capture, RING, Tensor, call, current_context, enter, is_real, new_stream, synchronize, upload};
use std::ffi::CString;
use std::process::Command;

const BYTES: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// Two columns of four rows, by columns: a kernel packs them.
const PACKED: [u8; 8] = [1, 5, 2, 6, 3, 7, 4, 8];
const OUT_OF_MEMORY: i32 = 2;
const ILLEGAL_ADDRESS: i32 = 700;

/// Calls that fail, after how many that do not, and whether a copy to the host may be under way
/// then; where `None`, that depends on who makes the call.
const CALLS: [(&str, u64, Option<bool>); 14] = [
    ("cuMemAlloc_v2", 1, Some(false)),
    ("cuEventCreate", 0, Some(false)),
    ("cuEventCreate", 1, Some(false)),
    ("cuEventRecord", 0, Some(false)),
    ("cuEventRecord", 1, None),
    ("cuMemcpyAsync", 0, Some(false)),
    ("cuLaunchKernel", 0, Some(false)),
    ("cuStreamIsCapturing", 0, Some(false)),
    ("cuStreamGetCtx", 0, Some(false)),
    ("cuStreamCreate", 1, Some(false)),
    ("cuMemHostRegister_v2", 0, Some(false)),
    ("cuStreamWaitEvent", 0, Some(false)),
    ("cuMemcpyDtoHAsync_v2", 0, Some(true)),
    ("cuEventSynchronize", 0, Some(true)),
];

#[test]
fn every_failure_is_named_and_hurts_nobody() {
    if is_real() {
        return;
    }
    if let Ok(plan) = std::env::var("FAILING_CALL") {
        let mut parts = plan.split(' ');
        let (call, after) = (parts.next().unwrap().to_owned(), parts.next().unwrap().parse().unwrap());
        let is_under_way = parts.next().and_then(|text| text.parse().ok());
        return one(&call, after, is_under_way);
    }
    for (call, after, is_under_way) in CALLS {
        let mut run = Command::new(std::env::current_exe().unwrap());
        let done = run
            .env(
                "FAILING_CALL",
                format!("{call} {after} {}", is_under_way.map_or("either".to_owned(), |is| is.to_string())),
            )
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{call} after {after}: {output}");
    }
}

fn one(name: &str, after: u64, is_under_way: Option<bool>) {
    let context = enter(0);
    let (at, stream) = (upload(&BYTES), new_stream());
    let element = Element::Plain(Dtype::U8);
    let packed =
        Tensor { device: 0, stream, at, element, shape: &[4, 2], strides: &[1, 4], ring_bytes: RING };
    let whole = Tensor { shape: &[8], strides: &[1], ..packed };
    // SAFETY: eight bytes of an array.
    let host = unsafe { TensorView::new(BYTES.as_ptr(), element, &[8], &[1], "cpu") }.unwrap();

    let capture = Capture::begin("*", &[("TPCAPTURE_ON_FULL", "wait:1s")]);
    sim::fire("host.before", &host).unwrap();
    let call_name = CString::new(name).unwrap();
    let code = OUT_OF_MEMORY;
    call!(cuda_sim_fail(
        call_name.as_ptr(),
        code as usize,
        after.saturating_sub(sim::calls(&call_name) as u64)
    ));
    // Copies are under way for as long as the test likes.
    let is_held = name == "cuEventSynchronize";
    call!(cuda_sim_hold_copies(usize::from(is_held)));
    for i in 0..3 {
        let _ = packed.capture(&format!("packed.{i}"));
        let _ = whole.capture(&format!("whole.{i}"));
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let _ = sim::fire("host.after", &host);
    assert_eq!(current_context(), context);
    if !is_held {
        synchronize(stream);
    }
    let run = capture.end();
    call!(cuda_sim_hold_copies(0));
    // What they write to is still there: nothing of ours has spoilt the context.
    call!(cuCtxSynchronize());
    let bare = name.trim_end_matches("_v2");
    let error = run.manifest.last_error.clone().unwrap_or_default();
    let expected = format!("cuda:0: Simulated RTX PRO 6000, driver 13.2: {bare}: CUDA_ERROR_OUT_OF_MEMORY");
    assert!(error.starts_with(&expected), "{error}");
    assert!(run.tensors["step0/host.before"] == BYTES);
    // Where a copy may still run, the ring that it writes to is not used any more.
    let is_on = run.tensors.contains_key("step0/host.after");
    assert!(is_under_way.is_none_or(|is_under_way| is_on != is_under_way));
    // Where the capture has ended, taps are off.
    assert!(run.manifest.counters.lost >= if is_on { 3 } else { 1 }, "{:?}", run.manifest);
    for (name, bytes) in &run.tensors {
        let expected = if name.contains("packed") { PACKED } else { BYTES };
        assert!(*bytes == expected, "{name}: {bytes:?}");
    }

    // Memory that cannot be pinned is that of one ring.
    if name == "cuMemHostRegister_v2" {
        let capture = Capture::begin("*", &[]);
        packed.capture("again").unwrap();
        assert_eq!(capture.end().tensors["step0/again"], PACKED);
    }

    // The model goes on, and so does its sticky error, which is told as found.
    upload(&BYTES);
    call!(cuda_sim_fault(ILLEGAL_ADDRESS as usize));
    let capture = Capture::begin("*", &[]);
    let _ = whole.capture("after");
    // Without a ring of the device's there is nobody to wait for it either.
    let _ = Tensor { ring_bytes: 0, ..whole }.capture("after.directly");
    let run = capture.end();
    assert_eq!(run.tensors.len(), 0);
    let error = run.manifest.last_error.unwrap_or_default();
    let own = error.contains("CUDA_ERROR_ILLEGAL_ADDRESS, left by an earlier kernel or copy of this process");
    assert!(own || error.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
}
