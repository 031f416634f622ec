//! What stands out from its like, by limits that take their measure from the others.

use crate::statistics::{Line, Tail, median, quantile};

/// A line stands out by its rms over the median rms. The limit is `least`, or what the spread of the others allows. It
/// is log-normal-like and grows as √(2 ln n) with how many there are. A fault cannot widen the lower quartile, so only
/// that side may allow more than `most`. A line that hangs on a few errors is no evidence about all of it.
pub(crate) fn outlier(lines: &[Line], least: f64, most: f64) -> f64 {
    let raised: Vec<f64> = lines.iter().map(|l| l.rms.max(0.5)).collect();
    if raised.len() < 3 {
        return 0.0;
    }
    let Some(typical) = median(raised.iter().copied()) else { return 0.0 };
    let logs: Vec<f64> = raised.iter().map(|x| (x / typical).ln()).collect();
    let up = quantile(logs.clone(), 0.75).unwrap_or(0.0) / 0.6745;
    let low = -quantile(logs, 0.25).unwrap_or(0.0) / 0.6745;
    let reach = 3.5 + (2.0 * (raised.len() as f64).ln()).sqrt();
    let threshold = least.max((reach * up).exp().min(most)).max((reach * low).min(20.0).exp().min(40.0));
    let severity =
        |(x, line): (&f64, &Line)| x / typical / threshold / (1.0 + 2.0 / line.n_effective.max(1.0).sqrt());
    raised.iter().zip(lines).map(severity).fold(0.0, f64::max)
}

/// The largest over what the tail below it makes likely, all in units of `unit`. The k-th and 4k-th largest give the
/// tail's index (Hill 1975); a power law over-estimates every lighter tail, so that `margin` holds for any number of
/// elements. The limit is at least `least`, as flips in direct rounding have no tail to speak of.
pub(crate) fn extreme(tail: &Tail, unit: f64, least: f64, margin: f64) -> f64 {
    let (kth, last) = ((tail.kth / unit).max(1.0), (tail.last / unit).max(1.0));
    let index =
        if tail.len > tail.k { (kth / last).ln() / (tail.len as f64 / tail.k as f64).ln() } else { 0.3 };
    let reach = index.clamp(0.08, 0.7) * ((tail.k as f64).ln() + margin);
    tail.largest / unit / (kth * reach.exp()).max(least)
}

/// The median, and 1.4826 times the median distance from it: the standard deviation of normal numbers.
pub(crate) fn middle_and_spread(values: &[f64]) -> Option<(f64, f64)> {
    let middle = median(values.iter().copied())?;
    Some((middle, 1.4826 * median(values.iter().map(|x| (x - middle).abs()))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(rms: &[f64], n_effective: f64) -> Vec<Line> {
        rms.iter().map(|&rms| Line { rms, n_effective }).collect()
    }

    #[track_caller]
    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() <= 1e-9 * expected, "expected {expected}, found {found}");
    }

    #[test]
    fn a_line_is_measured_by_the_spread_of_the_others() {
        // Without spread the limit is `least`; few effective errors weaken the ratio by 1 + 2/√n.
        close(outlier(&lines(&[1.0, 1.0, 1.0, 1.0, 9.0], 4e12), 4.5, 14.0), 2.0 / (1.0 + 1e-6));
        close(outlier(&lines(&[1.0, 1.0, 1.0, 1.0, 9.0], 4.0), 4.5, 14.0), 1.0);
        // A spread above reaches `most` = 14, one below 40; errors below half a unit count as half a unit.
        close(outlier(&lines(&[0.1, 0.5, 0.5, 8.0, 28.0], 4.0), 4.5, 14.0), 28.0 / 0.5 / 14.0 / 2.0);
        close(outlier(&lines(&[0.5, 0.5, 8.0, 8.0, 640.0], 4.0), 4.5, 14.0), 640.0 / 8.0 / 40.0 / 2.0);
        assert_eq!(outlier(&lines(&[1.0, 9.0], 4.0), 4.5, 14.0), 0.0);
    }

    #[test]
    fn a_tail_is_extrapolated_as_a_power_law() {
        // Index ln(4/2)/ln(256/64) = 1/2, reach (ln 64 + 6)/2.
        let tail = Tail { k: 64, kth: 4.0, last: 2.0, len: 256, largest: 100.0 };
        close(extreme(&tail, 1.0, 20.0, 6.0), 100.0 / (4.0 * ((64f64.ln() + 6.0) / 2.0).exp()));
        // In units of 4 the tail is flat at its least, 1, and the index at its least, 0.08: `least` remains.
        close(extreme(&tail, 4.0, 20.0, 6.0), 25.0 / 20.0);
        let none = Tail { k: 4, len: 4, ..tail };
        close(extreme(&none, 1.0, 1.0, 6.0), 100.0 / (4.0 * (0.3 * (4f64.ln() + 6.0)).exp()));
    }
}
