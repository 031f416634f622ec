//! One number of two tensors.

use crate::whole::Whole;
use serde::{Deserialize, Serialize};

/// One element on both sides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Worst {
    /// Its place in the logical tensor; the last one is 0 or 1 for the real or imaginary part of a complex number.
    pub index: Vec<u64>,
    /// The reference's value.
    pub reference: f64,
    /// The candidate's value.
    pub candidate: f64,
    /// Global rank of the candidate that holds it, the first where several do.
    pub rank: Option<u32>,
}

impl Worst {
    /// The number at a place of two tensors of one shape.
    pub(crate) fn at(reference: &Whole<'_>, candidate: &Whole<'_>, at: u64) -> Self {
        let value = |whole: &Whole<'_>| {
            let mut value = [0.0];
            whole.read(at, &mut value);
            value[0]
        };
        let mut rest = at;
        let place = |d: &u64| {
            let i = rest % d;
            rest /= d;
            i
        };
        let mut index: Vec<u64> = candidate.shape.iter().rev().map(place).collect();
        index.reverse();
        let rank = candidate.ranks(&candidate.owners(at)).first().copied();
        Self { index, reference: value(reference), candidate: value(candidate), rank }
    }
}
