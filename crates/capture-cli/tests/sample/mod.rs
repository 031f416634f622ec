//! Runs to try the commands on, and the command itself as a process.

use capture_core::{Dtype, Identity, Mesh, Record, RunDir, SegmentWriter};
use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

/// A directory with a run in it.
pub(crate) struct Sample {
    pub(crate) dir: TempDir,
}

/// What the command did.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) status: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `tpcapture` with those arguments, as where nobody watches.
pub(crate) fn tpcapture(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Done {
    let output = Command::new(env!("CARGO_BIN_EXE_tpcapture")).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Done { status: output.status.code().unwrap(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

impl Sample {
    /// A run `r` of two ranks, steps 0 to 2, of
    /// - `layers.0.q`, bf16 [2, 4] under `S(1)`: rank r has 8r, 8r + 1, …;
    /// - `layers.0.out`, f32 [step + 1], under `R`: 0.5 everywhere and NaN first;
    /// - `ids`, i64 [2], twice in step 1: -1 and 10^12.
    ///
    /// Rank 1 was killed: its segment is not sealed.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for rank in [0, 1] {
            let mesh = Mesh::from_sizes("tp=2", rank).unwrap();
            let process = format!("{}-0badcafe", 42 + rank);
            let identity = Identity { run: "r".into(), rank: Some(rank), world: Some(2), mesh, process };
            let run = RunDir::create(dir.path(), "r").unwrap();
            let mut writer = SegmentWriter::new(run, identity);
            let mut seq = 0;
            let mut write =
                |tap: &str, step, call, placement: Option<&str>, dtype, shape: &[u64], bytes: &[u8]| {
                    let placement = placement.map(str::to_owned);
                    let record = Record { tap: tap.into(), step, call, seq, placement, ..blank() };
                    seq += 1;
                    writer.begin(&record, dtype, shape, bytes.len() as u64).unwrap();
                    writer.append(bytes).unwrap();
                    writer.finish().unwrap();
                };
            for step in 0..3 {
                let q: Vec<u8> = (8 * rank..8 * rank + 8).flat_map(bf16).collect();
                write("layers.0.q", step, 0, Some("S(1)"), Dtype::BF16, &[2, 4], &q);
                let mut out = vec![0.5f32; step as usize + 1];
                out[0] = f32::NAN;
                let out: Vec<u8> = out.iter().flat_map(|x| x.to_le_bytes()).collect();
                write("layers.0.out", step, 0, Some("R"), Dtype::F32, &[step + 1], &out);
            }
            let ids: Vec<u8> = [-1i64, 1_000_000_000_000].iter().flat_map(|i| i.to_le_bytes()).collect();
            write("ids", 1, 0, None, Dtype::I64, &[2], &ids);
            write("ids", 1, 1, None, Dtype::I64, &[2], &ids);
            if rank == 0 {
                writer.seal().unwrap();
            }
        }
        Self { dir }
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.dir.path().join("r")
    }

    /// Runs a command on the run, both mapped and not, which gives the same.
    #[track_caller]
    pub(crate) fn command(&self, command: &str, args: &[&str]) -> Done {
        self.command_on(&self.run(), command, args)
    }

    #[track_caller]
    pub(crate) fn command_on(&self, path: &Path, command: &str, args: &[&str]) -> Done {
        let all = [&[command, path.to_str().unwrap()], args].concat();
        let mapped = tpcapture(all.iter().copied());
        let unmapped = tpcapture(all.iter().copied().chain(["--no-mmap"]));
        assert_eq!(mapped, unmapped);
        let here = format!("{}/", self.dir.path().display());
        Done { stdout: mapped.stdout.replace(&here, ""), stderr: mapped.stderr.replace(&here, ""), ..mapped }
    }
}

fn bf16(x: u32) -> [u8; 2] {
    let [_, _, a, b] = (x as f32).to_le_bytes();
    [a, b]
}

pub(crate) fn blank() -> Record {
    Record {
        tap: String::new(),
        step: 0,
        abs_step: 0,
        call: 0,
        seq: 0,
        time_ns: 0,
        placement: None,
        rows: None,
        full_rows: None,
        strides: vec![],
        device: "cpu".into(),
        encoding: None,
        crc32: 0,
    }
}
