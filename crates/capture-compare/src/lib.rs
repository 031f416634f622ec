//! Offline: open a run, assemble logical tensors, compare, report.
//!
//! The modules stand in reading order; each uses only those above it.

mod source;
mod segment;
mod listing;
pub mod run;
pub mod decode;
pub mod summary;

pub use run::{Access, Entry, FileError, OpenError, Process, Run};
