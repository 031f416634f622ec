//! What only the host language knows: who a framework says this process is, and when it exits.

use crate::described::spoken;
use capture_core::control::{self, Word};
use capture_core::mesh::{Dim, Mesh};
use capture_core::notice::{self, notice};
use pyo3::prelude::*;
use std::collections::BTreeMap;

/// At the first record or step after switching on: asks the package who this process is, and has it seal at exit.
#[cold]
pub(crate) fn settle(py: Python<'_>) {
    let (word, versions) = ask(py).unwrap_or_else(|error| {
        notice(&format!("tpcapture._host failed, the environment is trusted: {}", spoken(py, &error)));
        (None, BTreeMap::new())
    });
    control::settle(word, versions);
}

/// A tap was made: where torch.compile meets it, Dynamo has to know it.
pub(crate) fn tap_made(tap: &Bound<'_, PyAny>) {
    let py = tap.py();
    let told = py.import("tpcapture._dynamo").and_then(|dynamo| dynamo.call_method1("made", (tap,)));
    if let Err(error) = told {
        notice(&format!("tpcapture._dynamo failed: {}", spoken(py, &error)));
    }
}

/// Whether the caller runs in the interpreter that the process began with, the only one that PyO3's classes are for.
pub(crate) fn is_main_interpreter(_: Python<'_>) -> bool {
    #[expect(unsafe_code, reason = "PyO3 has no safe call for it")]
    // SAFETY: the caller is attached to an interpreter, whose state these two read.
    unsafe {
        pyo3::ffi::PyInterpreterState_GetID(pyo3::ffi::PyInterpreterState_Get()) == 0
    }
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
/// holds it may be waiting for this one with, and std's handle has a lock that a child of fork may find taken. A line
/// that stderr does not take at once (a pipe that nobody reads, a stopped terminal) is dropped: what it says is in the
/// run and in `status`, and the model must not wait for a reader.
pub(crate) fn print_notice(line: &str) {
    // What a pipe takes as a whole once it takes anything.
    const LONGEST: usize = libc::PIPE_BUF;
    let speaker = notice::speaker().map_or_else(String::new, |rank| format!(" rank {rank}"));
    let mut line = format!("[tpcapture{speaker}] {line}\n").into_bytes();
    if line.len() > LONGEST {
        line.truncate(LONGEST - 1);
        line.push(b'\n');
    }
    let mut stderr = libc::pollfd { fd: libc::STDERR_FILENO, events: libc::POLLOUT, revents: 0 };
    #[expect(unsafe_code, reason = "poll(2) and write(2)")]
    // SAFETY: one descriptor to ask about, without waiting; a buffer that lives through the call. Nothing can be done
    // where it fails.
    unsafe {
        if libc::poll(&raw mut stderr, 1, 0) == 1 && stderr.revents & libc::POLLOUT != 0 {
            let _ = libc::write(stderr.fd, line.as_ptr().cast(), line.len());
        }
    }
}
