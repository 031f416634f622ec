//! A tensor in a device's memory takes its place among the others at once and is filled later, by another thread; whatever
//! becomes of it, the writer goes on with what comes behind, and the loss is named.
//!
//! One test, as switch and taps belong to the process.

#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(unsafe_code, reason = "makes views, and fills rooms")]

use capture_core::control::{self, Aim};
use capture_core::device::{Device, Outcome, Room, Work};
use capture_core::ring::Patience;
use capture_core::strided::Items;
use capture_core::tap::{self, Patience as CallersPatience};
use capture_core::{Dtype, Element, Manifest, TensorView};
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;

/// What it is asked to do waits here until the test has it done.
#[derive(Debug, Default)]
struct Later(Mutex<Vec<(Vec<u8>, Room)>>);

impl Device for Later {
    fn max_piece(&self) -> usize {
        4
    }

    fn has_room(&self, _n_bytes: usize) -> bool {
        true
    }

    fn begin(&self, work: Work, items: &Items<'_>, room: Room, _patience: Patience) -> Result<(), String> {
        assert!((work, items.is_run()) == (Work::Copy, true), "{work:?} {items:?}");
        // SAFETY: the tests' device has the host's memory.
        let bytes = unsafe { std::slice::from_raw_parts(items.first, items.n_bytes()) }.to_vec();
        if bytes[0] == 13 {
            room.settle(Outcome::Lost("unlucky".to_owned()));
            return Err("unlucky".to_owned());
        }
        self.0.lock().unwrap().push((bytes, room));
        Ok(())
    }
}

impl Later {
    /// Settles what waits: all of it, the last first.
    fn settle(&self, outcome: &Outcome) {
        for (bytes, mut room) in self.0.lock().unwrap().drain(..).rev() {
            let (at, n_bytes) = room.bytes();
            assert_eq!(n_bytes, bytes.len());
            // SAFETY: the room is as long as that.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, n_bytes) };
            room.settle(outcome.clone());
        }
    }
}

fn capture(name: &str, bytes: &[u8], device: Option<&dyn Device>) -> bool {
    let shape = [bytes.len() as u64];
    let name_of = if device.is_some() { "gpu:0" } else { "cpu" };
    // SAFETY: the bytes of a slice.
    let view =
        unsafe { TensorView::new(bytes.as_ptr(), Element::Plain(Dtype::U8), &shape, &[1], name_of) }.unwrap();
    let view = device.map_or(view, |device| view.on(device));
    let ticket = tap::begin(tap::tap(name).unwrap(), &view, None, None).unwrap();
    ticket.is_some_and(|ticket| ticket.stage(&view, CallersPatience::Full).is_ok())
}

fn begin(dir: &Path) -> std::path::PathBuf {
    control::switch_on(Aim::everything(dir.to_owned())).unwrap()
}

fn read(run: &Path) -> (BTreeMap<String, Vec<u8>>, Manifest) {
    let (mut tensors, mut manifest) = (BTreeMap::new(), None);
    for entry in std::fs::read_dir(run).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        if path.extension().is_some_and(|extension| extension == "json") {
            manifest = Some(Manifest::parse(&bytes).unwrap());
        } else {
            let file = SafeTensors::deserialize(&bytes).unwrap();
            tensors.extend(file.iter().map(|(name, tensor)| (name.to_owned(), tensor.data().to_vec())));
        }
    }
    (tensors, manifest.unwrap())
}

#[test]
fn rooms_are_filled_later() {
    let dir = tempfile::tempdir().unwrap();
    control::start(|_| None);
    let device = Later::default();

    // In pieces of four bytes, settled in any order; what comes behind waits for them.
    let run = begin(dir.path());
    assert!(capture("later", b"0123456789", Some(&device)));
    assert!(capture("host", b"abc", None));
    assert!(!capture("unlucky", &[13, 1], Some(&device)));
    assert!(!capture("unlucky.later", &[1, 1, 1, 1, 13, 1], Some(&device)));
    assert!(capture("empty", b"", Some(&device)), "it lies nowhere");
    assert_eq!(control::status().counters.records, 0);
    device.settle(&Outcome::Filled);
    control::switch_off("test");
    let (tensors, manifest) = read(&run);
    assert_eq!(tensors["step0/later"], b"0123456789");
    assert_eq!(tensors["step0/host"], b"abc");
    assert_eq!(tensors["step0/empty"], b"");
    assert_eq!((tensors.len(), manifest.counters.lost, manifest.last_error), (3, 2, None));
    let losses: Vec<_> =
        manifest.losses.iter().map(|loss| (loss.tap.as_str(), loss.reason.as_str())).collect();
    assert_eq!(losses, [("unlucky", "gpu:0: unlucky"), ("unlucky.later", "gpu:0: unlucky")]);

    // A device that fails: its tensors are lost from then on, and the host's are not.
    let run = begin(dir.path());
    assert!(capture("failed", b"01234567", Some(&device)));
    device.settle(&Outcome::Failed("broken".to_owned()));
    assert!(!capture("after", b"01", Some(&device)));
    assert!(capture("host", b"abc", None));
    control::switch_off("test");
    let (tensors, manifest) = read(&run);
    assert_eq!(tensors.into_keys().collect::<Vec<_>>(), ["step0/host"]);
    assert_eq!((manifest.counters.lost, manifest.last_error.as_deref()), (2, Some("gpu:0: broken")));

    // A room that is given up may still be written to: the capture ends.
    let run = begin(dir.path());
    assert!(capture("host", b"abc", None));
    assert!(capture("given up", b"01", Some(&device)));
    device.0.lock().unwrap().clear();
    control::switch_off("test");
    let (tensors, manifest) = read(&run);
    assert_eq!(tensors.into_keys().collect::<Vec<_>>(), ["step0/host"]);
    assert_eq!(manifest.last_error.as_deref(), Some("gpu:0: a copy was given up"));
}
