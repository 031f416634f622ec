//! What one process's part in a run has come to: what was written, what was lost and why, and how it ended.
//!
//! Shared by the model's threads and the writer. Whoever ends a capture does it here, once, and the first reason stays.

use crate::manifest::{Counters, Loss, RuleCount};
use crate::notice::notice;
use crate::page;
use crate::sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// The most distinct losses that are told apart by tap; later ones are counted under their reason alone.
const MAX_LOSSES: usize = 10_000;
/// The most reasons that are told apart beyond those, and that the log hears of: reasons may carry shapes and names.
const MAX_REASONS: usize = 100;
/// Stands for all reasons beyond those.
const OTHER_REASONS: &str = "other reasons";

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    counters: Counters,
    /// Records by rule of the selection.
    rules: Vec<u64>,
    /// By tap and reason.
    losses: BTreeMap<(String, String), u64>,
    /// Reasons that the log has seen.
    said: BTreeSet<String>,
    /// Devices that can capture nothing any more, of which the log has heard.
    devices: BTreeSet<String>,
    end: Option<End>,
    last_error: Option<String>,
}

/// How a capture ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) reason: String,
    pub(crate) at_ns: u64,
}

/// What a ledger says at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Balance {
    pub(crate) counters: Counters,
    pub(crate) losses: Vec<Loss>,
    pub(crate) rules: Vec<u64>,
    pub(crate) end: Option<End>,
    pub(crate) last_error: Option<String>,
}

impl Balance {
    /// The selection's rules with what each has captured.
    pub(crate) fn rule_counts<'a>(&self, rules: impl Iterator<Item = &'a str>) -> Vec<RuleCount> {
        let counted = self.rules.iter().copied().chain(std::iter::repeat(0));
        rules.zip(counted).map(|(rule, records)| RuleCount { rule: rule.to_owned(), records }).collect()
    }
}

impl Ledger {
    /// A record of `n_bytes` is in the open segment.
    pub(crate) fn record(&self, rule: usize, n_bytes: u64) {
        let mut entries = self.entries.lock();
        entries.counters.records += 1;
        entries.counters.bytes += n_bytes;
        if entries.rules.len() <= rule {
            entries.rules.resize(rule + 1, 0);
        }
        entries.rules[rule] += 1;
    }

    /// A segment was sealed.
    pub(crate) fn segment(&self) {
        self.entries.lock().counters.segments += 1;
    }

    /// A record was to be captured and is not.
    pub(crate) fn lose(&self, tap: &str, reason: &str) {
        self.count(tap, reason, |counters| counters.lost += 1);
    }

    /// What a tap was given cannot be captured.
    pub(crate) fn refuse(&self, tap: &str, reason: &str) {
        self.count(tap, reason, |counters| counters.refused += 1);
    }

    /// Something was amiss, and the record was written all the same.
    pub(crate) fn remark(&self, tap: &str, remark: &str) {
        self.count(tap, remark, |_| ());
    }

    /// Counts one loss, and says a reason that was not said before once the lock is free: others need not wait for
    /// whoever reads the log.
    fn count(&self, tap: &str, reason: &str, count: impl FnOnce(&mut Counters)) {
        let mut entries = self.entries.lock();
        count(&mut entries.counters);
        let is_news = entries.count(tap, reason);
        drop(entries);
        if is_news {
            notice(&format!("tap {tap:?}: {reason}"));
        }
    }

    /// Ends the capture: switches the taps off and says so, unless it had ended before.
    pub(crate) fn end(&self, reason: &str, at_ns: u64) {
        let mut entries = self.entries.lock();
        if entries.end.is_none() {
            entries.end = Some(End { reason: reason.to_owned(), at_ns });
            page::set_on(false);
        }
    }

    /// Ends it because something went wrong, which the user hears of.
    pub(crate) fn fail(&self, reason: &str, at_ns: u64) {
        self.end(reason, at_ns);
        let mut entries = self.entries.lock();
        entries.last_error = Some(reason.to_owned());
        drop(entries);
        notice(&format!("capture ended: {reason}"));
    }

    /// Ends the capture of one device's tensors because something went wrong, which the user hears of once.
    pub(crate) fn fail_device(&self, device: &str, reason: &str) {
        let mut entries = self.entries.lock();
        if !entries.devices.insert(device.to_owned()) {
            return;
        }
        let reason = format!("{device}: {reason}");
        entries.last_error = Some(reason.clone());
        drop(entries);
        notice(&format!("capture of tensors on {reason}; it has ended for that device"));
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.entries.lock().end.is_some()
    }

    /// Has the taps look, unless the capture has ended.
    pub(crate) fn switch_on(&self) {
        let entries = self.entries.lock();
        if entries.end.is_none() {
            page::set_on(true);
        }
    }

    pub(crate) fn balance(&self) -> Balance {
        self.brief(usize::MAX)
    }

    /// The same with the first `n_losses` of the losses.
    pub(crate) fn brief(&self, n_losses: usize) -> Balance {
        let entries = self.entries.lock();
        let loss = |((tap, reason), count): (&(String, String), &u64)| Loss {
            tap: tap.clone(),
            reason: reason.clone(),
            count: *count,
        };
        Balance {
            counters: entries.counters,
            losses: entries.losses.iter().take(n_losses).map(loss).collect(),
            rules: entries.rules.clone(),
            end: entries.end.clone(),
            last_error: entries.last_error.clone(),
        }
    }
}

impl Entries {
    /// Counts one loss; true where the user is to hear of it.
    fn count(&mut self, tap: &str, reason: &str) -> bool {
        let own = (tap.to_owned(), reason.to_owned());
        let by_reason = (String::new(), reason.to_owned());
        let has_room =
            |key: &(String, String), limit| self.losses.len() < limit || self.losses.contains_key(key);
        let key = if has_room(&own, MAX_LOSSES) {
            own
        } else if has_room(&by_reason, MAX_LOSSES + MAX_REASONS) {
            by_reason
        } else {
            (String::new(), OTHER_REASONS.to_owned())
        };
        *self.losses.entry(key).or_default() += 1;
        // One line per kind of loss: 700 taps that all meet a sparse tensor are one thing to know.
        self.said.len() < MAX_REASONS && self.said.insert(reason.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_end_stays() {
        let ledger = Ledger::default();
        ledger.end("steps done", 7);
        ledger.end("exit", 8);
        assert_eq!(ledger.balance().end, Some(End { reason: "steps done".into(), at_ns: 7 }));
    }

    #[test]
    fn losses_are_told_apart_by_tap_and_reason_up_to_a_bound() {
        let ledger = Ledger::default();
        for i in 0..MAX_LOSSES + 5 {
            ledger.lose(&format!("t{i}"), "full");
        }
        ledger.lose("t0", "full");
        ledger.refuse("t0", "it is sparse");
        let balance = ledger.balance();
        assert_eq!((balance.counters.lost, balance.counters.refused), (MAX_LOSSES as u64 + 6, 1));
        let count = |tap: &str, reason: &str| {
            balance.losses.iter().find(|l| l.tap == tap && l.reason == reason).map(|l| l.count)
        };
        assert_eq!(
            (count("t0", "full"), count("", "full"), count("", "it is sparse")),
            (Some(2), Some(5), Some(1))
        );
    }

    /// A name or a shape in a reason makes each of them another one.
    #[test]
    fn reasons_are_bounded_too() {
        let ledger = Ledger::default();
        for i in 0..MAX_LOSSES + MAX_REASONS + 7 {
            ledger.lose("t", &format!("shape {i}"));
        }
        let losses = ledger.balance().losses;
        assert_eq!(losses.len(), MAX_LOSSES + MAX_REASONS + 1);
        assert_eq!(losses.iter().find(|l| l.reason == OTHER_REASONS).map(|l| l.count), Some(7));
    }

    #[test]
    fn rules_that_never_captured_are_named() {
        let ledger = Ledger::default();
        ledger.record(1, 10);
        let counts = ledger.balance().rule_counts(["a", "b", "c"].into_iter());
        assert_eq!(counts.iter().map(|c| c.records).collect::<Vec<_>>(), [0, 1, 0]);
    }
}
