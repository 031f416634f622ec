//! What a writer writes is what a reader reads, at every moment of the writing.

#![expect(clippy::unwrap_used, reason = "a test")]

use capture_compare::{Access, Run};
use capture_core::{Dtype, Identity, Limits, Mesh, Record, RunDir, SegmentWriter, stored::byte_length};
use proptest::prelude::*;
use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

fn identity() -> Identity {
    let mesh = Mesh::from_sizes("pp=2,tp=2", 1).unwrap();
    let (run, process) = ("r".to_owned(), "1-00000000".to_owned());
    Identity { run, rank: Some(1), world: Some(4), mesh, process }
}

fn record(tap: &str, seq: u64) -> Record {
    Record {
        tap: tap.into(),
        step: seq / 3,
        abs_step: seq,
        call: seq,
        seq,
        time_ns: u64::MAX,
        placement: None,
        rows: None,
        full_rows: None,
        strides: vec![-1, i64::MAX],
        device: "cuda:0".into(),
        encoding: None,
        crc32: 0,
    }
}

fn write(writer: &mut SegmentWriter, record: &Record, dtype: Dtype, shape: &[u64], bytes: &[u8]) {
    writer.begin(record, dtype, shape, bytes.len() as u64).unwrap();
    writer.append(bytes).unwrap();
    writer.finish().unwrap();
}

/// Opens the run, and holds every record's bytes against its checksum. How many records there are.
#[track_caller]
fn check(path: &Path, access: Access) -> u64 {
    let run = Run::open(path, access).unwrap();
    assert_eq!(run.errors, []);
    for (i, entry) in run.entries.iter().enumerate() {
        assert_eq!(entry.record.seq, i as u64);
        assert_eq!(crc32fast::hash(&run.bytes(entry).unwrap()), entry.record.crc32);
    }
    run.entries.len() as u64
}

/// Segments of a few records each are sealed all the time, and every reading in between finds all that was finished
/// before it began.
#[test]
fn a_run_is_read_while_it_is_written() {
    const RECORDS: u64 = 1500;
    let temp = tempfile::tempdir().unwrap();
    let dir = RunDir::create(temp.path(), "r").unwrap();
    let path = dir.path().to_owned();
    let limits = Limits { data: 600, first_room: 2048, last_room: 2048, ..Limits::default() };
    let mut writer = SegmentWriter::with_limits(dir, identity(), limits);
    let finished = AtomicU64::new(0);
    // A directory without a file is no run yet.
    write(&mut writer, &record("t", 0), Dtype::U8, &[3], &[0; 3]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in 1..RECORDS {
                let bytes = vec![seq as u8; (seq % 300) as usize];
                write(&mut writer, &record("t", seq), Dtype::U8, &[bytes.len() as u64], &bytes);
                finished.store(seq + 1, Ordering::Release);
                if seq % 7 == 0 {
                    writer.begin(&record("given up", seq), Dtype::U8, &[9], 9).unwrap();
                    writer.append(&[9; 5]).unwrap();
                }
            }
            writer.seal().unwrap();
        });
        let mut access = [Access::Mapped, Access::Unmapped].into_iter().cycle();
        loop {
            let before = finished.load(Ordering::Acquire);
            let found = check(&path, access.next().unwrap());
            assert!(before <= found, "{before} were finished, found {found}");
            if before == RECORDS {
                break;
            }
        }
    });
    assert_eq!(check(&path, Access::Mapped), RECORDS);
}

fn tensors() -> impl Strategy<Value = Vec<(String, Dtype, Vec<u64>, bool)>> {
    use Dtype::{
        BF16, BOOL, C64, F4, F6_E2M3, F6_E3M2, F8_E4M3, F8_E4M3FNUZ, F8_E5M2, F8_E5M2FNUZ, F8_E8M0, F16, F32,
        F64, I8, I16, I32, I64, U8, U16, U32, U64,
    };
    let dtype = proptest::sample::select(vec![
        BF16,
        BOOL,
        C64,
        F4,
        F6_E2M3,
        F6_E3M2,
        F8_E4M3,
        F8_E4M3FNUZ,
        F8_E5M2,
        F8_E5M2FNUZ,
        F8_E8M0,
        F16,
        F32,
        F64,
        I8,
        I16,
        I32,
        I64,
        U8,
        U16,
        U32,
        U64,
    ]);
    let shape = proptest::collection::vec(prop_oneof![Just(0), Just(1), Just(4), Just(6)], 0..4);
    proptest::collection::vec((".{0,12}", dtype, shape, any::<bool>()), 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any records, the last of them perhaps not sealed: the same come back, in both ways of reading.
    #[test]
    fn what_is_written_is_read(tensors in tensors(), sealed in any::<bool>()) {
        let temp = tempfile::tempdir().unwrap();
        let dir = RunDir::create(temp.path(), "r").unwrap();
        let limits = Limits { data: 500, first_room: 2048, last_room: 4096, ..Limits::default() };
        let mut writer = SegmentWriter::with_limits(dir, identity(), limits);
        let mut expected = Vec::new();
        for (seq, (tap, dtype, shape, odd)) in (0..).zip(tensors) {
            let mut record = record(&tap, seq);
            record.placement = odd.then(|| "S(-1)".into());
            record.rows = shape.first().copied().filter(|_| odd);
            let Some(n) = byte_length(dtype, &shape) else {
                writer.begin(&record, dtype, &shape, 1).unwrap_err();
                continue;
            };
            let bytes: Vec<u8> = (0..n).map(|i| (i * 37 + seq) as u8).collect();
            write(&mut writer, &record, dtype, &shape, &bytes);
            record.crc32 = crc32fast::hash(&bytes);
            expected.push((record, dtype, shape, bytes));
        }
        if sealed {
            writer.seal().unwrap();
        }
        prop_assume!(!expected.is_empty());
        drop(writer);
        for access in [Access::Mapped, Access::Unmapped] {
            let run = Run::open(temp.path(), access).unwrap();
            prop_assert_eq!(&run.errors, &[]);
            prop_assert_eq!(&run.processes[0].identity, &identity());
            let found: Vec<_> = run
                .entries
                .iter()
                .map(|e| (e.record.clone(), e.dtype, e.shape.clone(), run.bytes(e).unwrap().into_owned()))
                .collect();
            prop_assert_eq!(found, expected.clone());
        }
    }
}
