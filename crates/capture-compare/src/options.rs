//! How to compare.

use crate::run::Run;
use rayon::prelude::*;

/// What tells that a step of one run is one of the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PairBy {
    /// Its number in the run.
    #[default]
    Step,
    /// Its number in the process.
    Abs,
    /// Equal rows of the taps that the layouts file aligns by.
    Inputs,
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
    /// A second run of the reference that differs from it by rounding only: what it is off by is allowed.
    pub noise: Option<&'p Run>,
    /// Called after each row, from any thread, with the bytes of its records.
    pub progress: Option<&'p (dyn Fn(u64) + Sync)>,
}

impl Options<'_> {
    /// Does the work on all items in parallel, reporting how many bytes each was.
    pub(crate) fn map<T: Sync, R: Send>(
        &self,
        items: &[T],
        n_bytes: impl Fn(&T) -> u64 + Sync,
        work: impl Fn(&T) -> R + Sync,
    ) -> Vec<R> {
        let one = |item| {
            let result = work(item);
            if let Some(progress) = self.progress {
                progress(n_bytes(item));
            }
            result
        };
        items.par_iter().map(one).collect()
    }
}
