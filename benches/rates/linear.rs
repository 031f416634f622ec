//! A linear layer, whole or row-parallel over ranks, as it should be and with the faults that sharding makes.

use crate::{matrix::Matrix, number::Format};

/// What is wrong with a row-parallel layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharding {
    /// Nothing.
    Right,
    /// The bias is added by two ranks.
    BiasTwice,
    /// The last rank's partial sum is not in the sum.
    Dropped,
    /// The first two ranks hold each other's weight.
    Swapped,
}

/// The weight `[inner, width]` and bias of a layer.
pub(crate) struct Linear<'w> {
    pub(crate) weight: &'w Matrix,
    pub(crate) bias: Option<&'w [f32]>,
    pub(crate) format: Format,
}

impl Linear<'_> {
    /// By `ranks` ranks: one product where there is one, else partial sums that are rounded and added up in rank order.
    pub(crate) fn forward(&self, x: &Matrix, ranks: usize, sharding: Sharding) -> Matrix {
        let depth = self.weight.rows / ranks;
        let holds = |rank: usize| match (sharding, rank) {
            (Sharding::Swapped, 0 | 1) => 1 - rank,
            _ => rank,
        };
        let summed = if sharding == Sharding::Dropped { ranks - 1 } else { ranks };
        let partial =
            |rank: usize| x.slice_times(rank * depth, self.weight, holds(rank) * depth, depth, self.format);
        let mut y = partial(0);
        for rank in 1..summed {
            y = y.plus(&partial(rank), self.format);
        }
        let biases = if sharding == Sharding::BiasTwice { 2 } else { 1 };
        for bias in std::iter::repeat_n(self.bias, biases).flatten() {
            y = y.plus_row(bias, self.format);
        }
        y
    }
}
