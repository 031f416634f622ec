//! The mapped page is the static that taps and steps look at.

use capture_core::control::{self, Aim};
use capture_core::page::{self, PAGE_BYTES};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

#[test]
fn the_mapped_page_is_the_static() {
    assert!(!page::step(), "nothing is due");
    control::start(|_| None);
    assert_eq!(page::steps(), 1, "mapping keeps the words");
    assert!(!page::step());
    let dir = tempfile::tempdir().unwrap();
    control::switch_on(Aim::everything(dir.path().into())).unwrap();
    assert!(page::is_awake() && page::step(), "while on every step looks up");
    let path = format!("/proc/self/fd/{}", page::descriptor().unwrap());
    let file = File::open(&path).unwrap();
    let mut seen = [0u8; 40];
    file.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(&seen[..8], b"TPCAPTUR");
    assert_eq!(seen[12..16], std::process::id().to_le_bytes());
    assert_eq!((seen[8], seen[16], seen[24], seen[32]), (2, 1, 3, 0), "version, switch, steps, due");
    control::switch_off("off");
    capture_core::step();
    file.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!((seen[16], &seen[32..]), (0, &[0xff; 8][..]), "off and never due");
    assert_eq!(file.metadata().unwrap().len(), PAGE_BYTES as u64);
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    assert!(writer.set_len(0).is_err(), "sealed against truncation");
}
