//! Which steps of a run are captured: `10`, `10-20`, `10-20/2` or `all`.

use std::{fmt, str::FromStr};

/// A set of steps, counted from the run's beginning; both ends belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Steps {
    /// Every step.
    #[default]
    All,
    /// Each `stride`-th step from `first` to `last`.
    Range {
        /// The first step.
        first: u64,
        /// The last step that can match, not below `first`.
        last: u64,
        /// At least 1.
        stride: u64,
    },
}

/// Why steps do not parse: the text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected steps such as 10, 10-20 or 10-20/2, or all, found {0:?}")]
pub struct StepsError(pub String);

impl Steps {
    /// Whether the step is captured.
    #[must_use]
    pub fn contains(&self, step: u64) -> bool {
        self.next(step) == Some(step)
    }

    /// The first step from `step` on that is captured. `None`: a run which has come so far can end.
    #[must_use]
    pub fn next(&self, step: u64) -> Option<u64> {
        match *self {
            Self::All => Some(step),
            Self::Range { first, .. } if step <= first => Some(first),
            Self::Range { first, last, stride } => {
                let past = (step - first) % stride;
                let next = if past == 0 { step } else { step.checked_add(stride - past)? };
                Some(next).filter(|next| *next <= last)
            }
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let number = |text: &str| {
            let text = text.trim();
            text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok())?
        };
        let (range, stride) = match text.split_once('/') {
            Some((range, stride)) => (range, Some(number(stride).filter(|n| *n > 0)?)),
            None => (text, None),
        };
        let (first, end) = match range.split_once('-') {
            Some((first, end)) => (number(first)?, number(end)?),
            None if stride.is_none() => (number(range)?, number(range)?),
            None => return None,
        };
        let stride = stride.unwrap_or(1);
        let last = first + end.checked_sub(first)? / stride * stride;
        Some(Self::Range { first, last, stride })
    }
}

impl FromStr for Steps {
    type Err = StepsError;

    fn from_str(text: &str) -> Result<Self, StepsError> {
        let trimmed = text.trim();
        if trimmed.is_empty() || trimmed.eq_ignore_ascii_case("all") {
            return Ok(Self::All);
        }
        Self::parse(trimmed).ok_or_else(|| StepsError(text.to_owned()))
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::All => f.write_str("all"),
            Self::Range { first, last, .. } if first == last => write!(f, "{first}"),
            Self::Range { first, last, stride: 1 } => write!(f, "{first}-{last}"),
            Self::Range { first, last, stride } => write!(f, "{first}-{last}/{stride}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of the steps 0 to 24 belong to it, from which on none does, and how it prints. The next of a step is the first
    /// of these that is not before it.
    #[track_caller]
    fn check(text: &str, steps: &[u64], past: u64, canonical: &str) {
        let set: Steps = text.parse().unwrap();
        let found: Vec<u64> = (0..25).filter(|step| set.contains(*step)).collect();
        assert_eq!(found, steps);
        for step in 0..25 {
            assert_eq!(set.next(step), steps.iter().copied().find(|of| *of >= step), "{text} from {step}");
        }
        assert_eq!((0..).find(|step| set.next(*step).is_none()), Some(past));
        assert_eq!(set.to_string(), canonical);
    }

    #[track_caller]
    fn check_error(text: &str) {
        assert_eq!(text.parse::<Steps>(), Err(StepsError(text.into())));
    }

    #[test]
    fn both_ends_belong_to_a_range() {
        check("10", &[10], 11, "10");
        check("0", &[0], 1, "0");
        check("10-13", &[10, 11, 12, 13], 14, "10-13");
        check(" 10 - 12 ", &[10, 11, 12], 13, "10-12");
        check("10-20/5", &[10, 15, 20], 21, "10-20/5");
        check("10-19/5", &[10, 15], 16, "10-15/5");
        check("3-4/7", &[3], 4, "3");
    }

    #[test]
    fn all_steps_have_no_end() {
        for text in ["", "all", " ALL "] {
            let steps: Steps = text.parse().unwrap();
            assert!(steps.contains(0) && steps.contains(u64::MAX));
            assert_eq!(steps.to_string(), "all");
        }
        let to_the_end: Steps = "5-18446744073709551615/3".parse().unwrap();
        assert!(to_the_end.contains(8) && !to_the_end.contains(9));
        assert_eq!(to_the_end.next(u64::MAX), None, "the one after it is past the end of all counts");
    }

    #[test]
    fn what_is_no_range_is_quoted() {
        for text in ["x", "10-", "-10", "20-10", "10-20/0", "10/2", "10,12", "+1", "18446744073709551616"] {
            check_error(text);
        }
        let sentence = "expected steps such as 10, 10-20 or 10-20/2, or all, found \"x\"";
        assert_eq!("x".parse::<Steps>().unwrap_err().to_string(), sentence);
    }
}
