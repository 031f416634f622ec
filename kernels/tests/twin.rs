//! The kernels' logic without a device: as host C++ under the address and undefined-behaviour sanitizers, each kernel is held to
//! a naive twin (`twin/main.cpp`) for every dtype and random layouts. Mutants of the sources have to be caught.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};
use std::process::Command;

fn kernels() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Builds the twin with the sources in `sources`; its path.
fn build(sources: &Path, into: &Path) -> PathBuf {
    let program = into.join("twin");
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".into());
    let done = Command::new(compiler)
        .args(["-std=c++17", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"])
        .arg("-Wno-unknown-pragmas")
        .arg("-I")
        .arg(sources)
        .arg("-I")
        .arg(kernels().join("../crates/cuda-sim/shim"))
        .arg(kernels().join("tests/twin/main.cpp"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program
}

/// Whether the program is content, and what it said.
fn run(program: &Path, seed: u32, rounds: u32) -> (bool, String) {
    let done = Command::new(program).args([seed.to_string(), rounds.to_string()]).output().unwrap();
    let said = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    (done.status.success(), said)
}

#[test]
fn kernels_are_their_naive_twins() {
    let dir = tempfile::tempdir().unwrap();
    let program = build(&kernels().join("cu"), dir.path());
    for seed in 1..=3 {
        let (is_content, said) = run(&program, seed, 12);
        assert!(is_content, "{said}");
    }
}

#[test]
fn mutants_are_caught() {
    let mutants = [
        ("hash.cu", "    __syncthreads();\n", ""),
        ("stats.cu", "    __syncthreads();\n", ""),
        ("hash.cu", "distance > 0; distance /= 2", "distance > 1; distance /= 2"),
        ("stats.cu", "warp < TPC_WARPS; ++warp", "warp < TPC_WARPS - 1; ++warp"),
        (
            "stats.cu",
            "(u64)blockIdx.x * TPC_THREADS + threadIdx.x",
            "(u64)blockIdx.x * (TPC_THREADS - 1) + threadIdx.x",
        ),
        ("hash.cu", "16 * i + 8 < n_bytes", "16 * i + 8 <= n_bytes"),
        (
            "units.cuh",
            "left < Unit<Item>::ITEMS ? (u32)left : (u32)Unit<Item>::ITEMS",
            "(u32)Unit<Item>::ITEMS",
        ),
        ("units.cuh", "<< others >> others", ""),
        ("units.cuh", "if (((u64)at & (sizeof(Item) - 1)) == 0) {", "if (true) {"),
        ("pack.cu", "if (i + k * step < count)", "if (i + k * step <= count)"),
        ("turn.cu", "        __syncthreads();\n        for", "        for"),
        ("turn.cu", "        // The next square is written over this one.\n        __syncthreads();\n", ""),
        ("hash.cu", "i + 3 * step < n_whole", "i + 3 * step <= n_whole"),
        ("units.cuh", "if (all.units == 2) {", "if (false) {"),
        ("stats.cu", "running.near_squares.low += __fmaf_rn(x, x, -square);", ""),
        (
            "layout.cuh",
            "(i64)(i - outer * size) * layout.stride[d]",
            "(i64)(i - outer * size) * layout.stride[0]",
        ),
        ("numbers.cuh", "127 + 1 - bias - mantissa_bits", "127 - bias - mantissa_bits"),
    ];
    // Two compilers at a time.
    std::thread::scope(|scope| {
        for half in mutants.chunks(mutants.len().div_ceil(2)) {
            scope.spawn(|| half.iter().for_each(|(file, from, to)| caught(file, from, to)));
        }
    });
}

#[track_caller]
fn caught(file: &str, from: &str, to: &str) {
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(kernels().join("cu")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = dir.path().join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file} has no {from:?}");
    std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
    let (is_content, _) = run(&build(dir.path(), dir.path()), 1, 12);
    assert!(!is_content, "{file} with {to:?} for {from:?} passes");
}
