//! What came of a pair before the walk: all that deciding needs, without the tensors, so that it may travel.

use crate::{
    choice::{Choice, Ruling},
    judged::Judged,
    parted::Parted,
    report::Row,
    run::FileError,
};
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
    /// The shape of the tensors.
    pub(crate) shape: Vec<u64>,
    /// What was chosen by scores, where ids differ, until it is ruled on.
    pub(crate) choice: Option<Choice>,
    /// What came of the choice.
    pub(crate) ruling: Option<Ruling>,
    /// The rows that were left out.
    pub(crate) parted: Option<Parted>,
}

impl Measurement {
    /// Whether there is nothing that differs.
    pub(crate) fn is_identical(&self) -> bool {
        self.variants.iter().all(|variant| variant.measured.identical)
    }
}
