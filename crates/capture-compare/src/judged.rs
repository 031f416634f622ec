//! Pairs of tensors, measured in parallel and decided one after the other, and the row that comes of it.

use crate::{
    float::Float,
    report::{RankError, Row, Worst},
    statistics::Statistics,
    verdict::{self, Decision, Measured, RUNNING_BOUND, Verdict},
    whole::Whole,
};
use serde::{Deserialize, Serialize};

/// A pair of tensors, measured, with what is needed to write its row without reading the tensors again.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Judged {
    pub(crate) measured: Measured,
    worst: Option<Worst>,
    /// The element farthest beyond its running bound, where there is one.
    farthest: Option<Worst>,
    n: u64,
    padded: u64,
    /// Parts of the candidate that were read.
    picked: Vec<usize>,
    /// The same for every other replica that holds the same bits.
    twins: Vec<Vec<usize>>,
    /// Global ranks by part.
    ranks: Vec<Option<u32>>,
    /// Whether every number is one part's.
    is_parted: bool,
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
            farthest: None,
            measured,
            n: candidate.len(),
            padded: reference.padded.max(candidate.padded),
            picked: candidate.picked(),
            twins,
            ranks: candidate.parts.iter().map(|p| p.rank).collect(),
            is_parted: !candidate.has_sum(),
        }
    }

    /// Takes in how far a pair is beyond the running bound of its reduction, and where.
    pub(crate) fn bound(&mut self, found: Option<(f64, u64)>, [reference, candidate]: [&Whole<'_>; 2]) {
        self.measured.bound = found.map(|(ratio, _)| ratio);
        self.farthest = found.map(|(_, at)| Worst::at(reference, candidate, at));
    }

    /// The errors of each rank's part, in addition to those of other variants of the row.
    pub(crate) fn add_by_rank(&self, by_rank: &mut Vec<RankError>) {
        let s = &self.measured.statistics;
        let has_units = self.is_parted && s.float.is_some() && s.finite > 0;
        let parts = self.picked.iter().map(|part| (*part, *part));
        // A part that holds the bits of one that was read has its errors.
        let replaced = |twin: &[usize]| self.picked.iter().copied().find(|p| !twin.contains(p));
        let twins = self.twins.iter().flat_map(|twin| {
            let of = replaced(twin);
            twin.iter().filter(|p| !self.picked.contains(p)).filter_map(move |p| Some((*p, of?)))
        });
        for (part, of) in parts.chain(twins).filter(|_| self.is_parted) {
            let Some(rank) = self.ranks[part] else { continue };
            let error = s.parts.get(of).copied().unwrap_or_default();
            let found = |x: f64| (has_units && error.class_changes == 0).then_some(x);
            let [max_units, row_units] = [error.max_units, error.row_units].map(found);
            match by_rank.iter_mut().find(|e| e.rank == rank) {
                Some(known) => {
                    known.max_units = known.max_units.zip(max_units).map(|(a, b)| a.max(b));
                    known.row_units = known.row_units.zip(row_units).map(|(a, b)| a.max(b));
                }
                None => by_rank.push(RankError { rank, max_units, row_units }),
            }
        }
        by_rank.sort_unstable_by_key(|e| e.rank);
    }

    /// Decides after taps with the noise `inherited`.
    pub(crate) fn decide(&self, inherited: Option<f64>, fail_on_nan: bool) -> Decision {
        verdict::decide(&self.measured, inherited, fail_on_nan)
    }

    /// Whether what is `DIFFERENT` is so in most rows.
    pub(crate) fn differs_in_most_rows(&self, inherited: Option<f64>) -> bool {
        verdict::differs_in_most_rows(&self.measured, inherited)
    }

    /// The element that a decision is best seen at.
    pub(crate) fn seen_at(&self, decision: &Decision) -> Option<Worst> {
        let is_bound = decision.test.as_ref().is_some_and(|test| test.name == RUNNING_BOUND);
        self.farthest.clone().filter(|_| is_bound).or_else(|| self.worst.clone())
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
            row.row_units = Some(s.row_units);
            row.max_ulp = Some(s.max_ulp);
            row.inherited_units = inherited.map(|e| e / float.roundoff());
        }
    }
}

/// The first element whose class differs, else the one with the largest error, if any has one: in rounding units, as
/// large numbers may be off by much and be right.
fn worst(reference: &Whole<'_>, candidate: &Whole<'_>, s: &Statistics) -> Option<Worst> {
    let largest = if s.max_units.0 > 0.0 { s.max_units.1 } else { s.max_abs.1 };
    let at = s.class_change.or(s.differs.then_some(largest))?;
    Some(Worst::at(reference, candidate, at))
}
