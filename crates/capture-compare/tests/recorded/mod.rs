//! Runs for tests: written by the writer of the server, read back as any run is.

#![allow(dead_code, reason = "each test file uses its part")]

use capture_compare::{Access, Run};
use capture_core::{Dtype, Identity, Mesh, Record, RunDir, SegmentWriter};
use tempfile::TempDir;

/// A tensor to record.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub(crate) rank: u32,
    pub(crate) tap: &'static str,
    pub(crate) step: u64,
    /// The process's own count, where it is not the run's.
    pub(crate) abs_step: Option<u64>,
    pub(crate) call: u64,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) placement: Option<&'static str>,
    pub(crate) rows: Option<u64>,
    pub(crate) full_rows: Option<u64>,
    pub(crate) encoding: Option<&'static str>,
}

impl Tensor {
    pub(crate) fn new(rank: u32, tap: &'static str, dtype: Dtype, shape: &[u64], bytes: Vec<u8>) -> Self {
        let shape = shape.to_vec();
        let (placement, rows, full_rows, encoding) = (None, None, None, None);
        Self {
            rank,
            tap,
            step: 0,
            abs_step: None,
            call: 0,
            dtype,
            shape,
            bytes,
            placement,
            rows,
            full_rows,
            encoding,
        }
    }

    pub(crate) fn f32(rank: u32, tap: &'static str, shape: &[u64], numbers: &[f32]) -> Self {
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self::new(rank, tap, Dtype::F32, shape, bytes)
    }

    pub(crate) fn bf16(rank: u32, tap: &'static str, shape: &[u64], numbers: &[f32]) -> Self {
        let bytes = numbers.iter().flat_map(|x| half::bf16::from_f32(*x).to_le_bytes()).collect();
        Self::new(rank, tap, Dtype::BF16, shape, bytes)
    }

    pub(crate) fn i32(rank: u32, tap: &'static str, numbers: &[i32]) -> Self {
        let bytes = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        Self::new(rank, tap, Dtype::I32, &[numbers.len() as u64], bytes)
    }

    pub(crate) fn placed(mut self, placement: &'static str) -> Self {
        self.placement = Some(placement);
        self
    }

    pub(crate) fn step(mut self, step: u64) -> Self {
        self.step = step;
        self
    }

    pub(crate) fn rows(mut self, rows: u64) -> Self {
        self.rows = Some(rows);
        self
    }
}

/// A run in a directory of its own.
pub(crate) struct Recorded {
    pub(crate) dir: TempDir,
    pub(crate) run: Run,
}

/// Records tensors, each rank's in the order given, by processes of the mesh.
pub(crate) fn record(mesh: &str, tensors: &[Tensor]) -> Recorded {
    record_as(tensors, |rank| Identity {
        run: "r".into(),
        rank: Some(rank),
        world: Some(Mesh::from_sizes(mesh, rank).unwrap().dims.iter().map(|d| d.size).product()),
        mesh: Mesh::from_sizes(mesh, rank).unwrap(),
        process: format!("{}-0000000{rank}", 100 + rank),
    })
}

/// The same, by the processes that `identity` makes of the ranks.
pub(crate) fn record_as(tensors: &[Tensor], identity: impl Fn(u32) -> Identity) -> Recorded {
    let dir = tempfile::tempdir().unwrap();
    let mut ranks: Vec<u32> = tensors.iter().map(|t| t.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    for rank in ranks {
        let mut writer = SegmentWriter::new(RunDir::create(dir.path(), "r").unwrap(), identity(rank));
        for (seq, tensor) in tensors.iter().filter(|t| t.rank == rank).enumerate() {
            let record = Record {
                tap: tensor.tap.into(),
                step: tensor.step,
                abs_step: tensor.abs_step.unwrap_or(tensor.step),
                call: tensor.call,
                seq: seq as u64,
                // A process that stands later started later.
                time_ns: 1_000 * u64::from(rank) + seq as u64,
                placement: tensor.placement.map(str::to_owned),
                rows: tensor.rows,
                full_rows: tensor.full_rows,
                strides: vec![1; tensor.shape.len()],
                device: "cpu".into(),
                encoding: tensor.encoding.map(str::to_owned),
                crc32: 0,
            };
            writer.begin(&record, tensor.dtype, &tensor.shape, tensor.bytes.len() as u64).unwrap();
            writer.append(&tensor.bytes).unwrap();
            writer.finish().unwrap();
        }
        writer.seal().unwrap();
    }
    let run = Run::open(&dir.path().join("r"), Access::Mapped).unwrap();
    assert!(run.errors.is_empty(), "{:?}", run.errors);
    Recorded { dir, run }
}
