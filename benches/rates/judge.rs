//! The verdict of `capture-compare` on two matrices.

use crate::{matrix::Matrix, number::Format};
use capture_compare::{
    Verdict,
    part::Part,
    verdict::{Decision, decide, measure},
    whole::{Node, Whole},
};
use std::ops::AddAssign;

/// How often each verdict was given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) pairs: u64,
    pub(crate) different: u64,
    pub(crate) suspect: u64,
}

impl Tally {
    pub(crate) fn of(verdict: Verdict) -> Self {
        let count = |holds| u64::from(holds);
        Self {
            pairs: 1,
            different: count(verdict == Verdict::Different),
            suspect: count(verdict == Verdict::Suspect),
        }
    }

    /// `3 + 2 of 8,000`: DIFFERENT and SUSPECT among correct pairs.
    pub(crate) fn false_alarms(self) -> String {
        format!("{} + {} of {}", self.different, self.suspect, grouped(self.pairs))
    }

    /// The same in short: `3 + 2`, `0` where there were none.
    pub(crate) fn alarms(self) -> String {
        if self.pairs == 0 {
            "–".into()
        } else if self.different + self.suspect == 0 {
            "0".into()
        } else {
            format!("{} + {}", self.different, self.suspect)
        }
    }

    /// The percentage that was not called DIFFERENT, and in parentheses how much of it was called SUSPECT.
    pub(crate) fn missed(self) -> String {
        if self.pairs == 0 {
            return "–".into();
        }
        let percent = |n: u64| 100.0 * n as f64 / self.pairs as f64;
        match percent(self.pairs - self.different) {
            0.0 => "0".into(),
            missed if self.suspect == 0 => format!("{missed:.1}"),
            missed => format!("{missed:.1} ({:.1})", percent(self.suspect)),
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.pairs += other.pairs;
        self.different += other.different;
        self.suspect += other.suspect;
    }
}

/// With a comma every three digits.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    groups.join(",")
}

/// The decision after taps with the noise `inherited`.
pub(crate) fn judge(reference: &Whole<'_>, candidate: &Whole<'_>, inherited: Option<f64>) -> Decision {
    decide(&measure(reference, candidate, None), inherited, false)
}

/// The matrix as it would be captured.
pub(crate) fn whole(matrix: &Matrix, format: Format) -> Whole<'static> {
    let shape = vec![matrix.rows as u64, matrix.width as u64];
    let part = Part::new(Some(0), format.dtype(), &shape, None, format.bytes(&matrix.numbers).into())
        .expect("the bytes are those of the shape");
    Whole { parts: vec![part].into(), root: Node::Part(0), shape, padded: 0 }
}
