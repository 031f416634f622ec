//! Writing segments: the bytes on disk are those documented, rolling happens where it has to, and what is abandoned
//! leaves nothing.

#![expect(clippy::unwrap_used, reason = "a test")]

use capture_core::{
    Dtype, Identity, Limits, Mesh, Record, RunDir, SegmentWriter, StoredError, WriteError, header, journal,
};
use proptest::prelude::*;
use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};
use tempfile::TempDir;

struct Run {
    writer: SegmentWriter,
    _dir: TempDir,
    path: PathBuf,
}

const STEM: &str = "rank1.tp1of2.pid42-0badcafe";

fn run(limits: Limits) -> Run {
    let mesh = Mesh::from_sizes("tp=2", 1).unwrap();
    let (run, process) = ("run-1".to_owned(), "42-0badcafe".to_owned());
    let identity = Identity { run, rank: Some(1), world: Some(2), mesh, process };
    let temp = tempfile::tempdir().unwrap();
    let dir = RunDir::create(temp.path(), "run-1").unwrap();
    let path = dir.path().to_owned();
    Run { writer: SegmentWriter::with_limits(dir, identity, limits), _dir: temp, path }
}

fn small() -> Limits {
    Limits { first_room: 1024, last_room: 4096, ..Limits::default() }
}

fn record(tap: &str, seq: u64) -> Record {
    Record {
        tap: tap.into(),
        step: 12,
        abs_step: 112,
        call: 0,
        seq,
        time_ns: 1_700_000_000_000_000_000,
        placement: Some("S(0)".into()),
        rows: None,
        full_rows: None,
        strides: vec![1],
        device: "cpu".into(),
        encoding: None,
        crc32: 0,
    }
}

impl Run {
    fn write(&mut self, tap: &str, bytes: &[u8]) -> Result<(), WriteError> {
        let n = bytes.len() as u64;
        self.writer.begin(&record(tap, 0), Dtype::U8, &[n], n)?;
        self.writer.append(bytes)?;
        self.writer.finish()
    }

    fn files(&self) -> Vec<String> {
        let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<_> = fs::read_dir(&self.path).unwrap().map(name).collect();
        names.sort();
        names.iter().map(|n| n.strip_prefix(STEM).unwrap().to_owned()).collect()
    }

    fn bytes(&self, suffix: &str) -> Vec<u8> {
        fs::read(self.path.join(format!("{STEM}{suffix}"))).unwrap()
    }

    /// Taps and bytes of a sealed segment by our reader, after the safetensors crate has read the same.
    #[track_caller]
    fn sealed(&self, segment: u64) -> Vec<(String, Vec<u8>)> {
        let bytes = self.bytes(&format!(".{segment:06}.safetensors"));
        let length = header::json_length(bytes[..8].try_into().unwrap(), bytes.len() as u64).unwrap();
        let header = header::parse(&bytes[8..8 + length as usize], bytes.len() as u64).unwrap();
        let oracle = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        assert_eq!(oracle.len(), header.entries.len());
        let data = &bytes[header.data_start as usize..];
        let mut all = Vec::new();
        for entry in header.entries {
            let range = entry.range();
            let found = &data[range.start as usize..range.end as usize];
            let name =
                capture_core::name::tensor_key(&entry.record.tap, entry.record.step, entry.record.call);
            let view = oracle.tensor(&name).unwrap();
            let shape: Vec<u64> = view.shape().iter().map(|n| *n as u64).collect();
            assert_eq!((view.dtype(), shape, view.data()), (entry.dtype, entry.shape, found));
            assert_eq!(entry.record.crc32, crc32fast::hash(found));
            all.push((entry.record.tap, found.to_vec()));
        }
        all
    }
}

fn pairs(expected: &[(&str, &[u8])]) -> Vec<(String, Vec<u8>)> {
    expected.iter().map(|(tap, bytes)| ((*tap).to_owned(), bytes.to_vec())).collect()
}

#[test]
fn a_sealed_segment_is_this_text() {
    let mut run = run(small());
    run.writer.begin(&record("a\n", 0), Dtype::BF16, &[2], 4).unwrap();
    run.writer.append(&[1, 2]).unwrap();
    run.writer.append(&[3, 4]).unwrap();
    run.writer.finish().unwrap();
    let mut second = Record { call: 1, seq: 1, placement: None, ..record("a\n", 0) };
    second.strides.clear();
    run.writer.begin(&second, Dtype::F8_E4M3, &[], 1).unwrap();
    run.writer.append(&[9]).unwrap();
    run.writer.finish().unwrap();
    assert_eq!(run.files(), [".000000.journal", ".000000.safetensors.partial"]);
    run.writer.seal().unwrap();
    assert_eq!(run.files(), [".000000.safetensors"]);

    // Checksums by zlib.crc32 of Python: of 01 02 03 04, and of 09.
    let json = concat!(
        r#"{"__metadata__":{"tpcapture":"1","run":"run-1","rank":"1","world":"2","#,
        r#""mesh":"{\"dims\":[{\"name\":\"tp\",\"coord\":1,\"size\":2}],\"assumed\":false}","#,
        r#""process":"42-0badcafe","segment":"0","records":"["#,
        r#"{\"tap\":\"a\\n\",\"step\":12,\"abs_step\":112,\"call\":0,\"seq\":0,"#,
        r#"\"time_ns\":1700000000000000000,\"placement\":\"S(0)\",\"strides\":[1],\"device\":\"cpu\","#,
        r#"\"crc32\":3057449933},"#,
        r#"{\"tap\":\"a\\n\",\"step\":12,\"abs_step\":112,\"call\":1,\"seq\":1,"#,
        r#"\"time_ns\":1700000000000000000,\"strides\":[],\"device\":\"cpu\",\"crc32\":2883475241}]"},"#,
        r#""step12/a%0A":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"#,
        r#""step12/a%0A#1":{"dtype":"F8_E4M3","shape":[],"data_offsets":[4,5]}}"#,
    );
    let mut expected = 1016u64.to_le_bytes().to_vec();
    expected.extend(json.bytes());
    expected.resize(1024, b' ');
    expected.extend([1, 2, 3, 4, 9]);
    assert_eq!(run.bytes(".000000.safetensors"), expected);
    assert_eq!(run.sealed(0).len(), 2);
    assert_eq!((run.writer.bytes_written(), run.writer.segments()), (5, 1));
}

#[test]
fn a_killed_process_leaves_a_journal_of_whole_records() {
    let mut run = run(Limits::default());
    run.write("a", &[1, 2, 3]).unwrap();
    run.write("b", &[]).unwrap();
    run.writer.begin(&record("c", 2), Dtype::U8, &[5], 5).unwrap();
    run.writer.append(&[9, 9]).unwrap();
    drop(run.writer.abandon());
    run.writer.begin(&record("d", 3), Dtype::U8, &[5], 5).unwrap();
    run.writer.append(&[9, 9]).unwrap();
    // As after kill -9: nothing is sealed.
    let found = journal::decode(&run.bytes(".000000.journal")).unwrap().unwrap();
    assert_eq!((found.data_start, found.broken), (65536, None));
    let places: Vec<_> = found.entries.iter().map(|e| (e.record.tap.as_str(), e.range())).collect();
    assert_eq!(places, [("a", 0..3), ("b", 3..3)]);
    let partial = run.bytes(".000000.safetensors.partial");
    assert_eq!(&partial[..65536], vec![0; 65536]);
    assert_eq!(&partial[65536..], [1, 2, 3, 9, 9]);
    assert_eq!(found.entries[0].record.crc32, 0x55bc_801d);
}

/// The header's room of each sealed segment, the length included.
fn rooms(run: &Run) -> Vec<u64> {
    let sealed = run.files().into_iter().filter(|name| name.ends_with(".safetensors"));
    sealed.map(|name| 8 + u64::from_le_bytes(run.bytes(&name)[..8].try_into().unwrap())).collect()
}

/// A capture that writes little would otherwise fill the disk with rooms that nobody needs.
#[test]
fn only_a_header_that_was_crowded_makes_the_next_one_larger() {
    let mut run = run(small());
    for i in 0..60 {
        run.write(&format!("tap{i:02}"), &[i]).unwrap();
    }
    for i in 60..63 {
        run.writer.seal().unwrap();
        run.write(&format!("tap{i}"), &[i]).unwrap();
    }
    run.writer.seal().unwrap();
    let rooms = rooms(&run);
    assert_eq!((&rooms[..4], rooms.last()), (&[1024, 2048, 4096, 4096][..], Some(&4096)));
}

#[test]
fn it_rolls_where_data_header_or_time_say_so() {
    let mut data = run(Limits { data: 10, ..small() });
    for (tap, n) in [("a", 4), ("b", 6), ("c", 1), ("d", 11), ("e", 0)] {
        data.write(tap, &vec![7; n]).unwrap();
    }
    data.writer.seal().unwrap();
    assert_eq!(data.sealed(0), pairs(&[("a", &[7; 4]), ("b", &[7; 6])]));
    assert_eq!(data.sealed(1), pairs(&[("c", &[7])]));
    assert_eq!(data.sealed(2), pairs(&[("d", &[7; 11])]));
    assert_eq!(data.sealed(3), pairs(&[("e", &[])]));

    // 213 bytes of tags and 241 of each record, a comma between them: three records fit 1024, seven fit 2048.
    let mut header = run(small());
    for i in 0..11 {
        header.write(&format!("tap{i:x}"), &[i]).unwrap();
    }
    header.writer.seal().unwrap();
    assert_eq!([0, 1, 2].map(|n| header.sealed(n).len()), [3, 7, 1]);
    assert_eq!((rooms(&data), rooms(&header)), (vec![1024; 4], vec![1024, 2048, 4096]));

    let mut time = run(Limits { age: Duration::from_millis(20), ..small() });
    time.write("a", &[1]).unwrap();
    std::thread::sleep(Duration::from_millis(25));
    time.write("b", &[2]).unwrap();
    assert_eq!(time.sealed(0), pairs(&[("a", &[1])]));
}

#[test]
fn the_deadline_is_two_seconds_after_the_first_record() {
    let mut run = run(Limits::default());
    assert_eq!(run.writer.deadline(), None);
    let before = Instant::now();
    run.write("a", &[1]).unwrap();
    let after = Instant::now();
    let due = run.writer.deadline().unwrap() - Duration::from_secs(2);
    assert!(before <= due && due <= after);
    run.write("b", &[1]).unwrap();
    assert_eq!(run.writer.deadline().unwrap() - Duration::from_secs(2), due);
    run.writer.seal().unwrap();
    assert_eq!(run.writer.deadline(), None);
    run.writer.seal().unwrap();
    assert_eq!(run.files(), [".000000.safetensors"]);
}

#[test]
fn what_is_abandoned_leaves_nothing() {
    let mut run = run(small());
    run.writer.begin(&record("a", 0), Dtype::U8, &[5], 5).unwrap();
    run.writer.append(&[1, 2, 3]).unwrap();
    run.writer.abandon().unwrap();
    run.writer.seal().unwrap();
    assert_eq!((run.files(), run.writer.segments()), (vec![], 0));

    run.write("a", &[1]).unwrap();
    run.writer.begin(&record("b", 0), Dtype::U8, &[5], 5).unwrap();
    run.writer.append(&[2, 2]).unwrap();
    // Begun anew without a word.
    run.write("c", &[3]).unwrap();
    run.writer.begin(&record("d", 0), Dtype::U8, &[5], 5).unwrap();
    run.writer.append(&[4]).unwrap();
    run.writer.seal().unwrap();
    assert_eq!(run.sealed(1), pairs(&[("a", &[1]), ("c", &[3])]));
    assert_eq!(run.writer.bytes_written(), 2);
}

#[test]
fn what_cannot_be_written_is_refused_and_the_rest_goes_on() {
    let mut run = run(small());
    run.write("a", &[1]).unwrap();
    let error = run.writer.begin(&record("b", 0), Dtype::F32, &[2], 9).unwrap_err();
    assert!(
        matches!(error, WriteError::Record { source: StoredError::Length { needed: 8, .. }, .. }),
        "{error}"
    );
    let error = run.writer.begin(&record("b", 0), Dtype::F4, &[3], 2).unwrap_err();
    assert!(matches!(error, WriteError::Record { source: StoredError::Bits { .. }, .. }), "{error}");
    let error = run.write("a", &[2]).unwrap_err();
    assert!(matches!(error, WriteError::Twice { step: 12, call: 0, .. }), "{error}");
    let error = run.write(&"\u{1}".repeat(1024), &[2]).unwrap_err();
    assert!(matches!(error, WriteError::Entry { limit: 4096, .. }), "{error}");
    assert!(matches!(run.writer.append(&[1]), Err(WriteError::NoRecord)));
    assert!(matches!(run.writer.finish(), Err(WriteError::NoRecord)));

    run.writer.begin(&record("short", 0), Dtype::U8, &[2], 2).unwrap();
    run.writer.append(&[1]).unwrap();
    assert!(matches!(run.writer.finish(), Err(WriteError::Length { expected: 2, found: 1 })));
    run.writer.begin(&record("long", 0), Dtype::U8, &[2], 2).unwrap();
    assert!(matches!(run.writer.append(&[1; 3]), Err(WriteError::Length { expected: 2, found: 3 })));
    assert!(matches!(run.writer.finish(), Err(WriteError::NoRecord)));
    run.write("c", &[3]).unwrap();
    run.writer.seal().unwrap();
    // The entry that fits no room sealed the first segment.
    assert_eq!(run.sealed(0), pairs(&[("a", &[1])]));
    assert_eq!(run.sealed(1), pairs(&[("c", &[3])]));
}

/// The worst name, every byte escaped twice, fits the room of a first segment.
#[test]
fn any_tap_name_fits_the_first_room() {
    let mut run = run(Limits::default());
    for c in ["\u{1}", "\"", "\\", "%"] {
        run.write(&c.repeat(capture_core::name::MAX_TAP_NAME), &[1]).unwrap();
    }
    run.writer.seal().unwrap();
    assert_eq!((run.sealed(0).len(), run.bytes(".000000.safetensors").len()), (4, 65536 + 4));
}

#[test]
fn files_that_are_there_are_not_touched() {
    let mut run = run(small());
    let there = run.path.join(format!("{STEM}.000000.safetensors.partial"));
    fs::write(&there, "another's").unwrap();
    let error = run.write("a", &[1]).unwrap_err();
    assert!(matches!(error, WriteError::Io { what: "create", .. }), "{error}");
    assert_eq!(run.files(), [".000000.safetensors.partial"]);
    run.write("a", &[1]).unwrap();
    run.writer.seal().unwrap();
    assert_eq!(run.sealed(1), pairs(&[("a", &[1])]));
    assert_eq!(fs::read_to_string(there).unwrap(), "another's");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever is written, in whatever pieces, with records given up in between: what was finished is what is read.
    #[test]
    fn what_is_written_is_read(
        records in proptest::collection::vec((".{0,40}", proptest::collection::vec(any::<u8>(), 0..200), 0u8..4, 1usize..60), 0..40),
        data in 1u64..600,
    ) {
        let mut run = run(Limits { data, first_room: 2048, last_room: 8192, ..Limits::default() });
        let mut expected = Vec::new();
        for (i, (tap, bytes, fate, piece)) in records.iter().enumerate() {
            let n = bytes.len() as u64;
            let record = Record { call: i as u64, ..record(tap, i as u64) };
            run.writer.begin(&record, Dtype::U8, &[n], n).unwrap();
            for piece in bytes.chunks(*piece) {
                run.writer.append(piece).unwrap();
            }
            match fate {
                0 => run.writer.abandon().unwrap(),
                1 => {
                    run.writer.finish().unwrap();
                    run.writer.seal().unwrap();
                    expected.push((tap.clone(), bytes.clone()));
                }
                _ => {
                    run.writer.finish().unwrap();
                    expected.push((tap.clone(), bytes.clone()));
                }
            }
        }
        run.writer.seal().unwrap();
        prop_assert!(run.files().iter().all(|f| f.ends_with(".safetensors")));
        let numbers = run.files().into_iter().map(|f| f[1..7].parse().unwrap()).collect::<Vec<u64>>();
        let found: Vec<_> = numbers.into_iter().flat_map(|n| run.sealed(n)).collect();
        prop_assert_eq!(found, expected);
        prop_assert_eq!(run.writer.segments(), run.files().len() as u64);
    }
}
