//! What only the host language knows: who a framework says this process is, and when it exits.

use capture_core::control::{self, Word};
use capture_core::mesh::{Dim, Mesh};
use capture_core::notice::notice;
use pyo3::prelude::*;
use std::collections::BTreeMap;

/// At the first record or step after switching on: asks the package who this process is, and has it seal at exit.
#[cold]
pub(crate) fn settle(py: Python<'_>) {
    let (word, versions) = ask(py).unwrap_or_else(|error| {
        notice(&format!("tpcapture._host failed, the environment is trusted: {error}"));
        (None, BTreeMap::new())
    });
    control::settle(word, versions);
}

type Answer = (Option<(String, u32, u32, Option<Vec<(String, u32, u32)>>)>, BTreeMap<String, String>);

fn ask(py: Python<'_>) -> PyResult<(Option<Word>, BTreeMap<String, String>)> {
    let (word, versions): Answer = py.import("tpcapture._host")?.getattr("settle")?.call0()?.extract()?;
    let word = word.map(|(from, rank, world, dims)| Word {
        from,
        rank,
        world,
        mesh: dims.map(|dims| Mesh {
            dims: dims.into_iter().map(|(name, coord, size)| Dim { name, coord, size }).collect(),
            assumed: false,
        }),
    });
    Ok((word, versions))
}

/// Writes a line for the user. Straight to the descriptor: Python's logging would need the GIL, which the thread that
/// holds it may be waiting for this one with, and std's handle has a lock that a child of fork may find taken.
pub(crate) fn print_notice(line: &str) {
    let line = format!("[tpcapture] {line}\n");
    #[expect(unsafe_code, reason = "write(2)")]
    // SAFETY: a descriptor and a buffer that lives through the call. Nothing can be done where it fails.
    unsafe {
        let _ = write(2, line.as_ptr().cast(), line.len());
    }
}

#[expect(unsafe_code, reason = "write(2)")]
unsafe extern "C" {
    fn write(fd: std::ffi::c_int, bytes: *const std::ffi::c_void, n_bytes: usize) -> isize;
}
