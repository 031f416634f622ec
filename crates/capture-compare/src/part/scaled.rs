//! Quantised numbers with their scales: each is decoded where it is read, so that a dequantised tensor takes no memory.

use super::Part;
use crate::float::{F32, Float};

/// `(code − zero) · scale · global`, rounded to fp32 as frameworks form it. The codes are matrices, one below the other
/// where there are leading dims; scales and zeros are the same number of smaller matrices.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Scaled<'a> {
    pub(crate) codes: Part<'a>,
    pub(crate) scale: Part<'a>,
    pub(crate) zero: Zero<'a>,
    pub(crate) global: Global,
    /// Rows of one matrix of codes, and of one of scales.
    pub(crate) rows: (u64, u64),
    /// Columns of the codes, and of the scales.
    pub(crate) columns: (u64, u64),
    /// Which row of scales speaks for a row of codes.
    pub(crate) by_row: Blocks,
    /// Which column of scales speaks for a column of codes.
    pub(crate) by_column: Blocks,
    /// The format of the codes.
    pub(crate) payload: Float,
}

/// What is taken off a code.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Zero<'a> {
    /// The same of every code.
    Fixed(f64),
    /// A matrix like the scales', of integers of which `add` was taken off modulo 16 before they were stored.
    Each {
        /// Stored integers.
        of: Part<'a>,
        /// What to add to them.
        add: u8,
    },
}

/// One factor for each matrix, or one for all.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Global {
    /// None.
    One,
    /// Multiplied.
    Times(Vec<f64>),
    /// The block's scale is divided by it, and rounded to fp32, first.
    Over(Vec<f64>),
}

/// Which block a row or column is in.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Blocks {
    /// Blocks of `length`, of which the first has lost `lost` to another rank.
    Even {
        /// Length of a block.
        length: u64,
        /// What the first block lacks.
        lost: u64,
    },
    /// As the table says.
    Table(Vec<u32>),
}

impl Blocks {
    fn of(&self, at: u64) -> u64 {
        match self {
            Self::Even { length, lost } => (at + lost) / length,
            Self::Table(table) => u64::from(table[at as usize]),
        }
    }

    /// Where `n` blocks from that of `at` on end, if not before `end`.
    fn stretch(&self, at: u64, n: u64, end: u64) -> u64 {
        match self {
            Self::Even { length, lost } => {
                ((at + lost) / length + n).saturating_mul(*length).min(end + lost) - lost
            }
            Self::Table(_) => at + 1,
        }
    }
}

/// Scales of a row read at once.
const AT_ONCE: usize = 16;

impl Scaled<'_> {
    /// The format whose roundoff a step of the codes is; the scales give it the exponents of fp32.
    pub(crate) fn float(&self) -> Float {
        Float { precision: self.payload.precision, ..F32 }
    }

    /// The dequantised numbers from `from` on, as many as `out` holds.
    pub(crate) fn read(&self, from: u64, out: &mut [f64]) {
        self.codes.read(from, out);
        self.blocks(from, out, |codes, scale, zero, factor| {
            for code in codes {
                let exact = (*code - zero) * scale;
                *code = f64::from((if factor == 1.0 { exact } else { exact * factor }) as f32);
            }
        });
    }

    /// The smallest step between codes times its roundings, as a sum's terms are: what a number near zero may be off
    /// by, since all of a block share a scale.
    pub(crate) fn read_terms(&self, from: u64, out: &mut [f64]) {
        let step = f64::from(self.payload.min_exponent).exp2();
        self.blocks(from, out, |terms, scale, _, factor| terms.fill((scale * factor * step).abs()));
    }

    /// Calls `apply(numbers, scale, zero, factor)` for each stretch of `out` that shares a scale.
    fn blocks(&self, from: u64, out: &mut [f64], mut apply: impl FnMut(&mut [f64], f64, f64, f64)) {
        let (mut scales, mut zeros) = ([0.0; AT_ONCE], [0.0; AT_ONCE]);
        let mut done = 0;
        while done < out.len() {
            let at = from + done as u64;
            let (row, first) = (at / self.columns.0, at % self.columns.0);
            let end = self.columns.0.min(first + (out.len() - done) as u64);
            let end = self.by_column.stretch(first, AT_ONCE as u64, end);
            let (matrix, row) = (row / self.rows.0, row % self.rows.0);
            let line = (matrix * self.rows.1 + self.by_row.of(row)) * self.columns.1;
            let (low, high) = (self.by_column.of(first), self.by_column.of(end - 1));
            let scales = &mut scales[..=(high - low) as usize];
            self.scale.read(line + low, scales);
            let factor = match &self.global {
                Global::One => 1.0,
                Global::Times(all) => all[(matrix as usize).min(all.len() - 1)],
                Global::Over(all) => {
                    let global = all[(matrix as usize).min(all.len() - 1)];
                    scales.iter_mut().for_each(|s| *s = f64::from((*s / global) as f32));
                    1.0
                }
            };
            if let Zero::Each { of, .. } = &self.zero {
                of.read(line + low, &mut zeros[..scales.len()]);
            }
            let mut column = first;
            while column < end {
                let block = self.by_column.of(column);
                let next = self.by_column.stretch(column, 1, end);
                let n = (next - column) as usize;
                let zero = match &self.zero {
                    Zero::Fixed(zero) => *zero,
                    Zero::Each { add, .. } => f64::from((zeros[(block - low) as usize] as u8 + add) & 15),
                };
                apply(&mut out[done..done + n], scales[(block - low) as usize], zero, factor);
                (column, done) = (next, done + n);
            }
        }
    }
}
