//! The first look at a row: how large its numbers are and how far apart.

use crate::{
    float::Float,
    real::{Line, Real, largest, total},
    vectors::{LANES, Loop},
};
use std::ops::BitOr;

/// Numbers whose sums are kept in lanes of the row's own format, before they are gathered in f64.
const SPAN: usize = 128 * LANES;

/// A row of the reference.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowScale {
    /// a_i.
    pub(crate) scale: f64,
    /// Largest |c − r|.
    pub(crate) error: f64,
    /// Σ|r| and Σ|c|: what rows that repeat each other share.
    pub(crate) sums: [f64; 2],
    /// Σr² and Σe².
    pub(crate) squares: [f64; 2],
    /// Finite places.
    pub(crate) finite: u32,
    /// Those that are not zero on both sides, which have no size to be measured by, and no error.
    pub(crate) there: u32,
    /// Whether its scale is what is usual of others, as its own numbers are next to nothing.
    pub(crate) is_raised: bool,
    /// Whether it is not zero on both sides, and repeats no row before it.
    pub(crate) counts: bool,
}

impl RowScale {
    /// Whether sums of squares of its numbers and errors neither overflow f32 nor vanish there.
    pub(crate) fn fits_f32(&self) -> bool {
        self.fits(self.error / self.scale, -50, 50)
    }

    /// Whether sums of the fourth powers of its errors in rounding units do not either, where no column's share is above
    /// 2^20; none is below 1/4.
    pub(crate) fn units_fit_f32(&self, roundoff: f64) -> bool {
        self.fits(self.error / self.scale / roundoff * 4.0, -4, 28)
    }

    fn fits(&self, error: f64, least: i32, most: i32) -> bool {
        let within = |x: f64, least: i32, most: i32| x > 2f64.powi(least) && x < 2f64.powi(most);
        within(self.scale, -100, 100) && (error == 0.0 || within(error, least, most))
    }
}

/// w: the rounding unit of a number r in a row and column of that scale, and with terms that add up to so much.
pub(crate) fn unit(float: Float) -> impl Fn(f64, f64, f64) -> f64 {
    let (u, underflow) = (float.roundoff(), float.underflow());
    // Multiplied before anything is added, so that the largest numbers of f64 do not overflow.
    move |r, scale, terms| u * r.abs() + u * scale + u * terms + underflow
}

/// The look at one row, in whole vectors.
pub(crate) struct Look<'r, T> {
    pub(crate) r: &'r [T],
    pub(crate) c: &'r [T],
    pub(crate) line: &'r Line,
}

/// What it finds. Sums are not finite where a number is not, or where they overflow.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Looks {
    /// Σ|r|.
    pub(crate) reference: f64,
    /// Σ|c|.
    pub(crate) candidate: f64,
    /// Largest |c − r|.
    pub(crate) error: f64,
    /// All bits that significands use.
    pub(crate) bits: u64,
    /// Largest distance on the number line.
    pub(crate) ulp: u64,
    /// Places that are zero on both sides.
    pub(crate) zeros: usize,
}

impl<T: Real> Loop for Look<'_, T> {
    type Found = Looks;

    #[inline(always)]
    fn run(self) -> Looks {
        let mut found = Looks::default();
        let mut errors = [T::default(); LANES];
        let mut bits = [T::Bits::default(); LANES];
        let mut ulps = [T::Bits::default(); LANES];
        let (zero, one) = (T::default(), T::of(1.0));
        for (r, c) in self.r.chunks(SPAN).zip(self.c.chunks(SPAN)) {
            let [mut reference, mut candidate, mut zeros] = [[zero; LANES]; 3];
            for (r, c) in r.as_chunks::<LANES>().0.iter().zip(c.as_chunks::<LANES>().0) {
                for i in 0..LANES {
                    let (r, c) = (r[i], c[i]);
                    reference[i] = reference[i] + r.abs();
                    candidate[i] = candidate[i] + c.abs();
                    errors[i] = errors[i].larger((c - r).abs());
                    bits[i] = bits[i] | r.bits() | c.bits();
                    ulps[i] = ulps[i].max(r.distance(c, self.line));
                    zeros[i] = zeros[i] + if r.abs().larger(c.abs()) > zero { zero } else { one };
                }
            }
            found.reference += total(&reference);
            found.candidate += total(&candidate);
            found.zeros += total(&zeros) as usize;
        }
        found.error = largest(&errors).wide();
        found.bits = T::significand(bits.into_iter().fold(T::Bits::default(), BitOr::bitor));
        found.ulp = ulps.into_iter().max().unwrap_or_default().into();
        found
    }
}

/// The second look, with the row's mean magnitude known: the shares of columns, and sums of squares.
pub(crate) struct Shares<'r, T> {
    pub(crate) r: &'r [T],
    pub(crate) c: &'r [T],
    /// 1/mean.
    pub(crate) scale: T,
    /// Σ|r|/mean by column.
    pub(crate) columns: &'r mut [T],
}

/// Σr², Σr·e and Σe² in units of the mean.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Squares {
    pub(crate) rr: f64,
    pub(crate) re: f64,
    pub(crate) ee: f64,
}

impl<T: Real> Loop for Shares<'_, T> {
    type Found = Squares;

    #[inline(always)]
    fn run(self) -> Squares {
        let mut found = Squares::default();
        let spans = self.r.chunks(SPAN).zip(self.c.chunks(SPAN)).zip(self.columns.chunks_mut(SPAN));
        for ((r, c), columns) in spans {
            let scale = self.scale;
            let [mut rr, mut re, mut ee] = [[T::default(); LANES]; 3];
            let numbers = r.as_chunks::<LANES>().0.iter().zip(c.as_chunks::<LANES>().0);
            for ((r, c), columns) in numbers.zip(columns.as_chunks_mut::<LANES>().0) {
                for i in 0..LANES {
                    let (r, e) = (r[i] * scale, (c[i] - r[i]) * scale);
                    columns[i] = columns[i] + r.abs();
                    rr[i] = r.times(r, rr[i]);
                    re[i] = r.times(e, re[i]);
                    ee[i] = e.times(e, ee[i]);
                }
            }
            found.rr += total(&rr);
            found.re += total(&re);
            found.ee += total(&ee);
        }
        found
    }
}

/// Counts by column the places of a row that are zero on both sides.
pub(crate) struct Absent<'r, T> {
    pub(crate) r: &'r [T],
    pub(crate) c: &'r [T],
    pub(crate) columns: &'r mut [u32],
}

impl<T: Real> Loop for Absent<'_, T> {
    type Found = ();

    #[inline(always)]
    fn run(self) {
        for ((r, c), n) in self.r.iter().zip(self.c).zip(self.columns) {
            *n += u32::from(r.abs().larger(c.abs()) <= T::default());
        }
    }
}
