//! Statistics of a tensor's numbers: counts by class, and of the finite ones extremes, mean and rms.
//!
//! Sums are f64: within a block of 1,024 numbers in [`LANES`] lanes that are then added in halves, and pairwise over the
//! blocks. Where an f64's squares would overflow or vanish, the numbers are gone over once more, divided by a power of two
//! near the largest magnitude.

use crate::decode::{self, decode_into};
use crate::vectors::{self, LANES, Loop};
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

/// Statistics of a record's numbers; complex elements count as two, real and imaginary part.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stats {
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
}

/// Statistics of the finite numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
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
}

impl Stats {
    /// Whether all this can be said of a tensor of so many numbers.
    #[must_use]
    pub fn is_of(&self, n: u64) -> bool {
        let not_finite = [self.nan, self.pos_inf, self.neg_inf].into_iter().try_fold(0, u64::checked_add);
        let n_finite = not_finite.and_then(|not_finite| n.checked_sub(not_finite));
        let fits = |n_finite: u64| self.zero <= n_finite && (n_finite > 0) == self.finite.is_some();
        self.n == n && n_finite.is_some_and(fits)
    }
}

/// Numbers of one block of a sum.
const BLOCK: usize = 1024;

/// Magnitudes of f64 whose squares, and sums of these, are far from both ends of the format.
const SAFE: std::ops::Range<f64> = 1e-120..1e120;

/// Statistics of the bytes that `each` hands over, in chunks that are whole blocks but for the last; asked twice for
/// numbers near the ends of f64.
pub(super) fn of(dtype: Dtype, each: impl Fn(&mut dyn FnMut(&[u8]))) -> Stats {
    let pass = |scale: f64| {
        let mut totals = Totals::default();
        let mut numbers = [0.0; BLOCK];
        let (elements, granule) = decode::granule(dtype);
        let block_bytes = BLOCK / (elements * decode::numbers_per_element(dtype)) * granule;
        each(&mut |bytes| {
            for block in bytes.chunks(block_bytes) {
                let n = decode_into(dtype, block, &mut numbers);
                totals.add(&vectors::run(Block { numbers: &mut numbers, n, scale }));
            }
        });
        totals
    };
    let totals = pass(1.0);
    let absmax = totals.absmax();
    let (totals, scale) = match absmax {
        Some(x) if x > 0.0 && !SAFE.contains(&x) => {
            let scale = power_of_two_near(x);
            (pass(scale), scale)
        }
        _ => (totals, 1.0),
    };
    totals.stats(scale)
}

/// 2^e with |x| in [2^e, 2^(e+1)), and the smallest normal number for what is below it.
fn power_of_two_near(x: f64) -> f64 {
    const EXPONENT: u64 = 0x7ff << 52;
    f64::from_bits(x.to_bits() & EXPONENT).max(f64::MIN_POSITIVE)
}

/// What one block, or all of them, come to.
struct Counts {
    nan: u64,
    pos_inf: u64,
    neg_inf: u64,
    zero: u64,
    min: f64,
    max: f64,
}

/// One block of numbers, and how many there are.
struct Block<'b> {
    numbers: &'b mut [f64; BLOCK],
    n: usize,
    scale: f64,
}

struct Found {
    n: usize,
    counts: Counts,
    sum: f64,
    squares: f64,
}

impl Loop for Block<'_> {
    type Found = Found;

    #[inline(always)]
    fn run(self) -> Found {
        let Self { numbers, n, scale } = self;
        // What is missing of the last block is NaN, which counts in nothing but its own number.
        for x in &mut numbers[n..] {
            *x = f64::NAN;
        }
        let inverse = 1.0 / scale;
        let (mut sum, mut squares) = ([0.0; LANES], [0.0; LANES]);
        let (mut min, mut max) = ([f64::INFINITY; LANES], [f64::NEG_INFINITY; LANES]);
        let (mut nan, mut pos_inf) = ([0u64; LANES], [0u64; LANES]);
        let (mut neg_inf, mut zero) = ([0u64; LANES], [0u64; LANES]);
        for row in numbers.as_chunks::<LANES>().0 {
            for lane in 0..LANES {
                let x = row[lane];
                let is_finite = x.abs() < f64::INFINITY;
                nan[lane] += u64::from(x.is_nan());
                pos_inf[lane] += u64::from(x == f64::INFINITY);
                neg_inf[lane] += u64::from(x == f64::NEG_INFINITY);
                zero[lane] += u64::from(x == 0.0);
                let low = if is_finite { x } else { f64::INFINITY };
                let high = if is_finite { x } else { f64::NEG_INFINITY };
                min[lane] = if low < min[lane] { low } else { min[lane] };
                max[lane] = if high > max[lane] { high } else { max[lane] };
                let x = if is_finite { x * inverse } else { 0.0 };
                sum[lane] += x;
                squares[lane] += x * x;
            }
        }
        let total = |lanes: [u64; LANES]| lanes.iter().sum::<u64>();
        let counts = Counts {
            nan: total(nan) - (BLOCK - n) as u64,
            pos_inf: total(pos_inf),
            neg_inf: total(neg_inf),
            zero: total(zero),
            min: min.iter().copied().fold(f64::INFINITY, f64::min),
            max: max.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        };
        Found { n, counts, sum: halved(sum), squares: halved(squares) }
    }
}

/// The lanes' sum: the upper half onto the lower one until one is left.
#[inline(always)]
fn halved(mut lanes: [f64; LANES]) -> f64 {
    let mut n = LANES / 2;
    while n > 0 {
        for i in 0..n {
            lanes[i] += lanes[i + n];
        }
        n /= 2;
    }
    lanes[0]
}

struct Totals {
    n: u64,
    counts: Counts,
    sum: Pairwise,
    squares: Pairwise,
}

impl Default for Totals {
    fn default() -> Self {
        let (min, max) = (f64::INFINITY, f64::NEG_INFINITY);
        let counts = Counts { nan: 0, pos_inf: 0, neg_inf: 0, zero: 0, min, max };
        Self { n: 0, counts, sum: Pairwise::default(), squares: Pairwise::default() }
    }
}

impl Totals {
    fn add(&mut self, block: &Found) {
        let (counts, found) = (&mut self.counts, &block.counts);
        self.n += block.n as u64;
        counts.nan += found.nan;
        counts.pos_inf += found.pos_inf;
        counts.neg_inf += found.neg_inf;
        counts.zero += found.zero;
        counts.min = counts.min.min(found.min);
        counts.max = counts.max.max(found.max);
        self.sum.add(block.sum);
        self.squares.add(block.squares);
    }

    /// The largest magnitude of the finite numbers, where there are any.
    fn absmax(&self) -> Option<f64> {
        let Counts { min, max, .. } = self.counts;
        (min <= max).then_some(max.max(-min))
    }

    fn stats(&self, scale: f64) -> Stats {
        let Counts { nan, pos_inf, neg_inf, zero, min, max } = self.counts;
        let n = (self.n - nan - pos_inf - neg_inf) as f64;
        let finite = self.absmax().map(|absmax| Finite {
            // The sign of a zero is not one of its figures.
            min: min + 0.0,
            max: max + 0.0,
            mean: self.sum.total() / n * scale + 0.0,
            rms: (self.squares.total() / n).sqrt() * scale,
            absmax: absmax + 0.0,
        });
        Stats { n: self.n, nan, pos_inf, neg_inf, zero, finite }
    }
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
