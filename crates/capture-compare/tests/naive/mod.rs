//! The verdict on floats once more, as plainly as it can be said: everything in memory, in f64, one formula a line, no
//! sum streamed, no sample taken. It is slow and is right where it can be read.

#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod draw;
pub(crate) mod severities;
pub(crate) mod statistics;
