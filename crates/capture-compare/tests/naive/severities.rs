//! Every test of the verdict: what it looks at over what it allows.

use super::statistics::{Line, Statistics, median, quantile};

impl Statistics {
    /// Every test and its severity after taps with the noise `inherited` (E). A test that needs more than there is
    /// says 0.
    pub(crate) fn severities(&self, inherited: Option<f64>) -> Vec<(&'static str, f64)> {
        let rows = self.rows.len();
        let groups = self.groups.iter().map(|lines| outlier(lines, 3.5, 7.0)).fold(0.0, f64::max);
        let all = vec![
            ("element", self.near_largest / reach(&self.near_elements, self.k, 14.0, 5.0)),
            ("element-2", self.elements[0] / reach(&self.elements, self.k, 20.0, 6.0)),
            ("chunk", self.chunk()),
            ("row", if rows >= 3 { outlier(&self.rows, 4.5, 14.0) } else { 0.0 }),
            ("column", if rows >= 4 { outlier(&self.columns, 4.5, 14.0) } else { 0.0 }),
            ("block", outlier(&self.blocks, 4.5, 14.0)),
            (
                "groups",
                if rows >= 4 {
                    groups
                } else {
                    (groups / 1.5).min(if rows == 1 { 0.9 } else { f64::INFINITY })
                },
            ),
            ("row slope", self.row_slope(inherited)),
            ("slope", self.slope(inherited)),
            ("common", self.common()),
            ("level", self.level(inherited)),
            ("direct row", self.direct_row(inherited)),
        ];
        let few = |test: &str, severity| match test {
            "direct row" => severity,
            "level" if inherited.is_none() => severity,
            _ => self.of_few(severity),
        };
        all.into_iter().map(|(test, severity)| (test, few(test, severity))).collect()
    }

    /// Beyond the limit, few rows are SUSPECT up to some times it.
    pub(crate) fn of_few(&self, severity: f64) -> f64 {
        match self.rows.len() {
            _ if severity <= 1.0 => severity,
            1 => (severity / 5.0).max(0.9),
            2 => (severity / 2.0).max(0.9),
            3 => (severity / (13.0 / 9.0)).max(0.9),
            _ => severity,
        }
    }

    /// D in rounding units.
    fn direct(&self) -> f64 {
        if self.roundoff < 2f64.powi(-23) { 32.0 } else { 2.0 }
    }

    fn chunk(&self) -> f64 {
        let k = (self.chunks.len() / 64).clamp(4, 64);
        self.chunks.first().map_or(0.0, |largest| largest / reach(&self.chunks, k, 6.0, 7.0))
    }

    fn row_slope(&self, inherited: Option<f64>) -> f64 {
        if self.slopes.len() < 3 {
            return 0.0;
        }
        let (middle, spread) = middle_and_spread(&self.slopes);
        let farthest = self.slopes.iter().map(|b| (b - middle).abs()).fold(0.0, f64::max);
        let direct = self.lambda <= 1.0 && inherited.is_some_and(|e| e <= 0.1 * self.roundoff);
        let units = if direct {
            3.0
        } else if inherited.is_none() {
            4.5
        } else {
            5.0
        };
        let spreads = if direct { 20.0 } else { 40.0 };
        let few = if self.rows.len() < 8 { 2.0 } else { 1.0 };
        let noise = inherited.unwrap_or(0.0).max(self.lambda * self.roundoff);
        let least = if self.rows.len() < 8 { 6.0 * noise } else { 0.0 };
        farthest / (units * self.roundoff).max(spreads * few * spread).max(least)
    }

    fn slope(&self, inherited: Option<f64>) -> f64 {
        let u = self.roundoff;
        let nothing_before = inherited.is_none_or(|e| e == 0.0);
        let slopes: &[f64] = match &self.pieces {
            _ if self.slopes.len() >= 8 => &self.slopes,
            Some((slopes, _)) if self.lambda <= 2.0 && nothing_before && self.direct() < 32.0 => slopes,
            _ => &[],
        };
        if slopes.len() < 8 {
            return 0.0;
        }
        let (middle, spread) = middle_and_spread(slopes);
        let n = slopes.len() as f64;
        let effect = 1.0 + (n - 1.0) * self.common.map_or(0.0, |(error, _)| error.max(0.0));
        let z = middle.abs() / spread.max(u / 50.0) * (n / effect).sqrt();
        let noise = self.lambda * u;
        let relative = self.rel.min(8.0 * noise).max(2.0 * noise);
        let all = if u > 2f64.powi(-8) { u / 4.0 } else { u / 8.0 };
        let least = if self.slopes.len() >= 8 { all } else { u / 2.0 };
        let floor = least.max(4.0 * relative * relative).max((self.lambda - 0.5) * u);
        (middle.abs() / floor).min(z / 8.0)
    }

    fn common(&self) -> f64 {
        let Some((error, reference)) = self.common.filter(|_| self.lambda > 0.1) else { return 0.0 };
        error / (0.15 + 0.9 * reference.max(0.0) + 3.0 / self.rows.len() as f64)
    }

    fn level(&self, inherited: Option<f64>) -> f64 {
        let rows = self.rows.len();
        let direct = self.direct() * self.roundoff;
        let rms =
            if rows >= 8 { median(self.rows.iter().map(|l| l.rms)).unwrap_or(0.0) } else { self.lambda };
        let level = rms * self.roundoff;
        match inherited {
            Some(e) => {
                let most = direct.max(if rows >= 4 { 4.0 * e } else { 6.0 * e });
                let is_coarse = self.roundoff > 2f64.powi(-8);
                if is_coarse { level / most } else { lenient(level / direct).min(level / most) }
            }
            None if level > direct.max(0.04) => level / direct.max(0.04),
            None if level > direct => 0.81,
            None => 0.7 * level / direct,
        }
    }

    /// A fixed limit for every row, where nothing before was off.
    fn direct_row(&self, inherited: Option<f64>) -> f64 {
        if inherited.is_none_or(|e| e > 0.1 * self.roundoff) {
            return 0.0;
        }
        lenient(self.rows.iter().map(evidence).fold(0.0, f64::max) / self.direct())
    }
}

/// What says by size alone that it is no rounding says SUSPECT up to twice its limit.
fn lenient(x: f64) -> f64 {
    if x <= 1.0 {
        0.8 * x
    } else if x <= 2.0 {
        0.6 + 0.2 * x
    } else {
        x / 2.0
    }
}

/// What the tail of `largest_first` reaches when it is extrapolated as a power law, at least `base`.
fn reach(largest_first: &[f64], k: usize, base: f64, margin: f64) -> f64 {
    let len = (4 * k).min(largest_first.len());
    let (kth, last) = (largest_first[k.min(len) - 1].max(1.0), largest_first[len - 1].max(1.0));
    let index = if len > k { (kth / last).ln() / (len as f64 / k as f64).ln() } else { 0.3 };
    base.max(kth * (index.clamp(0.08, 0.7) * ((k as f64).ln() + margin)).exp())
}

/// A line of one or two numbers is no evidence about the line.
fn evidence(line: &Line) -> f64 {
    line.rms / (1.0 + 2.0 / line.n_effective.max(1.0).sqrt())
}

fn outlier(lines: &[Line], least: f64, cap: f64) -> f64 {
    if lines.len() < 3 {
        return 0.0;
    }
    let raised: Vec<Line> = lines.iter().map(|l| Line { rms: l.rms.max(0.5), ..*l }).collect();
    let typical = median(raised.iter().map(|l| l.rms)).unwrap_or(1.0);
    let logs = || raised.iter().map(|l| (l.rms / typical).ln());
    let up = quantile(logs(), 0.75).unwrap_or(0.0) / 0.6745;
    let low = -quantile(logs(), 0.25).unwrap_or(0.0) / 0.6745;
    let reach = 3.5 + (2.0 * (lines.len() as f64).ln()).sqrt();
    let allowed = least.max((reach * up).exp().min(cap)).max((reach * low).exp().min(40.0));
    raised.iter().map(|l| evidence(l) / typical / allowed).fold(0.0, f64::max)
}

/// The median, and the spread about it as a standard deviation.
fn middle_and_spread(values: &[f64]) -> (f64, f64) {
    let middle = median(values.iter().copied()).unwrap_or(0.0);
    let spread = median(values.iter().map(|x| (x - middle).abs())).unwrap_or(0.0);
    (middle, 1.4826 * spread)
}
