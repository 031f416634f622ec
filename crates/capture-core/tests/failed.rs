//! A capture that is ended by a fault of ours is sealed at once and gives its thread back, without anybody asking.

#![expect(clippy::unwrap_used, reason = "a test")]

use capture_core::{Dtype, Element, Manifest, Tap, TensorView, control};
use std::{
    fs,
    time::{Duration, Instant},
};

static Q: Tap = Tap::new("q");

fn capture() {
    let q = [1u8, 2];
    #[expect(unsafe_code, reason = "describes an array")]
    // SAFETY: two bytes, alive as long as the view.
    let view = unsafe { TensorView::new(q.as_ptr(), Element::Plain(Dtype::U8), &[2], &[1], "cpu") };
    Q.capture(&view.unwrap());
}

fn writer_lives() -> bool {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks.flatten().any(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("tpcapture-write"))
    })
}

#[test]
fn a_capture_that_failed_is_sealed_and_gone() {
    let dir = tempfile::tempdir().unwrap();
    control::start(|name| match name {
        "TPCAPTURE" => Some("1".into()),
        "TPCAPTURE_DIR" => Some(dir.path().into()),
        "TPCAPTURE_RUN" => Some("r".into()),
        _ => None,
    });
    capture();
    control::flush();
    assert!(writer_lives());
    capture();
    control::fail("a panic in the hook");
    capture();
    let until = Instant::now() + Duration::from_secs(10);
    while writer_lives() {
        assert!(Instant::now() < until, "the writer waits for more");
        std::thread::sleep(Duration::from_millis(5));
    }
    let names: Vec<_> = fs::read_dir(dir.path().join("r")).unwrap().map(|e| e.unwrap().path()).collect();
    let with = |suffix: &str| names.iter().filter(|n| n.to_str().unwrap().ends_with(suffix)).count();
    assert_eq!((with(".safetensors"), with(".json"), names.len()), (2, 1, 3), "{names:?}");
    let manifest = names.iter().find(|n| n.extension().unwrap() == "json").unwrap();
    let manifest = Manifest::parse(&fs::read(manifest).unwrap()).unwrap();
    assert_eq!(manifest.end_reason.as_deref(), Some("a panic in the hook"));
    assert_eq!((manifest.counters.records, manifest.counters.lost), (2, 0));
}
