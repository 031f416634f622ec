//! What a selection means for one tap: which rules can apply, and how often they did in this run.

use super::Selection;
use super::condition::Subject;
use super::rule::Mode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What to do with one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Nothing.
    Skip,
    /// Capture it.
    Capture {
        /// The rule that took it, as an index into [`Selection::rules`].
        rule: usize,
        /// How much is kept; never [`Mode::Off`].
        mode: Mode,
        /// Keep only so many rows of dim 0.
        head: Option<u64>,
    },
}

/// The rules of one selection that name one tap, with the counters of one run. A tap keeps its plan until the
/// selection or the run changes, so that names are matched once and not at every call.
#[derive(Debug)]
pub struct Plan {
    rules: Box<[Planned]>,
}

/// The counters stand alone: nothing else is read on the strength of their values, so relaxed order will do. Where
/// several threads call one tap, which of their calls is the N-th is open; that only one is, is not.
#[derive(Debug)]
struct Planned {
    rule: usize,
    matched: AtomicU64,
    taken: AtomicU64,
}

impl Plan {
    /// The plan of one tap, its counters at zero.
    #[must_use]
    pub fn new(selection: &Selection, tap: &str) -> Self {
        let named = selection.rules().iter().enumerate().filter(|(_, rule)| rule.names(tap));
        let planned = |rule| Planned { rule, matched: AtomicU64::new(0), taken: AtomicU64::new(0) };
        Self { rules: named.map(|(rule, _)| planned(rule)).collect() }
    }

    /// Whether no rule names the tap, so that it is never captured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether nothing more can be captured: every rule that captures has a limit, and has reached it.
    #[must_use]
    pub fn is_exhausted(&self, selection: &Selection) -> bool {
        self.rules.iter().all(|planned| {
            let Some(rule) = selection.rules().get(planned.rule) else { return true };
            rule.mode() == Mode::Off || rule.limit().is_some_and(|n| planned.taken.load(Relaxed) >= n)
        })
    }

    /// Whether nothing of the tensor matters: its rules keep nothing and ask nothing of it.
    #[must_use]
    pub fn needs_no_tensor(&self, selection: &Selection) -> bool {
        self.rules.iter().all(|planned| {
            let rule = selection.rules().get(planned.rule);
            rule.is_none_or(|rule| matches!(rule.mode(), Mode::Trace | Mode::Off) && !rule.asks_of_tensor())
        })
    }

    /// Decides on one tensor and counts it. `selection` is the one the plan was made from.
    ///
    /// The first rule whose conditions hold has the say; `every` and `limit` of that rule may still turn its answer
    /// into [`Decision::Skip`], and no later rule is asked.
    #[must_use]
    pub fn decide(&self, selection: &Selection, subject: &Subject<'_>) -> Decision {
        for planned in &self.rules {
            let Some(rule) = selection.rules().get(planned.rule) else { continue };
            if !rule.holds(subject) {
                continue;
            }
            let taken = rule.mode() != Mode::Off
                && rule.every().is_none_or(|n| planned.matched.fetch_add(1, Relaxed).is_multiple_of(n))
                && rule.limit().is_none_or(|n| {
                    // The load keeps an exhausted counter from being written at every call.
                    planned.taken.load(Relaxed) < n && planned.taken.fetch_add(1, Relaxed) < n
                });
            if !taken {
                return Decision::Skip;
            }
            return Decision::Capture { rule: planned.rule, mode: rule.mode(), head: rule.head() };
        }
        Decision::Skip
    }
}
