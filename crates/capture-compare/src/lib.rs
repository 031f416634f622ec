//! Offline: open a run, assemble logical tensors, compare, report.
//!
//! The modules stand in reading order; each uses only those above it.

mod source;
mod data;
mod segment;
mod listing;
pub mod run;
mod aligned;
pub mod summary;

pub mod transform;
pub mod layouts;
mod parameters;

pub mod part;
pub mod whole;
pub mod misfit;
pub mod assemble;
mod element;
mod rearrange;
mod sort;
mod dequant;
mod extent;
mod scale;

pub mod statistics;
mod real;
pub mod rows;
mod magnitudes;
mod repeats;
mod scales;
mod largest;
mod errors;
mod pieces;
mod units;
pub mod measure;
pub mod exact;
mod outliers;
pub mod noise;
pub mod payload;
pub mod powers;
pub mod verdict;
pub mod detail;

pub mod index;
mod gather;
pub mod infer;
pub mod report;
pub mod options;
mod kept;
mod placing;
mod absent;
mod sections;
mod taps;
mod row_keys;
mod steps;
mod joining;
mod pairing;
mod align;
mod running;
mod choice;
mod parted;
mod reduction;
mod opened;
mod scores;
mod variants;
mod judged;
pub mod outcome;
pub mod ties;
pub mod walk;
mod diagnose;
pub mod compare;
mod alone;
pub mod spread;

pub use alone::check;
use capture_core::vectors;
pub use capture_core::{decode, float};
pub use compare::{Comparison, compare};
pub use layouts::{Layouts, LayoutsError};
pub use listing::locate;
pub use options::{OneSided, Options, PairBy};
pub use parameters::keep_parameters;
pub use report::{LeftOut, Report};
pub use run::{Access, Entry, FileError, Kept, OpenError, Process, Run};
pub use source::path_as_text;
pub use verdict::Verdict;
