//! The errors of a row in rounding units: the loop that every number of two tensors that differ goes through.

use crate::{
    real::{Real, add, largest, raise, total},
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
#[derive(Debug, Clone)]
pub(crate) struct Columns<T> {
    pub(crate) second: Vec<T>,
    pub(crate) fourth: Vec<T>,
    pub(crate) near: Vec<T>,
    pub(crate) clipped: Vec<T>,
    pub(crate) share: Vec<T>,
}

impl<T: Real> Columns<T> {
    pub(crate) fn new(n: usize) -> Self {
        let sums = || vec![T::default(); n];
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
/// e = (c − r)/u, w = |r| + a·ĉ + Σ|p| + η/u, near w = 0.15·|r| + …, q = e/w, v = e/near w, x = r/w, and what a factor on the
/// row is fitted to is s = (r + c)/2/(u·w) = x/u + q/2.
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
    /// Σqs and Σs².
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
            let at = i * BLOCK..((i + 1) * BLOCK).min(self.r.len());
            let (second, fourth) = if at.len() == BLOCK {
                self.piece::<BLOCK>(at.start, &mut rest)
            } else {
                let pieces = at.step_by(LANES).map(|at| self.piece::<LANES>(at, &mut rest));
                pieces.fold((0.0, 0.0), |sum, x| (sum.0 + x.0, sum.1 + x.1))
            };
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
        let piece = Piece::of(&r, &c, &of(self.p).unwrap_or([T::default(); N]), &columns, &self.units);
        if let (Some(q), Some(v)) = (self.q[at..].first_chunk_mut::<N>(), self.v[at..].first_chunk_mut::<N>())
        {
            piece.store(q, v);
        }
        let [second, fourth, near, clipped, share] = self.sums.each().map(|sums| &mut sums[at..]);
        let (q, v, x, clip) = (&piece.q, &piece.v, &piece.x, self.units.clip);
        let low = T::default() - clip;
        add_to(second, q, |q| q * q);
        add_to(fourth, q, |q| (q * q) * (q * q));
        add_to(near, v, |v| v * v);
        add_to(clipped, q, |q| q.larger(low).smaller(clip));
        add_to(share, x, |x| x);
        piece.rest(&self.units, rest);
        let (mut second, mut fourth) = ([T::default(); LANES], [T::default(); LANES]);
        add(&mut second, q, q, |q, _| q * q);
        add(&mut fourth, q, q, |q, _| (q * q) * (q * q));
        (total(&second), total(&fourth))
    }
}

/// q, v and x of neighbouring numbers.
struct Piece<T, const N: usize> {
    q: [T; N],
    v: [T; N],
    x: [T; N],
}

impl<T: Real, const N: usize> Piece<T, N> {
    #[inline(always)]
    fn of(r: &[T; N], c: &[T; N], p: &[T; N], columns: &[T; N], units: &Scale<T>) -> Self {
        let (near_share, one, inverse) = (T::of(NEAR), T::of(1.0), T::of(1.0 / units.roundoff.wide()));
        let Scale { power, scale, underflow, .. } = *units;
        let none = [T::default(); N];
        let mut piece = Self { q: none, v: none, x: none };
        for j in 0..N {
            let (r, c) = (r[j] * power, c[j] * power);
            let e = (c - r) * inverse;
            let base = columns[j] * scale + (p[j] * power + underflow);
            let (w, near_w) = (r.abs() + base, r.abs() * near_share + base);
            let both = one / (w * near_w);
            let (per_w, per_near) = (near_w * both, w * both);
            piece.q[j] = e * per_w;
            piece.v[j] = e * per_near;
            piece.x[j] = r * per_w;
        }
        piece
    }

    #[inline(always)]
    fn store(&self, q: &mut [T; N], v: &mut [T; N]) {
        q.iter_mut().zip(&self.q).for_each(|(to, q)| *to = q.abs());
        v.iter_mut().zip(&self.v).for_each(|(to, v)| *to = v.abs());
    }

    #[inline(always)]
    fn rest(&self, units: &Scale<T>, rest: &mut Rest<T>) {
        let (zero, half, judged) = (T::default(), T::of(0.5), T::of(JUDGED));
        let (low, inverse) = (zero - units.clip, T::of(1.0 / units.roundoff.wide()));
        let (q, v, x) = (&self.q, &self.v, &self.x);
        add(&mut rest.slope, q, x, |q, x| q * (x * inverse + q * half));
        add(&mut rest.energy, q, x, |q, x| {
            let s = x * inverse + q * half;
            s * s
        });
        add(&mut rest.clipped, q, q, |q, _| {
            let flat = q.larger(low).smaller(units.clip);
            flat * flat
        });
        add(&mut rest.share, x, x, |x, _| x * x);
        add(&mut rest.near, v, v, |v, _| v * v);
        raise(&mut rest.largest, q, q, |q, _| q.abs());
        raise(&mut rest.near_largest, q, v, |q, v| if q.abs() > judged { v.abs() } else { zero });
    }
}

/// Adds a number for each place to sums by column.
#[inline(always)]
fn add_to<T: Real, const N: usize>(sums: &mut [T], a: &[T; N], of: impl Fn(T) -> T) {
    if let Some(sums) = sums.first_chunk_mut::<N>() {
        for j in 0..N {
            sums[j] = sums[j] + of(a[j]);
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
        found.slope = [found.slope[0] + total(&self.slope), found.slope[1] + total(&self.energy)];
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
                raise(&mut maxima, q, q, |q, _| q);
                add(&mut squares, q, q, |q, _| q * q);
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

/// The means of `of` neighbours, a power of two, found in halves; both slices are used up. Nothing is left of the last
/// ones that do not fill a chunk.
pub(crate) struct Means<'q, T> {
    pub(crate) values: &'q mut [T],
    pub(crate) scratch: &'q mut [T],
    pub(crate) of: usize,
}

impl<'q, T: Real> Loop for Means<'q, T> {
    type Found = &'q [T];

    #[inline(always)]
    fn run(self) -> &'q [T] {
        let (mut from, mut to, half) = (self.values, self.scratch, T::of(0.5));
        for _ in 0..self.of.ilog2() {
            let n = from.len() / 2;
            for (mean, [a, b]) in to.iter_mut().zip(from.as_chunks::<2>().0) {
                *mean = (*a + *b) * half;
            }
            (from, to) = (&mut to[..n], from);
        }
        from
    }
}
