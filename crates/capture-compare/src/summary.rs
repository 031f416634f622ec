//! What is in one record: counts by class, statistics of its finite numbers, a histogram, its first numbers.
//!
//! Two passes over chunks, so that memory does not grow with the record. Sums are f64 over fixed blocks, and pairwise
//! over the blocks; they are taken of numbers divided by a power of two near the largest magnitude, so that neither
//! squares nor sums overflow.

use crate::{
    decode::{self, decode_into},
    run::{Entry, FileError, Run},
};
use serde::{Deserialize, Serialize};

/// Statistics of a record's numbers; complex elements count as two, real and imaginary part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Numbers.
    pub n: u64,
    /// NaN among them.
    pub nan: u64,
    /// Positive infinities.
    pub pos_inf: u64,
    /// Negative infinities.
    pub neg_inf: u64,
    /// Zeros of both signs.
    pub zero: u64,
    /// Of the finite numbers, where there are any.
    #[serde(flatten)]
    pub finite: Option<Finite>,
    /// The first numbers, in C order.
    pub first: Vec<f64>,
}

/// Statistics of the finite numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finite {
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Root of the mean square.
    pub rms: f64,
    /// Largest magnitude.
    pub absmax: f64,
    /// How many lie in each of equal parts, [`BINS`] from `min` to `max` unless other ones were asked for; all in the
    /// first where those are equal.
    pub histogram: Vec<u64>,
}

/// Parts of a histogram.
pub const BINS: usize = 16;

impl Summary {
    /// How many numbers are finite.
    #[must_use]
    pub fn n_finite(&self) -> u64 {
        self.n - self.nan - self.pos_inf - self.neg_inf
    }
}

/// How many of the first numbers are kept.
pub const FIRST: usize = 8;

/// Numbers of one block of a sum. A chunk is a multiple of it, so that blocks do not depend on how a record is read.
const BLOCK: usize = 1024;
/// Bytes of one chunk: whole granules of every dtype, and whole blocks of their numbers.
const CHUNK: usize = 3 << 18;

/// Reads a record and sums it up.
pub fn summarise(run: &Run, entry: &Entry) -> Result<Summary, FileError> {
    let each = |take: &mut dyn FnMut(&[f64])| for_each_chunk(run, entry, take);
    let mut summary = classes(&each)?;
    let n = summary.n_finite();
    if let Some(found) = &mut summary.finite {
        let range = (found.min, found.max);
        spread(&each, found, range, n, BINS)?;
    }
    Ok(summary)
}

/// Hands over all numbers, in chunks that are whole blocks but for the last; called once for each pass.
pub(crate) type Chunks<'c, E> = &'c dyn Fn(&mut dyn FnMut(&[f64])) -> Result<(), E>;

/// The first pass: classes, extremes and first numbers. Of the finite numbers only those are there.
pub(crate) fn classes<E>(each: Chunks<'_, E>) -> Result<Summary, E> {
    let mut summary =
        Summary { n: 0, nan: 0, pos_inf: 0, neg_inf: 0, zero: 0, finite: None, first: Vec::new() };
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    each(&mut |numbers| {
        let missing = FIRST - summary.first.len();
        summary.first.extend(numbers.iter().take(missing));
        summary.n += numbers.len() as u64;
        for x in numbers {
            if x.is_finite() {
                summary.zero += u64::from(*x == 0.0);
                min = min.min(*x);
                max = max.max(*x);
            } else if x.is_nan() {
                summary.nan += 1;
            } else if *x > 0.0 {
                summary.pos_inf += 1;
            } else {
                summary.neg_inf += 1;
            }
        }
    })?;
    if min <= max {
        let absmax = max.max(-min);
        summary.finite = Some(Finite { min, max, mean: 0.0, rms: 0.0, absmax, histogram: Vec::new() });
    }
    Ok(summary)
}

/// The second pass: mean, rms and histogram over `bins` parts of a range, of `n` finite numbers.
pub(crate) fn spread<E>(
    each: Chunks<'_, E>,
    found: &mut Finite,
    (low, high): (f64, f64),
    n: u64,
    bins: usize,
) -> Result<(), E> {
    let scale = power_of_two_near(found.absmax);
    let (low, width) = (low / scale, high / scale - low / scale);
    let per_bin = if width > 0.0 { bins as f64 / width } else { 0.0 };
    let (mut sum, mut squares) = (Pairwise::default(), Pairwise::default());
    found.histogram = vec![0; bins];
    each(&mut |numbers| {
        for block in numbers.chunks(BLOCK) {
            let (mut s, mut q) = (0.0, 0.0);
            for x in block.iter().filter(|x| x.is_finite()).map(|x| x / scale) {
                s += x;
                q += x * x;
                // Never negative, and a float too large saturates.
                found.histogram[(((x - low) * per_bin) as usize).min(bins - 1)] += 1;
            }
            sum.add(s);
            squares.add(q);
        }
    })?;
    let n = n as f64;
    (found.mean, found.rms) = (sum.total() / n * scale, (squares.total() / n).sqrt() * scale);
    Ok(())
}

/// 2^e with |x| in [2^e, 2^(e+1)); 1 for 0, and the smallest normal number for what is below it.
fn power_of_two_near(x: f64) -> f64 {
    const EXPONENT: u64 = 0x7ff << 52;
    if x == 0.0 { 1.0 } else { f64::from_bits(x.to_bits() & EXPONENT).max(f64::MIN_POSITIVE) }
}

/// A pairwise sum of a stream: partial sums of 1, 2, 4, … blocks, as the bits of a counter.
#[derive(Default)]
struct Pairwise {
    count: u64,
    partial: Vec<f64>,
}

impl Pairwise {
    fn add(&mut self, mut sum: f64) {
        for _ in 0..self.count.trailing_ones() {
            sum += self.partial.pop().unwrap_or_default();
        }
        self.partial.push(sum);
        self.count += 1;
    }

    fn total(&self) -> f64 {
        self.partial.iter().rev().fold(0.0, |total, partial| total + partial)
    }
}

/// Hands over all numbers of a record, chunk by chunk.
fn for_each_chunk(run: &Run, entry: &Entry, take: &mut dyn FnMut(&[f64])) -> Result<(), FileError> {
    let (elements, n_bytes) = decode::granule(entry.dtype);
    let per_chunk = CHUNK / n_bytes * elements * decode::numbers_per_element(entry.dtype);
    let mut numbers = vec![0.0; per_chunk];
    run.for_each_chunk(entry, CHUNK, |bytes| {
        let written = decode_into(entry.dtype, bytes, &mut numbers);
        take(&numbers[..written]);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_summed_before_pairs_of_pairs() {
        let mut sum = Pairwise::default();
        for x in [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0] {
            sum.add(x);
        }
        assert_eq!(sum.partial, [10.0, 11.0, 7.0]);
        assert_eq!(sum.total(), 28.0);
        // 2^22 times 0.1: one after the other the error is 1e-5 here.
        let mut sum = Pairwise::default();
        (0..1 << 22).for_each(|_| sum.add(0.1));
        assert!((sum.total() - 419_430.4).abs() < 1e-9);
    }

    #[test]
    fn powers_of_two_are_near() {
        assert_eq!(power_of_two_near(0.0), 1.0);
        assert_eq!(power_of_two_near(1.0), 1.0);
        assert_eq!(power_of_two_near(7.9), 4.0);
        assert_eq!(power_of_two_near(0.3), 0.25);
        assert_eq!(power_of_two_near(f64::MAX), 2f64.powi(1023));
        assert_eq!(power_of_two_near(5e-324), f64::MIN_POSITIVE);
    }
}
