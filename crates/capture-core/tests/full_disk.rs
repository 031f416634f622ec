//! A disk that ends in the middle of a record, simulated by the process's file size limit: the segment keeps its whole
//! records and is sealed. One process, as the limit is the process's.

#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(unsafe_code, reason = "setting the limit")]

use capture_core::{Dtype, Identity, Limits, Mesh, Record, RunDir, SegmentWriter, WriteError, header};
use std::{fs, io, path::Path};

fn limit_files(n_bytes: u64) {
    let limit = libc::rlimit { rlim_cur: n_bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the signal's default would end the process; ignored, writing fails with EFBIG. Both calls only read.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
}

fn record(tap: &str) -> Record {
    Record {
        tap: tap.into(),
        step: 0,
        abs_step: 0,
        call: 0,
        seq: 0,
        time_ns: 0,
        placement: None,
        rows: None,
        full_rows: None,
        strides: vec![1],
        device: "cpu".into(),
        encoding: None,
        crc32: 0,
    }
}

fn write(writer: &mut SegmentWriter, tap: &str, n: usize) -> Result<(), WriteError> {
    writer.begin(&record(tap), Dtype::U8, &[n as u64], n as u64)?;
    writer.append(&vec![b'x'; n / 2])?;
    writer.append(&vec![b'y'; n - n / 2])?;
    writer.finish()
}

#[track_caller]
fn check_io(result: Result<(), WriteError>, expected: &str) {
    match result.unwrap_err() {
        WriteError::Io { what, source, .. } => {
            assert_eq!((what, source.kind()), (expected, io::ErrorKind::FileTooLarge));
        }
        error => panic!("{error}"),
    }
}

#[track_caller]
fn check_sealed(path: &Path, taps: &[&str]) {
    let bytes = fs::read(path).unwrap();
    let header = header::parse(&bytes[8..1024], bytes.len() as u64).unwrap();
    let found: Vec<_> = header.entries.iter().map(|e| e.record.tap.as_str()).collect();
    assert_eq!(found, taps);
    for entry in &header.entries {
        let (start, end) = (1024 + entry.offset as usize, 1024 + entry.range().end as usize);
        assert_eq!(crc32fast::hash(&bytes[start..end]), entry.record.crc32);
    }
    assert_eq!(safetensors::SafeTensors::deserialize(&bytes).unwrap().len(), taps.len());
}

#[test]
fn whole_records_survive_a_full_disk() {
    let mesh = Mesh::default();
    let (run, process) = ("r".to_owned(), "1-00000000".to_owned());
    let identity = Identity { run, rank: None, world: None, mesh, process };
    let temp = tempfile::tempdir().unwrap();
    let dir = RunDir::create(temp.path(), "r").unwrap();
    let limits = Limits { first_room: 1024, last_room: 1024, ..Limits::default() };
    let file = |n: u64, suffix: &str| dir.path().join(format!("rankunknown.pid1-00000000.{n:06}.{suffix}"));
    let mut writer = SegmentWriter::with_limits(dir.clone(), identity, limits);

    // The data's end.
    write(&mut writer, "a", 300).unwrap();
    limit_files(1024 + 300 + 250);
    check_io(write(&mut writer, "b", 400), "write a record");
    assert_eq!(fs::metadata(file(0, "safetensors.partial")).unwrap().len(), 1024 + 300);
    write(&mut writer, "c", 250).unwrap();
    check_io(write(&mut writer, "d", 1), "write a record");
    writer.seal().unwrap();
    check_sealed(&file(0, "safetensors"), &["a", "c"]);

    // No room for a segment: nothing stays of it.
    limit_files(1000);
    check_io(write(&mut writer, "a", 10), "begin a segment");
    limit_files(100);
    check_io(write(&mut writer, "a", 10), "begin a segment");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    limit_files(libc::RLIM_INFINITY);
    write(&mut writer, "a", 10).unwrap();
    writer.seal().unwrap();
    check_sealed(&file(3, "safetensors"), &["a"]);
    assert_eq!((writer.segments(), writer.bytes_written()), (2, 300 + 250 + 10));
}
