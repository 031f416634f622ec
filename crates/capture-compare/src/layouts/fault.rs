//! What is wrong with a layouts file.

use capture_core::select::SelectError;
use std::path::PathBuf;

/// Why a layouts file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutsError {
    /// It cannot be read.
    #[error("cannot read layouts file: {reason}: {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
    /// A line of it says something else than what is expected.
    #[error("{}:{line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line, counted from 1.
        line: usize,
        /// What was expected and found.
        reason: String,
    },
}

/// What is wrong, and the byte of the text where.
#[derive(Debug, PartialEq)]
pub(super) struct Fault {
    pub(super) at: usize,
    pub(super) reason: String,
}

impl Fault {
    pub(super) fn new(at: usize, reason: impl Into<String>) -> Self {
        Self { at, reason: reason.into() }
    }

    /// A text under `key` that is no glob.
    pub(super) fn no_glob(at: usize, key: &str, error: &SelectError) -> Self {
        let SelectError { text, column, expected, found } = error;
        Self::new(at, format!("{key} {text:?}, column {column}: expected {expected}, found {found}"))
    }
}
