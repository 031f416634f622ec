//! Two tensors, read a row of each at a time.

use crate::whole::{Whole, product};
use std::hash::{DefaultHasher, Hasher as _};

/// The longest row, in numbers.
pub const MAX_ROW: u64 = 1 << 20;

/// How the flat numbers are cut into rows.
pub(crate) struct Grid {
    pub(crate) width: usize,
    pub(crate) rows: u64,
    len: u64,
}

impl Grid {
    pub(crate) fn of(shape: &[u64]) -> Self {
        let len = product(shape);
        let mut width = 1u64;
        for dim in shape.iter().rev() {
            if width >= 16 {
                break;
            }
            width = width.saturating_mul(*dim);
        }
        let width = width.clamp(1, MAX_ROW);
        Self { width: width as usize, rows: len.div_ceil(width), len }
    }

    /// First number and length of a row; the last one may be short.
    pub(crate) fn row(&self, row: u64) -> (u64, usize) {
        let from = row * self.width as u64;
        (from, (self.len - from).min(self.width as u64) as usize)
    }
}

/// Both tensors and one row of each.
pub(crate) struct Pair<'w, 'a> {
    reference: &'w Whole<'a>,
    pub(crate) candidate: &'w Whole<'a>,
    sums: (bool, bool),
    pub(crate) r: Vec<f64>,
    pub(crate) c: Vec<f64>,
    /// Σ|p| of both.
    pub(crate) p: Vec<f64>,
    scratch: Vec<f64>,
}

impl<'w, 'a> Pair<'w, 'a> {
    pub(crate) fn new(reference: &'w Whole<'a>, candidate: &'w Whole<'a>, grid: &Grid) -> Self {
        let row = || vec![0.0; grid.width];
        let sums = (reference.is_computed(), candidate.is_computed());
        Self { reference, candidate, sums, r: row(), c: row(), p: row(), scratch: row() }
    }

    /// Whether a side is a sum over ranks.
    pub(crate) fn has_sum(&self) -> bool {
        self.sums.0 || self.sums.1
    }

    pub(crate) fn read(&mut self, from: u64, len: usize) {
        self.reference.read(from, &mut self.r[..len]);
        self.candidate.read(from, &mut self.c[..len]);
    }

    pub(crate) fn read_terms(&mut self, from: u64, len: usize) {
        self.p[..len].fill(0.0);
        for (has_sum, whole) in [(self.sums.0, self.reference), (self.sums.1, self.candidate)] {
            if has_sum {
                whole.read_magnitudes(from, &mut self.scratch[..len]);
                self.p[..len].iter_mut().zip(&self.scratch).for_each(|(p, x)| *p += x);
            }
        }
    }

    /// 64 bits of the row of both sides.
    pub(crate) fn hash(&self, len: usize) -> u64 {
        let mut hasher = DefaultHasher::new();
        for x in self.r[..len].iter().chain(&self.c[..len]) {
            hasher.write_u64(x.to_bits());
        }
        hasher.finish()
    }

    /// All bits that the significands of a sum's terms use.
    pub(crate) fn term_bits(&self) -> u64 {
        let mut bits = 0;
        let mut chunk = vec![0.0; 4096];
        for (has_sum, whole) in [(self.sums.0, self.reference), (self.sums.1, self.candidate)] {
            for part in whole.parts.iter().filter(|_| has_sum) {
                let mut from = 0;
                while from < part.len() {
                    let len = (part.len() - from).min(chunk.len() as u64) as usize;
                    part.read(from, &mut chunk[..len]);
                    bits |= chunk[..len].iter().map(|x| significand(*x)).fold(0, |a, b| a | b);
                    from += len as u64;
                }
            }
        }
        bits
    }
}

pub(crate) fn significand(x: f64) -> u64 {
    if x.is_finite() { x.to_bits() & ((1 << 52) - 1) } else { 0 }
}
