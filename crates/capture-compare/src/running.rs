//! The running bound: what rounding can make of a reduction whose partial sums are known.
//!
//! With p the partial of each rank, s the running sums in rank order, y the results of both sides and u the unit
//! roundoff, |y_c − y_r| ≤ u(Σ|p| + Σ|s| + |y_c| + |y_r|) for each number: every partial, every sum and every result was
//! rounded once (Higham, *Accuracy and Stability of Numerical Algorithms*, ch. 3, running error analysis). Other orders
//! of summation, such as a ring's, make running sums of the same size.
//!
//! Before a partial was captured more may have been rounded: a product before its bias, which nearly cancels it in some
//! places. So u·a·ĉ is added, with a·ĉ the usual size of the number's row and column as in [`crate::measure`].
//!
//! It knows how much cancels in a sum, which the result alone does not tell. It does not know that errors ought to have
//! no pattern: a factor or a vector that all rows share may hide below it.

use crate::{
    float::Float,
    real::Line,
    rows::{Grid, Pair},
    scales::Scales,
    statistics::Statistics,
    whole::{Node, Whole},
};
use std::ops::Range;

/// Numbers looked at at a time.
const CHUNK: u64 = 1 << 13;

/// The partials of a reduction, one tensor for each rank, in rank order.
pub(crate) fn terms<'a>(sum: &Whole<'a>) -> Option<Vec<Whole<'a>>> {
    let Node::Sum(terms) = &sum.root else { return None };
    let term = |root: &Node| Whole {
        parts: sum.parts.clone(),
        root: root.clone(),
        shape: sum.shape.clone(),
        padded: sum.padded,
    };
    Some(terms.iter().map(term).collect())
}

/// The usual size of each number of a tensor, by its row and column.
pub(crate) struct Sizes {
    scales: Scales,
    width: u64,
}

impl Sizes {
    pub(crate) fn of(reference: &Whole<'_>, float: Float) -> Self {
        let grid = Grid::of(&reference.shape);
        let pair = Pair::new(reference, reference);
        let scales = Scales::measure(&pair, &grid, &Line::of(float), &mut Statistics::default());
        Self { scales, width: grid.width as u64 }
    }

    /// Adds those of the numbers from `from` on.
    fn add(&self, from: u64, to: &mut [f64]) {
        let (mut row, mut column) = ((from / self.width) as usize, (from % self.width) as usize);
        for x in to {
            *x += self.scales.rows[row].scale * self.scales.columns[column];
            column += 1;
            if column as u64 == self.width {
                (row, column) = (row + 1, 0);
            }
        }
    }
}

/// How two tensors stand to the running bound.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Running {
    /// The largest error over what it may be, and where; infinite where one side is not finite and the other is.
    pub(crate) worst: (f64, u64),
    /// Stretches of neighbouring numbers beyond the bound, the first [`Running::STRETCHES`].
    pub(crate) beyond: Vec<Range<u64>>,
    /// How many numbers are beyond it.
    pub(crate) n_beyond: u64,
}

impl Running {
    /// How many stretches are kept.
    const STRETCHES: usize = 1024;

    fn add(&mut self, at: u64, ratio: f64) {
        if ratio > self.worst.0 {
            self.worst = (ratio, at);
        }
        if ratio <= 1.0 {
            return;
        }
        self.n_beyond += 1;
        let has_room = self.beyond.len() < Self::STRETCHES;
        match self.beyond.last_mut() {
            Some(last) if last.end == at => last.end += 1,
            _ if has_room => self.beyond.push(at..at + 1),
            _ => {}
        }
    }
}

/// Holds `y` against `reference`, of one shape, where either may be the sum of partials. `terms` are the partials of
/// each reduction that rounding had a part in, `sizes` those of the reference where more may have been rounded before.
pub(crate) fn running(
    terms: &[&[Whole<'_>]],
    reference: &Whole<'_>,
    y: &Whole<'_>,
    float: Float,
    sizes: Option<&Sizes>,
) -> Running {
    let (u, underflow) = (float.roundoff(), float.underflow());
    let mut found = Running::default();
    let numbers = || vec![0.0; CHUNK as usize];
    let (mut r, mut c, mut p, mut s, mut allowed) = (numbers(), numbers(), numbers(), numbers(), numbers());
    let mut from = 0;
    while from < y.len() {
        let len = (y.len() - from).min(CHUNK) as usize;
        reference.read(from, &mut r[..len]);
        y.read(from, &mut c[..len]);
        for ((allowed, r), c) in allowed[..len].iter_mut().zip(&r).zip(&c) {
            *allowed = r.abs() + c.abs();
        }
        if let Some(sizes) = sizes {
            sizes.add(from, &mut allowed[..len]);
        }
        for reduction in terms {
            s[..len].fill(0.0);
            for term in *reduction {
                term.read(from, &mut p[..len]);
                for ((allowed, s), p) in allowed[..len].iter_mut().zip(&mut s).zip(&p) {
                    *s += p;
                    *allowed += p.abs() + s.abs();
                }
            }
        }
        for (j, ((r, c), allowed)) in r[..len].iter().zip(&c).zip(&allowed).enumerate() {
            found.add(from + j as u64, ratio(*r, *c, u * allowed + underflow));
        }
        from += len as u64;
    }
    found
}

/// The error over what is allowed; 0 where both sides are NaN or the same infinity.
fn ratio(r: f64, c: f64, allowed: f64) -> f64 {
    if r == c || (r.is_nan() && c.is_nan()) {
        return 0.0;
    }
    let ratio = (c - r).abs() / allowed;
    // One side is not finite, or numbers near the end of f64 overflowed: neither is a sign of rounding.
    if ratio.is_nan() || !r.is_finite() || !c.is_finite() { f64::INFINITY } else { ratio }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{float::BF16, part::Part};
    use capture_core::Dtype;

    fn whole(ranks: &[&[f32]], root: Node) -> Whole<'static> {
        let part = |(rank, numbers): (usize, &&[f32])| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            Part::new(Some(rank as u32), Dtype::F32, &[numbers.len() as u64], None, bytes.into()).unwrap()
        };
        let parts: Vec<_> = ranks.iter().enumerate().map(part).collect();
        Whole { parts: parts.into(), root, shape: vec![ranks[0].len() as u64], padded: 0 }
    }

    #[test]
    fn every_partial_running_sum_and_result_may_be_off_by_one_rounding() {
        let sum = whole(&[&[3.0, 1.0], &[-1.0, 1.0]], Node::Sum(vec![Node::Part(0), Node::Part(1)]));
        let terms = terms(&sum).unwrap();
        let (r, c) = (whole(&[&[2.0, 2.0]], Node::Part(0)), whole(&[&[2.125, 2.0]], Node::Part(0)));
        let found = running(&[&terms], &r, &c, BF16, None);
        // Σ|p| = 4, Σ|s| = 3 + 2, |y| = 2 + 2.125: an error of 0.125 is 32 u.
        assert!((found.worst.0 - 32.0 / 13.125).abs() < 1e-9, "{found:?}");
        assert_eq!((found.worst.1, found.n_beyond), (0, 1));
        assert_eq!(found.beyond.first(), Some(&(0..1)));
        assert_eq!(running(&[], &r, &r, BF16, None), Running::default());
    }

    #[test]
    fn what_was_rounded_before_the_partials_is_of_the_size_of_row_and_column() {
        let r: Vec<f32> = (0..32).map(|i| if i == 16 { 0.0 } else { 2.0 }).collect();
        let c: Vec<f32> = r.iter().map(|x| if *x == 0.0 { 0.0625 } else { *x }).collect();
        let of = |x: &[f32]| Whole { shape: vec![2, 16], ..whole(&[x], Node::Part(0)) };
        let (r, c) = (of(&r), of(&c));
        assert_eq!(running(&[], &r, &c, BF16, None).worst, (256.0, 16));
        // All that is there is 2 in its row. So is each column, the first one of the one row that has it.
        let found = running(&[], &r, &c, BF16, Some(&Sizes::of(&r, BF16)));
        assert_eq!(found.worst, (16.0 / (0.0625 + 2.0), 16));
    }

    #[test]
    fn a_number_that_is_not_finite_on_one_side_is_beyond_any_bound() {
        let of = |x: &[f32]| whole(&[x], Node::Part(0));
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let found = running(&[], &of(&[nan, inf, 1.0, inf]), &of(&[nan, inf, nan, -inf]), BF16, None);
        assert_eq!((found.worst, found.n_beyond), ((f64::INFINITY, 2), 2));
        assert_eq!(found.beyond.first(), Some(&(2..4)));
    }
}
