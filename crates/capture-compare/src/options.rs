//! How to compare.

use crate::run::Run;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// What tells that a step of one run is one of the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PairBy {
    /// Its number in the run.
    #[default]
    Step,
    /// Its number in the process.
    Abs,
    /// Equal rows of the taps that the layouts file aligns by.
    Inputs,
}

impl FromStr for PairBy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "step" => Ok(Self::Step),
            "abs" => Ok(Self::Abs),
            "inputs" => Ok(Self::Inputs),
            _ => Err(format!("expected step, abs or inputs, found {name:?}")),
        }
    }
}

/// What becomes of a tensor that only one side has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum OneSided {
    /// It is `MISSING` on the other.
    #[default]
    Missing,
    /// It is left out if the reference has it: a checkpoint holds more than was captured.
    OfReferenceLeftOut,
    /// It is left out.
    LeftOut,
}

impl OneSided {
    /// Whether what only that side has is left out.
    pub(crate) fn leaves_out(self, side: usize) -> bool {
        self == Self::LeftOut || (self == Self::OfReferenceLeftOut && side == 0)
    }
}

/// How to compare.
#[derive(Clone, Copy, Default)]
pub struct Options<'p> {
    /// NaN at the same place on both sides is `DIFFERENT`.
    pub fail_on_nan: bool,
    /// Rows have a [`crate::detail::Detail`], for a page.
    pub details: bool,
    /// Which steps of the runs belong together.
    pub pair: PairBy,
    /// What becomes of taps, steps and ranks that one side lacks.
    pub one_sided: OneSided,
    /// Both sides are stored and not computed, as weights are: only a cast may make them differ, and none inherits noise
    /// of another.
    pub stored: bool,
    /// A second run of the reference that differs from it by rounding only: what it is off by is allowed.
    pub noise: Option<&'p Run>,
    /// Called after each row, from any thread, with the bytes of its records.
    pub progress: Option<&'p (dyn Fn(u64) + Sync)>,
    /// Once it is set no more rows are begun, and the report is of no use.
    pub cancelled: Option<&'p AtomicBool>,
}

impl Options<'_> {
    /// Does the work on all items in parallel, reporting how many bytes each was. After it was cancelled items are
    /// missing.
    pub(crate) fn map<T: Sync, R: Send>(
        &self,
        items: &[T],
        n_bytes: impl Fn(&T) -> u64 + Sync,
        work: impl Fn(&T) -> R + Sync,
    ) -> Vec<R> {
        let one = |item| {
            // Nothing else is read by virtue of the flag.
            if self.cancelled.is_some_and(|cancelled| cancelled.load(Ordering::Relaxed)) {
                return None;
            }
            let result = work(item);
            if let Some(progress) = self.progress {
                progress(n_bytes(item));
            }
            Some(result)
        };
        items.par_iter().filter_map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn no_item_is_begun_after_it_was_cancelled() {
        let (cancelled, begun) = (AtomicBool::new(false), AtomicUsize::new(0));
        let options = Options { cancelled: Some(&cancelled), ..Options::default() };
        let items: Vec<u64> = (0..100_000).collect();
        let work = |item: &u64| {
            begun.fetch_add(1, Ordering::Relaxed);
            cancelled.store(true, Ordering::Relaxed);
            *item
        };
        let done = options.map(&items, |_| 0, work);
        assert!((1..1000).contains(&done.len()), "{} were done", done.len());
        assert_eq!(done.len(), begun.into_inner());
        assert_eq!(Options::default().map(&items, |_| 0, |item| *item), items);
    }
}
