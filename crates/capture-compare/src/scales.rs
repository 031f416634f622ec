//! The first pass over two tensors: the classes of their numbers, and the reference's scale by row and column.

use std::collections::HashSet;

use crate::{
    rows::{Grid, Pair, significand},
    statistics::{Statistics, median},
    whole::Whole,
};

/// What the first pass finds.
pub(crate) struct Scales {
    /// a_i, zero where the row is zero on both sides.
    pub(crate) row: Vec<f64>,
    /// ĉ_j.
    pub(crate) column: Vec<f64>,
    /// Finite places of each column in active rows.
    pub(crate) counts: Vec<u64>,
    /// All bits that the significands of both sides use.
    pub(crate) bits: u64,
}

impl Scales {
    pub(crate) fn measure(pair: &mut Pair<'_, '_>, grid: &Grid, s: &mut Statistics) -> Self {
        let mut row = vec![0.0; grid.rows as usize];
        let mut active = vec![false; grid.rows as usize];
        let (mut column, mut counts) = (vec![0.0; grid.width], vec![0u64; grid.width]);
        let mut bits = pair.term_bits();
        let sums = pair.has_sum();
        let mut seen = HashSet::new();
        for i in 0..grid.rows {
            let (from, len) = grid.row(i);
            pair.read(from, len);
            // Summed as shares of the row, which do not overflow.
            let share = 1.0 / len as f64;
            let (mut sum, mut finite, mut alive) = (0.0, 0u64, false);
            for j in 0..len {
                let (r, c) = (pair.r[j], pair.c[j]);
                if !(r.is_finite() && c.is_finite()) {
                    s.class_at(pair.candidate, from + j as u64, r, c);
                    continue;
                }
                finite += 1;
                sum += r.abs() * share;
                alive |= r != 0.0 || c != 0.0;
                s.differs |= r != c;
                if !sums {
                    bits |= significand(r) | significand(c);
                }
            }
            s.finite += finite;
            if !alive || !seen.insert(pair.hash(len)) {
                continue;
            }
            active[i as usize] = true;
            let a = sum * (len as f64 / finite as f64);
            row[i as usize] = a;
            for j in 0..len {
                let (r, c) = (pair.r[j], pair.c[j]);
                if r.is_finite() && c.is_finite() {
                    counts[j] += 1;
                    column[j] += if a > 0.0 { r.abs() / a } else { 0.0 };
                }
            }
        }
        let typical = median(row.iter().copied().filter(|a| *a > 0.0)).unwrap_or(1.0);
        for (a, active) in row.iter_mut().zip(&active) {
            *a = if *active { a.max(typical / 64.0) } else { 0.0 };
        }
        for (c, n) in column.iter_mut().zip(&counts) {
            *c /= (*n).max(1) as f64;
        }
        let typical = median(column.iter().copied().filter(|c| *c > 0.0)).unwrap_or(1.0);
        let rows = active.iter().filter(|a| **a).count() as f64;
        for c in &mut column {
            *c = ((*c / typical * rows + 4.0) / (rows + 4.0)).max(0.25);
        }
        Self { row, column, counts, bits }
    }
}

impl Statistics {
    /// Counts a place that is not finite on both sides.
    fn class_at(&mut self, candidate: &Whole<'_>, index: u64, r: f64, c: f64) {
        self.nan += u64::from(r.is_nan() != c.is_nan());
        self.both_nan += u64::from(r.is_nan() && c.is_nan());
        if class(r) != class(c) {
            self.class_change.get_or_insert(index);
            for part in candidate.owners(index) {
                self.parts[part].class_changes += 1;
            }
        }
    }
}

/// NaN, +inf, −inf or finite.
pub(crate) fn class(x: f64) -> u8 {
    if x.is_finite() {
        0
    } else if x.is_nan() {
        1
    } else {
        2 + u8::from(x < 0.0)
    }
}
