//! Offline: open a run, assemble logical tensors, compare, report.
//!
//! The modules stand in reading order; each uses only those above it.

pub mod decode;
pub mod run;
mod segment;
mod source;

pub use run::{Access, Entry, FileError, OpenError, Process, Run};
