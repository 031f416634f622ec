//! What the statistics of a pair of tensors mean. The tests that tell rounding from a fault are those of
//! [`crate::noise`], and so is what they do not see.

use crate::{
    exact,
    float::Float,
    measure,
    noise::{MOST_INHERITED, Noise, direct_units, is_nothing},
    payload::{self, Codes},
    powers,
    statistics::{PartError, Statistics},
    whole::Whole,
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt};

/// What a comparison says. Ordered from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Bits are equal.
    Identical,
    /// Differs as rounding would.
    Rounding,
    /// Cannot tell.
    Suspect,
    /// On one side only.
    Missing,
    /// The placement is not what is there.
    Layout,
    /// Differs.
    Different,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Identical => "IDENTICAL",
            Self::Rounding => "ROUNDING",
            Self::Suspect => "SUSPECT",
            Self::Missing => "MISSING",
            Self::Layout => "LAYOUT",
            Self::Different => "DIFFERENT",
        })
    }
}

/// Two tensors, measured; what it means may depend on the taps before.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// Whether the bits are equal.
    pub identical: bool,
    /// How they differ, without what there is for each row and column.
    pub statistics: Statistics,
    /// What the tests say, where floats differ.
    pub noise: Option<Noise>,
    /// What the codes say, where they are quantised and differ.
    pub codes: Option<Codes>,
    /// The largest error over its running bound, where they are results of a reduction whose partial sums are known.
    pub bound: Option<f64>,
    /// What [`crate::powers`] says of whole powers of two.
    pub powers: Option<f64>,
    /// Of numbers that are stored and not computed, whether the candidate is the reference cast to its dtype.
    pub cast: Option<bool>,
}

/// The test of [`crate::running`].
pub(crate) const RUNNING_BOUND: &str = "running bound";

/// The tests for what all rows share, of which no element need be off by more than rounding.
const PATTERNS: [&str; 3] = ["slope", "row slope", "common"];

/// A test that tells rounding from a fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Test {
    /// Its name in [`crate::noise`].
    pub name: Cow<'static, str>,
    /// What it found over what it allows: above 1 is `DIFFERENT`, above 0.8 `SUSPECT`.
    pub severity: f64,
}

/// A verdict and what it rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The test that decided; `None` where none was needed.
    pub test: Option<Test>,
    /// λ·u, the tensor's own relative noise; 0 where nothing differs.
    pub noise: f64,
}

/// Measures two tensors of one shape whose dtypes can be compared.
#[must_use]
pub fn measure(reference: &Whole<'_>, candidate: &Whole<'_>, precision: Option<Float>) -> Measured {
    if let Some(both_nan) = exact::identical(reference, candidate) {
        let finite = reference.len() - both_nan;
        let ones = (finite > 0).then_some(1.0);
        let statistics = Statistics {
            finite,
            both_nan,
            rel_l2: (finite > 0).then_some(0.0),
            cosine: ones,
            slope: ones,
            float: reference.parts.first().and_then(crate::part::Part::float),
            ..Statistics::default()
        };
        return Measured {
            identical: true,
            statistics,
            noise: None,
            codes: None,
            bound: None,
            powers: None,
            cast: None,
        };
    }
    let is_float = reference.parts.first().is_some_and(|p| p.float().is_some());
    let statistics = if is_float {
        measure::measure(reference, candidate, precision)
    } else {
        exact::measure(reference, candidate)
    };
    let noise = statistics.float.filter(|_| statistics.differs).map(|float| Noise::of(&statistics, float));
    let codes = payload::measure(reference, candidate);
    let (statistics, powers) = (statistics.summary(), powers::severity(reference, candidate));
    Measured { identical: false, statistics, noise, codes, bound: None, powers, cast: None }
}

/// The most noise that a noise run allows: four times as much, which level passes, is half of the numbers themselves.
const MOST_ALLOWED: f64 = 0.125;
/// The most noise that a noise run may have. The most that was seen is that of sharp softmaxes at the end of deep models;
/// a tensor that was doubled has 0.5, another tensor 0.9.
const MOST_NOISE: f64 = 0.35;

impl Measured {
    /// The tests of numbers whose steps are as large as they are.
    fn of_steps(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let codes = self.codes.iter().flat_map(Codes::severities);
        codes.chain(self.powers.map(|severity| ("powers of two", severity)))
    }

    /// The noise that taps after it may have of it. Steps of codes are large, and what follows need not have their noise:
    /// it is no more than what may be inherited where nothing is known, and none where only scales differ.
    pub(crate) fn inheritable(&self, decision: &Decision) -> f64 {
        match (&self.codes, self.statistics.float) {
            (Some(codes), _) if codes.differing == 0 => 0.0,
            (Some(_), _) => decision.noise.min(MOST_INHERITED),
            (None, Some(float)) if float.precision <= 2 => decision.noise.min(MOST_INHERITED),
            _ => decision.noise,
        }
    }

    /// The relative noise of a run that ought to differ from the reference by rounding only; why it does not, in words.
    /// `None` where there are no floats. How large the noise is proves nothing, so that level is not asked.
    pub(crate) fn as_noise(&self) -> Option<Result<f64, String>> {
        let noise = self.noise.as_ref()?;
        if self.statistics.class_change.is_some() {
            return Some(Err(
                "it has NaN or infinity where the reference has none, or none where it has".to_owned()
            ));
        }
        let tests =
            noise.severities(None).into_iter().filter(|(name, _)| *name != "level").chain(self.of_steps());
        let worst = tests.max_by(|(_, a), (_, b)| a.total_cmp(b));
        Some(match worst {
            Some((name, severity)) if severity.is_nan() || severity > 1.0 => {
                Err(format!("it differs from the reference as rounding does not ({name} {severity:.1})"))
            }
            _ if noise.relative() > MOST_NOISE => {
                Err(format!("it differs from the reference by {:.0} %", 100.0 * noise.relative()))
            }
            _ => Ok(noise.relative().min(MOST_ALLOWED)),
        })
    }
}

/// What the measurement means after taps with the noise `inherited` (E): `None` where there were none.
#[must_use]
pub fn decide(measured: &Measured, inherited: Option<f64>, fail_on_nan: bool) -> Decision {
    let s = &measured.statistics;
    let plain = |verdict| Decision { verdict, test: None, noise: 0.0 };
    if fail_on_nan && s.both_nan > 0 {
        return plain(Verdict::Different);
    }
    if measured.identical {
        return plain(Verdict::Identical);
    }
    if s.class_change.is_some() {
        return plain(Verdict::Different);
    }
    if let Some(is_cast) = measured.cast {
        return plain(if is_cast { Verdict::Rounding } else { Verdict::Different });
    }
    let Some(noise) = &measured.noise else {
        return plain(match (s.float, s.differs) {
            (None, true) => Verdict::Different,
            (None, false) => Verdict::Identical,
            (Some(_), _) => Verdict::Rounding,
        });
    };
    // Numbers near the end of f64 overflow a test to infinity over infinity: that is no sign of rounding.
    // Where nothing before was off, the bound knows better than the tensor's own noise what an error may be.
    let bound =
        measured.bound.filter(|_| s.float.zip(inherited).is_some_and(|(float, e)| is_nothing(e, float)));
    let tests = noise.severities(inherited).into_iter().chain(measured.of_steps());
    let tests = tests.filter(|(name, _)| bound.is_none() || PATTERNS.contains(name));
    let tests = tests.chain(bound.map(|ratio| (RUNNING_BOUND, ratio)));
    let tests = tests
        .map(|(name, x)| Test { name: name.into(), severity: if x.is_nan() { f64::INFINITY } else { x } });
    let worst = tests.max_by(|a, b| a.severity.total_cmp(&b.severity));
    let verdict = match worst.as_ref().map_or(0.0, |test| test.severity) {
        x if x > 1.0 => Verdict::Different,
        // Within the bound there is nothing to suspect.
        x if x > 0.8 && worst.as_ref().is_none_or(|test| test.name != RUNNING_BOUND) => Verdict::Suspect,
        _ => Verdict::Rounding,
    };
    Decision { verdict, test: worst, noise: noise.relative() }
}

/// Whether what is `DIFFERENT` is so in most rows, or in kind, and not in single rows that may follow a tie.
pub(crate) fn differs_in_most_rows(measured: &Measured, inherited: Option<f64>) -> bool {
    measured.statistics.class_change.is_some()
        || measured.noise.as_ref().is_some_and(|noise| noise.exceeds_in_most_rows(inherited))
}

/// The parts of the candidate whose own errors exceed what the taps before allow. Where none does by itself, those
/// whose largest error is at least half of the largest; all of `picked` where errors have no part, as in a sum.
#[must_use]
pub fn guilty(
    measured: &Measured,
    decision: &Decision,
    inherited: Option<f64>,
    picked: &[usize],
) -> Vec<usize> {
    let s = &measured.statistics;
    let those = |holds: &dyn Fn(&PartError) -> bool| -> Vec<usize> {
        picked.iter().copied().filter(|p| s.parts.get(*p).is_some_and(holds)).collect()
    };
    let mut guilty = those(&|part| part.class_changes > 0);
    if let (true, Some(float)) = (guilty.is_empty(), s.float) {
        // The tensor's own noise is no measure where the fault is most of it.
        let noise = inherited.unwrap_or(decision.noise.min(MOST_INHERITED)) / float.roundoff();
        let (row, element) = (direct_units(float).max(8.0 * noise), 20.0 * noise.max(0.5));
        guilty = those(&|part| part.row_units > row || part.max_units > element);
        if guilty.is_empty() {
            let largest = s.parts.iter().map(|p| p.max_units).fold(0.0, f64::max);
            guilty = those(&|part| largest > 0.0 && part.max_units >= largest / 2.0);
        }
    }
    if guilty.is_empty() { picked.to_vec() } else { guilty }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_on_both_sides_fails_only_where_asked() {
        let measured = Measured {
            identical: true,
            statistics: Statistics { both_nan: 1, ..Statistics::default() },
            noise: None,
            codes: None,
            bound: None,
            powers: None,
            cast: None,
        };
        assert_eq!(decide(&measured, None, false).verdict, Verdict::Identical);
        assert_eq!(decide(&measured, None, true).verdict, Verdict::Different);
    }

    #[test]
    fn verdicts_are_ordered_from_best_to_worst() {
        use Verdict::{Different, Identical, Layout, Missing, Rounding, Suspect};
        let order = [Identical, Rounding, Suspect, Missing, Layout, Different];
        assert!(order.is_sorted());
        assert_eq!(serde_json::to_string(&Different).unwrap(), "\"DIFFERENT\"");
    }
}
