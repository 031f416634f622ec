//! Runs of one rank, recorded and compared as runs are.

use crate::{matrix::Matrix, number::Format};
use capture_compare::{Access, Layouts, Options, Report, Run, compare};
use capture_core::{Dtype, Identity, Mesh, Record, RunDir, SegmentWriter};
use tempfile::TempDir;

/// What one tap captured.
pub(crate) struct Captured {
    tap: String,
    dtype: Dtype,
    shape: [u64; 2],
    bytes: Vec<u8>,
}

impl Captured {
    pub(crate) fn of(tap: &str, matrix: &Matrix, format: Format) -> Self {
        let shape = [matrix.rows as u64, matrix.width as u64];
        Self { tap: tap.into(), dtype: format.dtype(), shape, bytes: format.bytes(&matrix.numbers) }
    }

    /// Ids, as many in each row.
    pub(crate) fn of_ids(tap: &str, ids: &[Vec<i32>]) -> Self {
        let shape = [ids.len() as u64, ids.first().map_or(0, |row| row.len() as u64)];
        let bytes = ids.iter().flatten().flat_map(|id| id.to_le_bytes()).collect();
        Self { tap: tap.into(), dtype: Dtype::I32, shape, bytes }
    }
}

/// A run in a directory of its own.
pub(crate) struct Recorded {
    run: Run,
    _dir: TempDir,
}

impl Recorded {
    /// The taps in order, as one rank would record them.
    pub(crate) fn new(taps: &[Captured]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let identity = Identity {
            run: "r".into(),
            rank: Some(0),
            world: Some(1),
            mesh: Mesh::from_sizes("tp=1", 0).expect("a mesh of one"),
            process: "1-00000000".into(),
        };
        let mut writer = SegmentWriter::new(RunDir::create(dir.path(), "r").expect("a new run"), identity);
        for (seq, Captured { tap, dtype, shape, bytes }) in (0..).zip(taps) {
            let record = Record {
                tap: tap.clone(),
                step: 0,
                abs_step: 0,
                call: 0,
                seq,
                time_ns: seq,
                placement: Some("R".into()),
                rows: None,
                full_rows: None,
                strides: vec![shape[1] as i64, 1],
                device: "cpu".into(),
                encoding: None,
                crc32: 0,
            };
            writer
                .begin(&record, *dtype, shape, bytes.len() as u64)
                .and_then(|_| writer.append(bytes))
                .and_then(|()| writer.finish().map(drop))
                .expect("room for a run");
        }
        writer.seal().expect("room for a run");
        let run = Run::open(&dir.path().join("r"), Access::Mapped).expect("the run just written");
        Self { run, _dir: dir }
    }

    /// With this run as the reference.
    pub(crate) fn compare(&self, candidate: &[Captured]) -> Report {
        compare(&self.run, &Self::new(candidate).run, &Layouts::default(), Options::default())
    }
}
