//! The errors of a row in rounding units: the loop that every number of two tensors that differ goes through.

use crate::{
    aligned::Aligned,
    real::{Real, add_products, fold, largest, total},
    vectors::{self, LANES, Loop},
};

/// Numbers of a block.
pub(crate) const BLOCK: usize = 128;

/// Blocks whose sums are kept in lanes of the row's own format, before they are gathered in f64.
const GATHERED: usize = 16;

/// What v counts of a number's own size.
const NEAR: f64 = 0.15;
/// |q| from which v is judged.
const JUDGED: f64 = 6.0;

/// Sums over rows by column: of q², q⁴, v², q clipped and x.
#[derive(Debug)]
pub(crate) struct Columns<T> {
    pub(crate) second: Aligned<T>,
    pub(crate) fourth: Aligned<T>,
    pub(crate) near: Aligned<T>,
    pub(crate) clipped: Aligned<T>,
    pub(crate) share: Aligned<T>,
}

impl<T: Real> Columns<T> {
    pub(crate) fn new(n: usize) -> Self {
        let sums = || Aligned::new(n);
        Self { second: sums(), fourth: sums(), near: sums(), clipped: sums(), share: sums() }
    }

    fn each(&mut self) -> [&mut [T]; 5] {
        [&mut self.second, &mut self.fourth, &mut self.near, &mut self.clipped, &mut self.share]
    }

    /// Takes over what others hold, which are left at zero.
    pub(crate) fn gather<U: Real>(&mut self, others: &mut Columns<U>) {
        for (sums, others) in self.each().into_iter().zip(others.each()) {
            vectors::run(Gather { sums, others });
        }
    }
}

struct Gather<'s, T, U> {
    sums: &'s mut [T],
    others: &'s mut [U],
}

impl<T: Real, U: Real> Loop for Gather<'_, T, U> {
    type Found = ();

    #[inline(always)]
    fn run(self) {
        for (sum, x) in self.sums.iter_mut().zip(self.others) {
            *sum = *sum + T::of(x.wide());
            *x = U::default();
        }
    }
}

/// One row, in whole vectors. With a the row's scale, k the power of two next to 1/a and all numbers taken times k:
/// w = |r| + a·ĉ + Σ|p| + η/u, near w = 0.15·|r| + …, q = (c − r)/(u·w), v = (c − r)/(u·near w), x = r/(u·w), and what a factor
/// on the row is fitted to is s/2 with s = (r + c)/(u·w).
pub(crate) struct Errors<'r, T> {
    pub(crate) r: &'r [T],
    pub(crate) c: &'r [T],
    /// Empty where no side is a sum.
    pub(crate) p: &'r [T],
    /// ĉ.
    pub(crate) columns: &'r [T],
    pub(crate) units: Scale<T>,
    pub(crate) sums: &'r mut Columns<T>,
    /// |q| and |v|.
    pub(crate) q: &'r mut [T],
    pub(crate) v: &'r mut [T],
    /// Σq² and Σq⁴ of each block.
    pub(crate) blocks: &'r mut [[T; 2]],
}

/// What a row's errors are measured in.
#[derive(Clone, Copy)]
pub(crate) struct Scale<T> {
    pub(crate) roundoff: T,
    /// k.
    pub(crate) power: T,
    /// a·k.
    pub(crate) scale: T,
    /// η·k/u.
    pub(crate) underflow: T,
    /// Where q is clipped.
    pub(crate) clip: T,
}

/// What the row adds up to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Found {
    /// Σq².
    pub(crate) second: f64,
    /// Σq⁴.
    pub(crate) fourth: f64,
    /// Σv².
    pub(crate) near: f64,
    /// Σqs/2 and Σs²/4.
    pub(crate) slope: [f64; 2],
    /// Σ of q² clipped.
    pub(crate) clipped: f64,
    /// Σx².
    pub(crate) share: f64,
    /// Largest |q|.
    pub(crate) largest: f64,
    /// Largest |v| where |q| is above 6.
    pub(crate) near_largest: f64,
}

impl<T: Real> Loop for Errors<'_, T> {
    type Found = Found;

    /// A block at a time, in loops short enough for the compiler to keep each in vectors.
    #[inline(always)]
    fn run(mut self) -> Found {
        let mut found = Found::default();
        let mut rest = Rest::default();
        for i in 0..self.blocks.len() {
            let (mut at, end) = (i * BLOCK, ((i + 1) * BLOCK).min(self.r.len()));
            let (mut second, mut fourth) = (0.0, 0.0);
            if end - at == BLOCK {
                (second, fourth) = self.piece::<BLOCK>(at, &mut rest);
            } else {
                while at < end {
                    let found = self.piece::<LANES>(at, &mut rest);
                    (second, fourth) = (second + found.0, fourth + found.1);
                    at += LANES;
                }
            }
            self.blocks[i] = [T::of(second), T::of(fourth)];
            (found.second, found.fourth) = (found.second + second, found.fourth + fourth);
            if i % GATHERED == GATHERED - 1 {
                rest.gather(&mut found);
            }
        }
        rest.gather(&mut found);
        found
    }
}

impl<T: Real> Errors<'_, T> {
    /// Σq² and Σq⁴ of so many numbers from `at` on.
    #[inline(always)]
    fn piece<const N: usize>(&mut self, at: usize, rest: &mut Rest<T>) -> (f64, f64) {
        let of = |numbers: &[T]| numbers.get(at..).and_then(|n| n.first_chunk::<N>()).copied();
        let (Some(r), Some(c), Some(columns)) = (of(self.r), of(self.c), of(self.columns)) else {
            return (0.0, 0.0);
        };
        let Scale { power, scale, underflow, .. } = self.units;
        let mut base = each(&columns, |column| column.times(scale, underflow));
        if let Some(p) = of(self.p) {
            for j in 0..N {
                base[j] = p[j].times(power, base[j]);
            }
        }
        let piece = Piece::of(&r, &c, &base, &self.units);
        let (sizes, near_sizes) = (&mut self.q[at..], &mut self.v[at..]);
        if let (Some(q), Some(v)) = (sizes.first_chunk_mut::<N>(), near_sizes.first_chunk_mut::<N>()) {
            piece.store(q, v);
            fold(&mut rest.largest, q, q, |max, q, _| max.larger(q));
            let judged = T::of(JUDGED);
            fold(&mut rest.near_largest, q, v, |max, q, v| if q > judged { max.larger(v) } else { max });
        }
        let [second, fourth, near, clipped, share] = self.sums.each();
        let Piece { q, v, x, s } = &piece;
        let (squares, flat) = (each(q, |q| q * q), piece.clipped(self.units.clip));
        add_to(second, at, &squares, |sum, q2| sum + q2);
        add_to(fourth, at, &squares, |sum, q2| q2.times(q2, sum));
        add_to(near, at, v, |sum, v| v.times(v, sum));
        add_to(clipped, at, &flat, |sum, q| sum + q);
        add_to(share, at, x, |sum, x| sum + x);
        add_products(&mut rest.slope, q, s);
        add_products(&mut rest.energy, s, s);
        add_products(&mut rest.clipped, &flat, &flat);
        add_products(&mut rest.share, x, x);
        add_products(&mut rest.near, v, v);
        let [mut second, mut fourth] = [[T::default(); LANES]; 2];
        fold(&mut second, &squares, &squares, |sum, q2, _| sum + q2);
        add_products(&mut fourth, &squares, &squares);
        (total(&second), total(&fourth))
    }
}

/// q, v, x and s of neighbouring numbers.
struct Piece<T, const N: usize> {
    q: [T; N],
    v: [T; N],
    x: [T; N],
    s: [T; N],
}

impl<T: Real, const N: usize> Piece<T, N> {
    /// `base` is what w has beside |r|. One division makes the inverses of w and near w.
    #[inline(always)]
    fn of(r: &[T; N], c: &[T; N], base: &[T; N], units: &Scale<T>) -> Self {
        let (near_share, inverse, power) = (T::of(NEAR), T::of(1.0 / units.roundoff.wide()), units.power);
        let none = [T::default(); N];
        let mut piece = Self { q: none, v: none, x: none, s: none };
        for j in 0..N {
            let (r, c) = (r[j] * power, c[j] * power);
            let (w, near_w) = (r.abs() + base[j], r.abs().times(near_share, base[j]));
            let both = inverse / (w * near_w);
            let (per_w, e) = (near_w * both, c - r);
            piece.q[j] = e * per_w;
            piece.v[j] = e * (w * both);
            piece.x[j] = r * per_w;
            piece.s[j] = (r + c) * per_w;
        }
        piece
    }

    #[inline(always)]
    fn store(&self, q: &mut [T; N], v: &mut [T; N]) {
        for j in 0..N {
            (q[j], v[j]) = (self.q[j].abs(), self.v[j].abs());
        }
    }

    /// q, no further from zero than so much.
    #[inline(always)]
    fn clipped(&self, most: T) -> [T; N] {
        let least = T::default() - most;
        each(&self.q, |q| q.larger(least).smaller(most))
    }
}

/// A number for each.
#[inline(always)]
fn each<T: Real, const N: usize>(a: &[T; N], of: impl Fn(T) -> T) -> [T; N] {
    let mut all = [T::default(); N];
    for j in 0..N {
        all[j] = of(a[j]);
    }
    all
}

/// Takes a number for each place from `at` on into sums by column.
#[inline(always)]
fn add_to<T: Real, const N: usize>(sums: &mut [T], at: usize, a: &[T; N], of: impl Fn(T, T) -> T) {
    if let Some(sums) = sums[at..].first_chunk_mut::<N>() {
        for j in 0..N {
            sums[j] = of(sums[j], a[j]);
        }
    }
}

/// Sums and maxima in lanes that need not be known block by block.
struct Rest<T> {
    near: [T; LANES],
    slope: [T; LANES],
    energy: [T; LANES],
    clipped: [T; LANES],
    share: [T; LANES],
    largest: [T; LANES],
    near_largest: [T; LANES],
}

impl<T: Real> Default for Rest<T> {
    fn default() -> Self {
        let [near, slope, energy, clipped, share, largest, near_largest] = [[T::default(); LANES]; 7];
        Self { near, slope, energy, clipped, share, largest, near_largest }
    }
}

impl<T: Real> Rest<T> {
    /// Adds what the lanes hold and empties them.
    #[inline(always)]
    fn gather(&mut self, found: &mut Found) {
        found.near += total(&self.near);
        found.slope[0] += total(&self.slope) / 2.0;
        found.slope[1] += total(&self.energy) / 4.0;
        found.clipped += total(&self.clipped);
        found.share += total(&self.share);
        found.largest = found.largest.max(largest(&self.largest).wide());
        found.near_largest = found.near_largest.max(largest(&self.near_largest).wide());
        *self = Self::default();
    }
}

/// The largest of some |q| and Σq².
pub(crate) struct Stretch<'q, T> {
    pub(crate) q: &'q [T],
}

impl<T: Real> Loop for Stretch<'_, T> {
    type Found = (f64, f64);

    #[inline(always)]
    fn run(self) -> (f64, f64) {
        let (mut maxima, mut second) = ([T::default(); LANES], 0.0);
        for q in self.q.chunks(GATHERED * BLOCK) {
            let mut squares = [T::default(); LANES];
            let (vectors, rest) = q.as_chunks::<LANES>();
            for q in vectors {
                fold(&mut maxima, q, q, |max, q, _| max.larger(q));
                add_products(&mut squares, q, q);
            }
            for (i, q) in rest.iter().enumerate() {
                maxima[i] = maxima[i].larger(*q);
                squares[i] = squares[i] + *q * *q;
            }
            second += total(&squares);
        }
        (largest(&maxima).wide(), second)
    }
}

/// The means of `of` neighbours, a power of two no larger than a block, found in halves. Nothing is left of the last ones that
/// do not fill a chunk.
pub(crate) struct Means<'q, T> {
    pub(crate) values: &'q [T],
    pub(crate) means: &'q mut [T],
    pub(crate) of: usize,
}

impl<'q, T: Real> Loop for Means<'q, T> {
    type Found = &'q [T];

    #[inline(always)]
    fn run(self) -> &'q [T] {
        let Self { values, means, of } = self;
        for (values, means) in values.chunks(BLOCK).zip(means.chunks_mut(BLOCK / of)) {
            let mut halves = [T::default(); BLOCK];
            halves[..values.len()].copy_from_slice(values);
            for _ in 0..of.ilog2() {
                let from = halves;
                // The upper half is of no use; of a fixed number of places vectors are made.
                for j in 0..BLOCK / 2 {
                    halves[j] = (from[2 * j] + from[2 * j + 1]) * T::of(0.5);
                }
            }
            let n = values.len() / of;
            means[..n].copy_from_slice(&halves[..n]);
        }
        &means[..values.len() / of]
    }
}
