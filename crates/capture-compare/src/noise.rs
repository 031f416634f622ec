//! Whether errors are what rounding makes.
//!
//! Floats that differ are `ROUNDING` unless one of these tests says otherwise. Each is a severity, statistic over
//! threshold: above 1 it is `DIFFERENT`, above 0.8 `SUSPECT`. λ, the tensor's own noise in rounding units, is the
//! smaller of the medians of row and column rms, τ = max(λ, ½); E is the largest λ·u of the taps before.
//!
//! | test | statistic | threshold |
//! |---|---|---|
//! | element | largest \|q\|/τ | the tail of \|q\|, extrapolated as a power law, at least 20 |
//! | row, column | rms over the median rms | 4.5, or what the spread of the others allows up to 14 |
//! | direct row | rms | 2 (fp32 and wider: 32), only where nothing before was off: E ≤ u/10 |
//! | level | the median row rms | 2 (fp32 and wider: 32), or 4 E/u where that is more |
//! | slope | the median row's factor − 1 | noise makes less: max(u/8, 4 noise², (λ − ½)u), and 8 standard errors |
//! | row slope | a row's factor, less the median row's | 3u or 20 spreads; 5u or 40 where noise came before |
//! | common | share of the error that is the same in every row | 0.15 + 0.9 × that of the reference + 3/rows |
//!
//! The direct test is a fixed limit: over 10 kinds of layer at TP 2, 4 and 8, the worst row of a correct result was
//! 1.4 units in bf16, fp16 and e4m3 and 12 in fp32, with biases added twice from 3.1 in bf16.
//!
//! Measured: of 2,736 correct pairs (10 kinds of layer, bf16, fp16, fp32 and e4m3, TP 2 to 8, 1, 5 and 64 rows, inherited
//! noise up to 6 %) none was `DIFFERENT` and 17 `SUSPECT`, all of them decode steps of one massive row; of 2,176 taps of
//! correct stacks of 4 and 32 layers neither. Faults in stacks (rows zeroed, elements + 5 rms, biases twice, ranks
//! dropped or swapped, heads or columns swapped) were found at their own tap in 415 of 416 in bf16, fp16 and fp32, never
//! earlier. In e4m3, where four layers make 40 % of noise, 47 of 96 are hidden in it.
//!
//! # What this does not see
//! - With no tap before (E unknown) an error of 2 units to 4 % is `SUSPECT`: it may be inherited.
//! - With nothing off before, a correct tap many operations after the last one can exceed the level of one rounding:
//!   tap more densely, or leave the identical taps out.
//! - One element below 20 times the noise; one row or column below 4.5 times; a factor within the slope's floor; an
//!   error without structure below 4 times the noise before. In fp8 a bias of 5 % is below one unit.
//! - Chunks, blocks and periodic groups of columns are not tested by themselves; nor are repeated rows counted once.
//! - `E8M0` scales and other formats of few bits flip by whole powers of two in correct runs: dequantise first.

use crate::{
    float::Float,
    statistics::{Line, Statistics, median, quantile},
};

/// The relative noise that may be inherited where nothing is known of it.
pub(crate) const MOST_INHERITED: f64 = 0.04;

/// Rounding units that one direct rounding may have. Wide formats accumulate in their own precision.
pub(crate) fn direct_units(float: Float) -> f64 {
    if float.precision >= 24 { 32.0 } else { 2.0 }
}

/// The tensor's own noise.
pub(crate) struct Noise {
    roundoff: f64,
    /// λ.
    lambda: f64,
    /// Median of row rms.
    rows: f64,
    /// D.
    direct: f64,
}

impl Noise {
    pub(crate) fn of(s: &Statistics, float: Float) -> Self {
        let rms = |lines: &[Line]| median(lines.iter().map(|l| l.rms)).unwrap_or(0.0);
        let (rows, columns) = (rms(&s.rows), rms(&s.columns));
        let lambda = if s.rows.len() < 4 { rows } else { rows.min(columns) };
        Self { roundoff: float.roundoff(), lambda, rows, direct: direct_units(float) }
    }

    /// λ·u.
    pub(crate) fn relative(&self) -> f64 {
        self.lambda * self.roundoff
    }

    /// Every test and its severity, after taps with the noise `inherited` (E).
    pub(crate) fn severities(&self, s: &Statistics, inherited: Option<f64>) -> [(&'static str, f64); 8] {
        [
            ("element", self.element(s)),
            ("row", if s.rows.len() >= 3 { outlier(&s.rows) } else { 0.0 }),
            ("column", if s.rows.len() >= 4 { outlier(&s.columns) } else { 0.0 }),
            ("direct row", self.direct_row(s, inherited)),
            ("level", self.level(s.rows.len(), inherited)),
            ("slope", self.slope(s)),
            ("row slope", self.row_slope(s, inherited)),
            ("common", self.common(s)),
        ]
    }

    fn tau(&self) -> f64 {
        self.lambda.max(0.5)
    }

    /// The k-th and 4k-th largest give the tail's index (Hill 1975); a power law over-estimates every lighter tail, so
    /// that the margin holds for any number of elements.
    fn element(&self, s: &Statistics) -> f64 {
        let Some(tail) = s.tail else { return 0.0 };
        let (kth, last) = ((tail.kth / self.tau()).max(1.0), (tail.last / self.tau()).max(1.0));
        let index =
            if tail.len > tail.k { (kth / last).ln() / (tail.len as f64 / tail.k as f64).ln() } else { 0.3 };
        let reach = index.clamp(0.08, 0.7) * ((tail.k as f64).ln() + 6.0);
        s.max_units.0 / self.tau() / (kth * reach.exp()).max(20.0)
    }

    fn direct_row(&self, s: &Statistics, inherited: Option<f64>) -> f64 {
        if inherited.is_none_or(|e| e > 0.1 * self.roundoff) {
            return 0.0;
        }
        let worst = s.rows.iter().map(|l| l.rms / (1.0 + 2.0 / l.n_effective.max(1.0).sqrt()));
        worst.fold(0.0, f64::max) / self.direct
    }

    fn level(&self, rows: usize, inherited: Option<f64>) -> f64 {
        let level = if rows >= 8 { self.rows } else { self.lambda };
        match inherited {
            Some(e) => {
                let growth = if rows >= 4 { 4.0 } else { 6.0 };
                level / self.direct.max(growth * e / self.roundoff)
            }
            None => {
                let most = self.direct.max(MOST_INHERITED / self.roundoff);
                match level {
                    x if x > most => x / most,
                    x if x > self.direct => 0.81,
                    x => 0.7 * x / self.direct,
                }
            }
        }
    }

    fn slope(&self, s: &Statistics) -> f64 {
        let rows = s.slopes.len() as f64;
        let (8.., Some(slope)) = (s.slopes.len(), median(s.slopes.iter().copied())) else { return 0.0 };
        // Slopes are of q on (r + c)/2w, that is of e on (r + c)/2: already relative.
        let spread = 1.4826 * median(s.slopes.iter().map(|b| (b - slope).abs())).unwrap_or(0.0);
        let u = self.roundoff;
        // Errors of different tokens are not independent: Kish's design effect.
        let effect = 1.0 + (rows - 1.0) * s.common.map_or(0.0, |c| c.0.max(0.0));
        let z = slope.abs() / spread.max(0.02 * u) * (rows / effect).sqrt();
        let noise = self.lambda * u;
        let relative = s.rel_l2.unwrap_or(0.0).min(8.0 * noise).max(2.0 * noise);
        let floor = (u / 8.0).max(4.0 * relative * relative).max((self.lambda - 0.5) * u);
        (slope.abs() / floor).min(z / 8.0)
    }

    fn row_slope(&self, s: &Statistics, inherited: Option<f64>) -> f64 {
        let (3.., Some(slope)) = (s.slopes.len(), median(s.slopes.iter().copied())) else { return 0.0 };
        let off: Vec<f64> = s.slopes.iter().map(|b| (b - slope).abs()).collect();
        let spread = 1.4826 * median(off.iter().copied()).unwrap_or(0.0);
        let direct = inherited.is_some_and(|e| e <= 0.1 * self.roundoff) && self.lambda <= 1.0;
        let (units, spreads) = if direct { (3.0, 20.0) } else { (5.0, 40.0) };
        let few = if s.slopes.len() < 8 { 2.0 } else { 1.0 };
        let threshold = (units * self.roundoff).max(spreads * few * spread);
        off.into_iter().fold(0.0, f64::max) / threshold
    }

    fn common(&self, s: &Statistics) -> f64 {
        match s.common {
            Some((error, reference)) if self.lambda > 0.1 => {
                error / (0.15 + 0.9 * reference.max(0.0) + 3.0 / s.rows.len() as f64)
            }
            _ => 0.0,
        }
    }
}

/// The severity of the line that stands out most from the median, measured by how much the others spread. A fault
/// cannot widen the lower quartile, so only that side may allow more than 14-fold.
fn outlier(lines: &[Line]) -> f64 {
    let raised: Vec<f64> = lines.iter().map(|l| l.rms.max(0.5)).collect();
    let Some(typical) = median(raised.iter().copied()) else { return 0.0 };
    if raised.len() < 3 {
        return 0.0;
    }
    let logs: Vec<f64> = raised.iter().map(|x| (x / typical).ln()).collect();
    let up = quantile(logs.clone(), 0.75).unwrap_or(0.0) / 0.6745;
    let low = -quantile(logs, 0.25).unwrap_or(0.0) / 0.6745;
    let reach = 3.5 + (2.0 * (raised.len() as f64).ln()).sqrt();
    let threshold = 4.5f64.max((reach * up).exp().min(14.0)).max((reach * low).min(20.0).exp().min(40.0));
    let severity =
        |(x, line): (&f64, &Line)| x / typical / threshold / (1.0 + 2.0 / line.n_effective.max(1.0).sqrt());
    raised.iter().zip(lines).map(severity).fold(0.0, f64::max)
}
