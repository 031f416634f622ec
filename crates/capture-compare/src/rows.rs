//! Two tensors, read a row of each at a time, in strips of rows that threads share.

use crate::{
    aligned::Aligned,
    decode::{decode_into, fits_f32},
    real::Real,
    vectors::LANES,
    whole::{Node, Whole, product},
};
use rayon::prelude::*;
use std::ops::Range;

/// The longest row, in numbers.
pub const MAX_ROW: u64 = 1 << 20;
/// The most rows: of shorter ones several are taken for one, as something is kept for each.
const MAX_ROWS: u64 = 1 << 18;
/// Numbers of the columns of all strips.
const STRIPED: u64 = 1 << 21;
/// Numbers that are worth a strip.
const STRIP: u64 = 1 << 18;

/// How the flat numbers are cut into rows.
#[derive(Debug, Clone, Copy)]
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
        let width = width * len.div_ceil(width).div_ceil(MAX_ROWS).max(1);
        Self { width: width as usize, rows: len.div_ceil(width), len }
    }

    /// First number and length of a row; the last one may be short.
    pub(crate) fn row(&self, row: u64) -> (u64, usize) {
        let from = row * self.width as u64;
        (from, (self.len - from).min(self.width as u64) as usize)
    }

    /// The width in whole vectors.
    pub(crate) fn vectors(&self) -> usize {
        self.width.div_ceil(LANES)
    }

    /// Does the work on strips of neighbouring rows in parallel, in an order and with cuts that depend on the shape only,
    /// so that sums over them come to the same bits on every machine.
    pub(crate) fn strips<R: Send>(&self, work: impl Fn(Range<u64>) -> R + Sync) -> Vec<R> {
        let most = (STRIPED / self.width as u64).clamp(2, 64);
        let strips = (self.len / STRIP).clamp(1, most).min(self.rows);
        let of = |i: u64| work(self.rows * i / strips..self.rows * (i + 1) / strips);
        if strips <= 1 {
            (0..strips).map(of).collect()
        } else {
            (0..strips).into_par_iter().map(of).collect()
        }
    }
}

/// Both tensors.
#[derive(Clone, Copy)]
pub(crate) struct Pair<'w, 'a> {
    pub(crate) reference: &'w Whole<'a>,
    pub(crate) candidate: &'w Whole<'a>,
    /// Whether a side is a sum over ranks or dequantised.
    computed: [bool; 2],
    /// Whether all numbers fit f32.
    pub(crate) is_narrow: bool,
}

/// One row of both, and zeros up to the next whole vector.
pub(crate) struct Row<T> {
    pub(crate) r: Aligned<T>,
    pub(crate) c: Aligned<T>,
    /// Σ|p| of both; empty where neither is computed.
    pub(crate) p: Vec<T>,
    /// How many numbers of the candidate's row come from which part, in order; `None` for a sum.
    pub(crate) runs: Vec<(Option<usize>, usize)>,
}

impl<T: Real> Row<T> {
    pub(crate) fn new(grid: &Grid) -> Self {
        let row = || Aligned::new(grid.vectors() * LANES);
        Self { r: row(), c: row(), p: Vec::new(), runs: Vec::new() }
    }

    /// Σ|p| at a place.
    pub(crate) fn term(&self, j: usize) -> f64 {
        self.p.get(j).map_or(0.0, |p| p.wide())
    }

    /// Places of the masked row that are not zero on both sides.
    pub(crate) fn there(&self, places: Range<usize>) -> usize {
        let zero = T::default();
        let numbers = self.r[places.clone()].iter().zip(&self.c[places]);
        numbers.filter(|(r, c)| r.abs().larger(c.abs()) > zero).count()
    }

    /// Puts zeros where a side is not finite, and says how many of the first `len` places are.
    pub(crate) fn mask(&mut self, len: usize) -> usize {
        let mut finite = 0;
        for (r, c) in self.r[..len].iter_mut().zip(&mut self.c[..len]) {
            if r.wide().is_finite() && c.wide().is_finite() {
                finite += 1;
            } else {
                (*r, *c) = (T::default(), T::default());
            }
        }
        finite
    }
}

impl<'w, 'a> Pair<'w, 'a> {
    pub(crate) fn new(reference: &'w Whole<'a>, candidate: &'w Whole<'a>) -> Self {
        let computed = [reference.is_computed(), candidate.is_computed()];
        let fits = |whole: &Whole<'_>| {
            whole.parts.iter().all(|p| p.stored(0, 0).is_some_and(|(dtype, _)| fits_f32(dtype)))
        };
        let is_narrow = computed == [false; 2] && fits(reference) && fits(candidate);
        Self { reference, candidate, computed, is_narrow }
    }

    pub(crate) fn read<T: Real>(&self, from: u64, len: usize, row: &mut Row<T>) {
        row.runs.clear();
        let runs = &mut row.runs;
        read(self.reference, from, &mut row.r[..len], &mut |_, _| {});
        read(self.candidate, from, &mut row.c[..len], &mut |part, n| runs.push((part, n)));
        row.r[len..].fill(T::default());
        row.c[len..].fill(T::default());
    }

    pub(crate) fn read_terms<T: Real>(&self, from: u64, len: usize, row: &mut Row<T>) {
        if self.computed == [false; 2] {
            return;
        }
        let mut terms = vec![0.0; len];
        row.p.clear();
        row.p.resize(row.r.len(), T::default());
        for (is_computed, whole) in self.computed.into_iter().zip([self.reference, self.candidate]) {
            if is_computed {
                whole.read_magnitudes(from, &mut terms);
                row.p.iter_mut().zip(&terms).for_each(|(p, x)| *p = *p + T::of(*x));
            }
        }
    }

    /// All bits that the significands of a sum's terms use.
    pub(crate) fn term_bits(&self) -> u64 {
        let mut bits = 0;
        let mut chunk = vec![0.0; 4096];
        for (is_computed, whole) in self.computed.into_iter().zip([self.reference, self.candidate]) {
            for part in whole.parts.iter().filter(|_| is_computed) {
                let mut from = 0;
                while from < part.len() {
                    let len = (part.len() - from).min(chunk.len() as u64) as usize;
                    part.read(from, &mut chunk[..len]);
                    let finite = chunk[..len].iter().filter(|x| x.is_finite());
                    bits |= finite.map(|x| f64::significand(x.to_bits())).fold(0, |a, b| a | b);
                    from += len as u64;
                }
            }
        }
        bits
    }
}

/// The numbers from `from` on, as many as `out` holds, and how many come from which part.
fn read<T: Real>(whole: &Whole<'_>, from: u64, out: &mut [T], run: &mut dyn FnMut(Option<usize>, usize)) {
    let mut at = 0;
    whole.runs(from, from + out.len() as u64, &mut |leaf, begin, end| {
        let n = (end - begin) as usize;
        let own = &mut out[at..at + n];
        let part = if let Node::Part(part) = leaf { Some(*part) } else { None };
        match part.and_then(|part| whole.parts[part].stored(begin, end)) {
            Some((dtype, bytes)) => {
                decode_into(dtype, &bytes, own);
            }
            None => {
                let mut numbers = vec![0.0; n];
                whole.read(from + at as u64, &mut numbers);
                own.iter_mut().zip(numbers).for_each(|(own, x)| *own = T::of(x));
            }
        }
        run(part, n);
        at += n;
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(shape: &[u64], width: usize, rows: u64) {
        let grid = Grid::of(shape);
        assert_eq!((grid.width, grid.rows), (width, rows), "{shape:?}");
    }

    #[test]
    fn rows_are_neither_too_short_nor_too_long_nor_too_many() {
        check(&[5, 128], 128, 5);
        check(&[5, 4, 8], 32, 5);
        check(&[3], 3, 1);
        check(&[3 << 20], 1 << 20, 3);
        check(&[1 << 28, 16], 1 << 14, 1 << 18);
        check(&[(1 << 18) + 1, 16], 32, (1 << 17) + 1);
        check(&[0, 16], 16, 0);
    }

    #[test]
    fn strips_hold_every_row_once() {
        for shape in [[1u64 << 20, 16], [7, 1 << 20], [1, 5], [0, 5]] {
            let grid = Grid::of(&shape);
            let rows: Vec<u64> = grid.strips(Iterator::collect::<Vec<u64>>).concat();
            assert!(rows.into_iter().eq(0..grid.rows));
        }
    }
}
