//! Offline: open a run, assemble logical tensors, compare, report.
//!
//! The modules stand in reading order, a blank line between the floors; each uses only those above it.

pub mod decode;
pub mod run;
mod segment;
mod source;

pub mod float;
pub mod glob;

pub mod layouts;
pub mod part;

pub mod whole;

pub mod assemble;
pub mod statistics;

pub mod exact;
pub mod verdict;

pub use run::{Access, Entry, FileError, OpenError, Process, Run};
