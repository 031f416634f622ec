//! Pairs of tensors, measured in parallel and decided one after the other, and the row that comes of it.

use crate::{
    float::Float,
    report::{Row, Worst},
    statistics::Statistics,
    verdict::{self, Decision, Measured, Verdict},
    whole::Whole,
};
use rayon::prelude::*;

/// How to compare.
#[derive(Clone, Copy, Default)]
pub struct Options<'p> {
    /// NaN at the same place on both sides is `DIFFERENT`.
    pub fail_on_nan: bool,
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

/// A pair of tensors, measured, with what is needed to write its row without reading the tensors again.
pub(crate) struct Judged {
    pub(crate) measured: Measured,
    worst: Option<Worst>,
    n: u64,
    padded: u64,
    /// Parts of the candidate that were read.
    picked: Vec<usize>,
    /// The same for every other replica that holds the same bits.
    twins: Vec<Vec<usize>>,
    /// Global ranks by part.
    ranks: Vec<Option<u32>>,
}

impl Judged {
    /// Measures a pair of one shape.
    pub(crate) fn measure(
        reference: &Whole<'_>,
        candidate: &Whole<'_>,
        precision: Option<Float>,
        twins: Vec<Vec<usize>>,
    ) -> Self {
        let measured = verdict::measure(reference, candidate, precision);
        Self {
            worst: worst(reference, candidate, &measured.statistics),
            measured,
            n: candidate.len(),
            padded: reference.padded.max(candidate.padded),
            picked: candidate.picked(),
            twins,
            ranks: candidate.parts.iter().map(|p| p.rank).collect(),
        }
    }

    /// Decides after taps with the noise `inherited`.
    pub(crate) fn decide(&self, inherited: Option<f64>, fail_on_nan: bool) -> Decision {
        verdict::decide(&self.measured, inherited, fail_on_nan)
    }

    /// The global ranks whose part differs.
    pub(crate) fn ranks(&self, decision: &Decision, inherited: Option<f64>) -> Vec<u32> {
        if decision.verdict <= Verdict::Rounding {
            return Vec::new();
        }
        let mut guilty = verdict::guilty(&self.measured, decision, inherited, &self.picked);
        // A replica that holds the same bits as a guilty part is guilty too.
        for twin in &self.twins {
            let replaced = |p: &usize| !twin.contains(p) && guilty.contains(p);
            if self.picked.iter().any(replaced) {
                guilty.extend(twin.iter().filter(|p| !self.picked.contains(p)));
            }
        }
        let mut ranks: Vec<u32> = guilty.iter().filter_map(|p| self.ranks[*p]).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Writes what was measured into the row.
    pub(crate) fn fill(&self, row: &mut Row, inherited: Option<f64>) {
        let s = &self.measured.statistics;
        (row.n, row.padded) = (self.n, self.padded);
        (row.nan, row.both_nan) = (s.nan, s.both_nan);
        (row.rel_l2, row.cosine, row.slope) = (s.rel_l2, s.cosine, s.slope);
        row.max_abs = (s.finite > 0).then_some(s.max_abs.0);
        row.worst = self.worst.clone();
        if let (Some(float), true) = (s.float, s.finite > 0) {
            row.max_units = Some(s.max_units.0);
            row.row_units = Some(s.rows.iter().map(|l| l.rms).fold(0.0, f64::max));
            row.max_ulp = Some(s.max_ulp);
            row.inherited_units = inherited.map(|e| e / float.roundoff());
        }
    }
}

/// The first element whose class differs, else the one with the largest error, if any has one.
fn worst(reference: &Whole<'_>, candidate: &Whole<'_>, s: &Statistics) -> Option<Worst> {
    let at = s.class_change.or(s.differs.then_some(s.max_abs.1))?;
    let value = |whole: &Whole<'_>| {
        let mut value = [0.0];
        whole.read(at, &mut value);
        value[0]
    };
    let mut rest = at;
    let mut index: Vec<u64> = candidate
        .shape
        .iter()
        .rev()
        .map(|d| {
            let i = rest % d;
            rest /= d;
            i
        })
        .collect();
    index.reverse();
    let ranks = candidate.ranks(&candidate.owners(at));
    Some(Worst {
        index,
        reference: value(reference),
        candidate: value(candidate),
        rank: ranks.first().copied(),
    })
}
