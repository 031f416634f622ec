//! What is not mapped is read in pieces: comparing records of any size takes little memory. A file of its own, as it
//! measures its process.

#![expect(clippy::unwrap_used, reason = "a test")]

use capture_compare::{Access, Comparison, Layouts, Options, Run, outcome::Outcome};
use capture_core::{Dtype, Identity, Mesh, Record, Stored, Tags, journal};
use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

/// Numbers of a record: 256 MiB of I64.
const N: u64 = 32 << 20;
/// What comparing may take, in bytes.
const MOST: u64 = 256 << 20;

/// A run of one rank whose record is a hole, but for its first number.
fn run(dir: &Path, first: i64) -> Run {
    let (stem, length) = ("rank0.pid1-ab.000000", N * 8);
    let identity = Identity {
        run: "r".into(),
        rank: Some(0),
        world: Some(1),
        mesh: Mesh::default(),
        process: "1-ab".into(),
    };
    let record = Record {
        tap: "a".into(),
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
    };
    let stored = Stored { record, dtype: Dtype::I64, shape: vec![N / 4096, 4096], offset: 0, length };
    let opening = journal::Opening { tags: Tags::new(&identity, 0), data_start: 0 };
    fs::write(dir.join(format!("{stem}.journal")), journal::encode(&opening) + &journal::encode(&stored))
        .unwrap();
    let file = File::create(dir.join(format!("{stem}.safetensors.partial"))).unwrap();
    file.set_len(length).unwrap();
    file.write_all_at(&first.to_le_bytes(), 0).unwrap();
    Run::open(dir, Access::Unmapped).unwrap()
}

/// The most memory that this process has had, in bytes.
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn records_of_any_size_take_little_memory() {
    let dirs = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [a, b, c] = [(0, 1), (1, 1), (2, 2)].map(|(i, first): (usize, i64)| run(dirs[i].path(), first));
    let (before, layouts) = (peak(), Layouts::default());
    for candidate in [&b, &c] {
        let comparison = Comparison::new(&a, candidate, &layouts, Options::default());
        let outcome = comparison.measure(0);
        assert!(matches!(outcome, Outcome::Measured(_)), "{outcome:?}");
        let took = peak() - before;
        assert!(took < MOST, "took {} MiB", took >> 20);
    }
}
