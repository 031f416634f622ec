//! The errors of a row in rounding units: the loop that every number of two tensors that differ goes through.

use crate::{
    real::{Real, largest, total},
    vectors::{LANES, Loop},
};

/// Numbers of a block.
pub(crate) const BLOCK: usize = 128;

/// Blocks whose sums are kept in lanes of the row's own format, before they are gathered in f64.
const GATHERED: usize = 16;

/// What v counts of a number's own size.
const NEAR: f64 = 0.15;
/// |q| from which v is judged.
const JUDGED: f64 = 6.0;

/// Sums over the rows of neighbouring columns: of q², q⁴, v², q clipped and x.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Columns<T> {
    pub(crate) second: [T; LANES],
    pub(crate) fourth: [T; LANES],
    pub(crate) near: [T; LANES],
    pub(crate) clipped: [T; LANES],
    pub(crate) share: [T; LANES],
}

impl<T: Real> Columns<T> {
    /// Adds those of other rows.
    pub(crate) fn add<U: Real>(&mut self, other: &Columns<U>) {
        let add = |to: &mut [T; LANES], from: &[U; LANES]| {
            to.iter_mut().zip(from).for_each(|(sum, x)| *sum = *sum + T::of(x.wide()));
        };
        add(&mut self.second, &other.second);
        add(&mut self.fourth, &other.fourth);
        add(&mut self.near, &other.near);
        add(&mut self.clipped, &other.clipped);
        add(&mut self.share, &other.share);
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
    pub(crate) roundoff: T,
    /// k.
    pub(crate) power: T,
    /// a·k.
    pub(crate) scale: T,
    /// η·k/u.
    pub(crate) underflow: T,
    /// Where q is clipped.
    pub(crate) clip: T,
    pub(crate) sums: &'r mut [Columns<T>],
    /// |q| and |v|.
    pub(crate) q: &'r mut [T],
    pub(crate) v: &'r mut [T],
    /// Σq² and Σq⁴ of each block.
    pub(crate) blocks: &'r mut [[T; 2]],
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

/// Adds what the lanes hold and empties them.
#[inline(always)]
fn gather<T: Real>(found: &mut Found, lanes: [&mut [T; LANES]; 5]) {
    let [near, qs, ss, clipped, share] = lanes.map(|lanes| total(std::mem::take(lanes)));
    found.near += near;
    found.slope = [found.slope[0] + qs, found.slope[1] + ss];
    found.clipped += clipped;
    found.share += share;
}

impl<T: Real> Loop for Errors<'_, T> {
    type Found = Found;

    #[inline(always)]
    fn run(self) -> Found {
        let mut found = Found::default();
        let zero = T::default();
        let lanes = [zero; LANES];
        let (mut maxima, mut near_maxima) = (lanes, lanes);
        let (half, near_share, judged) = (T::of(0.5), T::of(NEAR), T::of(JUDGED));
        let (one, inverse) = (T::of(1.0), T::of(1.0 / self.roundoff.wide()));
        let low = zero - self.clip;
        let (mut near, mut qs, mut ss, mut clipped, mut share) = (lanes, lanes, lanes, lanes, lanes);
        let mut p = self.p.chunks(BLOCK);
        let rows = self.r.chunks(BLOCK).zip(self.c.chunks(BLOCK)).zip(self.columns.chunks(BLOCK));
        let out = self.q.chunks_mut(BLOCK).zip(self.v.chunks_mut(BLOCK));
        let sums = self.sums.chunks_mut(BLOCK / LANES).zip(self.blocks);
        for (at, ((((r, c), columns), (q_out, v_out)), (sums, block))) in rows.zip(out).zip(sums).enumerate()
        {
            if at % GATHERED == 0 {
                gather(&mut found, [&mut near, &mut qs, &mut ss, &mut clipped, &mut share]);
            }
            let p = p.next().unwrap_or_default().as_chunks::<LANES>().0;
            let (mut second, mut fourth) = (lanes, lanes);
            let vectors = r.as_chunks::<LANES>().0.iter().zip(c.as_chunks::<LANES>().0);
            let vectors = vectors.zip(columns.as_chunks::<LANES>().0);
            let out = q_out.as_chunks_mut::<LANES>().0.iter_mut().zip(v_out.as_chunks_mut::<LANES>().0);
            for (n, ((((r, c), column), (q_out, v_out)), sums)) in vectors.zip(out).zip(sums).enumerate() {
                let p = p.get(n).unwrap_or(&lanes);
                for i in 0..LANES {
                    let (r, c) = (r[i] * self.power, c[i] * self.power);
                    let e = (c - r) * inverse;
                    let base = column[i] * self.scale + (p[i] * self.power + self.underflow);
                    let (w, near_w) = (r.abs() + base, r.abs() * near_share + base);
                    let both = one / (w * near_w);
                    let (per_w, per_near) = (near_w * both, w * both);
                    let (q, v, x) = (e * per_w, e * per_near, r * per_w);
                    let s = x * inverse + q * half;
                    let (q2, v2) = (q * q, v * v);
                    let q4 = q2 * q2;
                    let flat = q.larger(low).smaller(self.clip);
                    second[i] = second[i] + q2;
                    fourth[i] = fourth[i] + q4;
                    near[i] = near[i] + v2;
                    qs[i] = qs[i] + q * s;
                    ss[i] = ss[i] + s * s;
                    clipped[i] = clipped[i] + flat * flat;
                    share[i] = share[i] + x * x;
                    sums.second[i] = sums.second[i] + q2;
                    sums.fourth[i] = sums.fourth[i] + q4;
                    sums.near[i] = sums.near[i] + v2;
                    sums.clipped[i] = sums.clipped[i] + flat;
                    sums.share[i] = sums.share[i] + x;
                    let (q, v) = (q.abs(), v.abs());
                    maxima[i] = maxima[i].larger(q);
                    near_maxima[i] = near_maxima[i].larger(if q > judged { v } else { zero });
                    q_out[i] = q;
                    v_out[i] = v;
                }
            }
            let (second, fourth) = (total(second), total(fourth));
            *block = [T::of(second), T::of(fourth)];
            found.second += second;
            found.fourth += fourth;
        }
        gather(&mut found, [&mut near, &mut qs, &mut ss, &mut clipped, &mut share]);
        found.largest = largest(maxima).wide();
        found.near_largest = largest(near_maxima).wide();
        found
    }
}

/// The largest of some |q| and Σq².
pub(crate) struct Piece<'q, T> {
    pub(crate) q: &'q [T],
}

impl<T: Real> Loop for Piece<'_, T> {
    type Found = (f64, f64);

    #[inline(always)]
    fn run(self) -> (f64, f64) {
        let (mut maxima, mut second) = ([T::default(); LANES], 0.0);
        for q in self.q.chunks(GATHERED * BLOCK) {
            let mut squares = [T::default(); LANES];
            let (vectors, rest) = q.as_chunks::<LANES>();
            for q in vectors {
                for i in 0..LANES {
                    maxima[i] = maxima[i].larger(q[i]);
                    squares[i] = squares[i] + q[i] * q[i];
                }
            }
            for (i, q) in rest.iter().enumerate() {
                maxima[i] = maxima[i].larger(*q);
                squares[i] = squares[i] + *q * *q;
            }
            second += total(squares);
        }
        (largest(maxima).wide(), second)
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
