//! Whether errors are what rounding makes.
//!
//! Floats that differ are `ROUNDING` unless one of these tests says otherwise. Each is a severity, statistic over
//! threshold: above 1 it is `DIFFERENT`, above 0.8 `SUSPECT`. λ, the tensor's own noise in rounding units, is the
//! smaller of the medians of row and column rms, τ = max(λ, ½); E is the largest λ·u of the taps before.
//!
//! | test | statistic | threshold |
//! |---|---|---|
//! | element | largest \|v\|/τ_v where \|q\| > 6 | the tail of \|v\|, extrapolated as a power law, at least 14 |
//! | element-2 | largest \|q\|/τ | the tail of \|q\|, at least 20 |
//! | chunk | largest mean of \|q\|/τ over 16 bytes as stored | their tail, at least 6 |
//! | row, column, block | rms over the median rms; a block is a row × 128 columns | 4.5, or what the spread of the others allows up to 14 |
//! | groups | the same over every p-th column and runs of p, p = 8 to 64 | 3.5, up to 7; half as much again below 4 rows |
//! | row slope | a row's factor, less the median row's | 3u or 20 spreads; 5u or 40 where noise came before, 4.5u where it may have; below 8 rows at least 6 noise |
//! | slope | the median row's factor − 1 | noise makes less: max(u/8, 4 noise², (λ − ½)u), and 8 standard errors |
//! | common | share of the error that is the same in every row | 0.15 + 0.9 × that of the reference + 3/rows |
//! | level | the median row rms | 2 (fp32 and wider: 32), or 4 E/u where that is more, 6 E/u below 4 rows |
//! | direct row | rms | 2 (fp32 and wider: 32), only where nothing before was off: E ≤ u/10 |
//! | running bound | largest error over what rounding can make of a reduction whose partial sums are known: `running` | 1, only where nothing before was off; then of the others only the slopes and common are asked |
//!
//! Of a channel or a factor that every row has, few rows say little: with 1, 2 and 3 rows every test but the last says
//! `SUSPECT` up to 5, 2 and 1.4 times its limit; below 8 rows a slope may be u/2, and in fp32 is not judged, where level
//! is the finer test.
//!
//! The direct test is a fixed limit: over 10 kinds of layer at TP 2, 4 and 8, the worst row of a correct result was
//! 1.4 units in bf16, fp16 and e4m3 and 12 in fp32, with biases added twice from 3.1 in bf16.
//!
//! How often they are wrong is measured by `make verdict-rates`, into docs/compare.md.
//!
//! # What this does not see
//! - With no tap before (E unknown) an error of 2 units to 4 % is `SUSPECT`: it may be inherited.
//! - With nothing off before, a correct tap many operations after the last one can exceed the level of one rounding:
//!   tap more densely, or leave the identical taps out.
//! - One element below 20 times the noise; one row or column below 4.5 times; a factor within the slope's floor; an
//!   error without structure below 4 times the noise before. In fp8 a bias of 5 % is below one unit.
//! - `E8M0` scales flip by whole powers of two in correct runs ([`crate::powers`]): dequantise first.

use crate::{
    float::{BF16, Float},
    outliers::{extreme, middle_and_spread, outlier},
    statistics::{Line, Statistics, lambda, median},
};
use serde::{Deserialize, Serialize};

/// The relative noise that may be inherited where nothing is known of it.
pub(crate) const MOST_INHERITED: f64 = 0.04;

/// Whether noise before is none beside the roundoff of a format.
pub(crate) fn is_nothing(inherited: f64, float: Float) -> bool {
    inherited <= 0.1 * float.roundoff()
}

/// Rounding units that one direct rounding may have. Wide formats accumulate in their own precision.
pub(crate) fn direct_units(float: Float) -> f64 {
    if float.precision >= 24 { 32.0 } else { 2.0 }
}

/// Of a channel that is larger than others in every row, or carries the noise of all of it, a few rows show no more than
/// of a fault: what is beyond a limit is then `SUSPECT` up to 5 times it in one row, twice in two, 1.4 times in three.
fn of_few(rows: usize, severity: f64) -> f64 {
    match 1.0 + 4.0 / (rows * rows).max(1) as f64 {
        allowance if rows < 4 && severity > 1.0 => (severity / allowance).max(0.9),
        _ => severity,
    }
}

/// That an error is too large for one rounding is no evidence by itself: an operation that takes most of a number away, or
/// an exponential, leaves as much. Beyond the limit it is `SUSPECT` up to twice as far, and within it nothing.
fn lenient(severity: f64) -> f64 {
    match severity {
        x if x <= 1.0 => 0.8 * x,
        x if x <= 2.0 => 0.6 + 0.2 * x,
        x => x / 2.0,
    }
}

/// Every test and its severity after taps with the noise `inherited` (E), `None` where there were none. A test that needs
/// more than there is says 0.
#[must_use]
pub fn severities(s: &Statistics, float: Float, inherited: Option<f64>) -> Vec<(&'static str, f64)> {
    Noise::of(s, float).severities(inherited)
}

/// The tests that know nothing of the taps before.
const PLAIN: [&str; 8] = ["element", "element-2", "chunk", "row", "column", "block", "groups", "common"];

/// The tests that what is wrong in a few of many rows does not exceed.
const OF_MOST_ROWS: [&str; 4] = ["column", "slope", "common", "level"];

/// The tensor's own noise, and of every test what does not depend on the taps before: a few numbers, so that the
/// statistics need not be kept until those are known.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Noise {
    roundoff: f64,
    /// λ.
    lambda: f64,
    /// D.
    direct: f64,
    rows: usize,
    /// What the level is, in units: the median rms of rows, λ where they are few.
    level: f64,
    /// Largest rms of a row, discounted where it hangs on few errors.
    largest_row: f64,
    row_slope: Option<RowSlope>,
    slope: f64,
    /// Whether the slope is that of pieces of rows, which says nothing where noise came before.
    slope_of_pieces: bool,
    /// The severities of [`PLAIN`].
    plain: [f64; PLAIN.len()],
}

/// The factors of rows.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct RowSlope {
    /// Largest distance from the median.
    farthest: f64,
    /// What they are spread by, twice that where rows are few.
    spread: f64,
}

impl Noise {
    pub(crate) fn of(s: &Statistics, float: Float) -> Self {
        let rows = s.rows.len();
        let lambda = lambda(&s.rows, &s.columns, s.pieces.as_ref());
        let (tau, near_tau) = (lambda.max(0.5), s.near_noise.max(0.5));
        let groups = s.groups.iter().map(|lines| outlier(lines, 3.5, 7.0)).fold(0.0, f64::max);
        // One row alone cannot tell a group of columns from a channel that is large in every row.
        let groups = match rows {
            0 | 1 => (groups / 1.5).min(0.9),
            2 | 3 => groups / 1.5,
            _ => groups,
        };
        let (slope, slope_of_pieces) = slope(s, float, lambda);
        let discounted = |l: &Line| l.rms / (1.0 + 2.0 / l.n_effective.max(1.0).sqrt());
        Self {
            roundoff: float.roundoff(),
            lambda,
            direct: direct_units(float),
            rows,
            level: if rows >= 8 { median(s.rows.iter().map(|l| l.rms)).unwrap_or(0.0) } else { lambda },
            largest_row: s.rows.iter().map(discounted).fold(0.0, f64::max),
            row_slope: row_slope(s),
            slope,
            slope_of_pieces,
            plain: [
                extreme(&s.near_tail, near_tau, 14.0, 5.0),
                extreme(&s.tail, tau, 20.0, 6.0),
                s.chunk_tail.map_or(0.0, |tail| extreme(&tail, tau, 6.0, 7.0)),
                if rows >= 3 { outlier(&s.rows, 4.5, 14.0) } else { 0.0 },
                if rows >= 4 { outlier(&s.columns, 4.5, 14.0) } else { 0.0 },
                outlier(&s.blocks, 4.5, 14.0),
                groups,
                common(s, lambda),
            ],
        }
    }

    /// λ·u.
    pub(crate) fn relative(&self) -> f64 {
        self.lambda * self.roundoff
    }

    /// Every test and its severity, after taps with the noise `inherited` (E).
    pub(crate) fn severities(&self, inherited: Option<f64>) -> Vec<(&'static str, f64)> {
        let nothing_before = inherited.is_none_or(|e| e == 0.0);
        let slope = if nothing_before || !self.slope_of_pieces { self.slope } else { 0.0 };
        let mut all: Vec<_> = PLAIN.into_iter().zip(self.plain).collect();
        all.extend([("row slope", self.row_slope(inherited)), ("slope", slope)]);
        all.iter_mut().for_each(|(_, severity)| *severity = of_few(self.rows, *severity));
        // What may be inherited where nothing is known of it is a limit for any number of rows.
        let level = self.level(inherited);
        all.push(("level", if inherited.is_some() { of_few(self.rows, level) } else { level }));
        all.push(("direct row", self.direct_row(inherited)));
        all
    }

    /// Whether more is wrong than single rows; of fewer than four each is many.
    pub(crate) fn exceeds_in_most_rows(&self, inherited: Option<f64>) -> bool {
        let exceeds = |(name, severity): (&str, f64)| OF_MOST_ROWS.contains(&name) && severity > 1.0;
        self.rows >= 4 && self.severities(inherited).into_iter().any(exceeds)
    }

    /// Whether nothing before was off.
    fn is_first(&self, inherited: Option<f64>) -> bool {
        inherited.is_some_and(|e| e <= 0.1 * self.roundoff)
    }

    fn direct_row(&self, inherited: Option<f64>) -> f64 {
        if self.is_first(inherited) { lenient(self.largest_row / self.direct) } else { 0.0 }
    }

    fn level(&self, inherited: Option<f64>) -> f64 {
        match inherited {
            Some(e) => {
                let growth = if self.rows >= 4 { 4.0 } else { 6.0 };
                let severity = self.level / self.direct.max(growth * e / self.roundoff);
                // In formats of few bits a fault is but a few units.
                let is_coarse = self.roundoff > BF16.roundoff();
                if is_coarse { severity } else { lenient(self.level / self.direct).min(severity) }
            }
            None => {
                let most = self.direct.max(MOST_INHERITED / self.roundoff);
                match self.level {
                    x if x > most => x / most,
                    x if x > self.direct => 0.81,
                    x => 0.7 * x / self.direct,
                }
            }
        }
    }

    fn row_slope(&self, inherited: Option<f64>) -> f64 {
        let Some(RowSlope { farthest, spread }) = self.row_slope else { return 0.0 };
        let direct = self.is_first(inherited) && self.lambda <= 1.0;
        let (units, spreads) = match inherited {
            _ if direct => (3.0, 20.0),
            None => (4.5, 40.0),
            Some(_) => (5.0, 40.0),
        };
        let least = if self.rows < 8 { 6.0 * inherited.unwrap_or(0.0).max(self.relative()) } else { 0.0 };
        farthest / (units * self.roundoff).max(spreads * spread).max(least)
    }
}

fn row_slope(s: &Statistics) -> Option<RowSlope> {
    let (middle, spread) = middle_and_spread(&s.slopes).filter(|_| s.slopes.len() >= 3)?;
    let farthest = s.slopes.iter().map(|b| (b - middle).abs()).fold(0.0, f64::max);
    Some(RowSlope { farthest, spread: if s.rows.len() < 8 { 2.0 * spread } else { spread } })
}

/// The severity of the slope, and whether it is that of pieces of rows.
fn slope(s: &Statistics, float: Float, lambda: f64) -> (f64, bool) {
    let u = float.roundoff();
    let (slopes, of_pieces) = match &s.pieces {
        _ if s.slopes.len() >= 8 => (&s.slopes, false),
        Some(pieces) if lambda <= 2.0 && float.precision < 24 && pieces.slopes.len() >= 8 => {
            (&pieces.slopes, true)
        }
        _ => return (0.0, false),
    };
    // Slopes are of q on (r + c)/2w, that is of e on (r + c)/2: already relative.
    let Some((slope, spread)) = middle_and_spread(slopes) else { return (0.0, false) };
    let n = slopes.len() as f64;
    // Errors of different tokens are not independent: Kish's design effect.
    let effect = 1.0 + (n - 1.0) * s.common.map_or(0.0, |c| c.0.max(0.0));
    let z = slope.abs() / spread.max(0.02 * u) * (n / effect).sqrt();
    let noise = lambda * u;
    let relative = s.relative.min(8.0 * noise).max(2.0 * noise);
    // One row may have a factor of its own by rounding: that of a norm, or of a softmax's sum.
    // A scale that is taken from the numbers themselves moves by a step or two of bf16, which is much in few bits.
    let all = if u > BF16.roundoff() { u / 4.0 } else { u / 8.0 };
    let least = if of_pieces { u / 2.0 } else { all };
    let floor = least.max(4.0 * relative * relative).max((lambda - 0.5) * u);
    ((slope.abs() / floor).min(z / 8.0), of_pieces)
}

fn common(s: &Statistics, lambda: f64) -> f64 {
    match s.common {
        Some((error, reference)) if lambda > 0.1 => {
            error / (0.15 + 0.9 * reference.max(0.0) + 3.0 / s.rows.len() as f64)
        }
        _ => 0.0,
    }
}
