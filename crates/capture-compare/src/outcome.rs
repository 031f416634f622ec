//! What came of a pair before the walk: all that deciding needs, without the tensors, so that it may travel.

use crate::{judged::Judged, report::Row, run::FileError};
use serde::{Deserialize, Serialize};

/// What came of a pair.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Outcome {
    /// A file cannot be read.
    Unreadable(FileError),
    /// Nothing to measure: `MISSING` or `LAYOUT`.
    Settled(Box<Row>),
    /// Measured.
    Measured(Box<Measurement>),
}

/// A pair, measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measurement {
    /// The row, yet without verdict and figures.
    pub(crate) row: Row,
    /// The first replicas, and every replica that differs from its like.
    pub(crate) variants: Vec<Judged>,
    /// The relative noise of the same tap in the noise run.
    pub(crate) floor: Option<f64>,
    /// The tap of the partial sums, where they were held against their running bound.
    pub(crate) partials: Option<String>,
}
