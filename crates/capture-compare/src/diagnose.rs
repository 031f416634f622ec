//! What explains a difference.
//!
//! A finding is a prediction of the candidate from the reference, fitted to a few rows; it is said only where what remains,
//! everywhere, is rounding under the tests of the verdict ([`case`]). The first that fits, from simple to involved, is said,
//! and none after it: a placement, ranks out of order, a dtype, a factor, a transposition or shift, factors of ranks,
//! another tap added, an order of slices, a place, a vector added to every row. Factors of every rank and row come last, as
//! so many fit the most.
//!
//! In a run with a fault all taps after it differ, and looking for all of that everywhere would take longer than the
//! comparison. The whole search is for the first rows of a report that differ (`Decided::searched`); others are held against a
//! factor and an order of ranks only, and other placements where theirs is a guess. Of a `SUSPECT` row only placements and orders of ranks are said, as noise makes neither.

mod added;
mod bits;
mod case;
mod nearby;
mod order;
mod pattern;
mod placed;
mod ranks;
mod repeated;
mod scaled;

pub(crate) use self::repeated::Repeated;

use self::{case::Case, nearby::Nearby, placed::Placing};
use crate::{
    exact::same_bits,
    index::Group,
    opened::{Opened, Opening},
    report::{Diagnosis, Kind},
    verdict::Verdict,
    walk::{Decided, EARLIER_LAYERS},
    whole::Whole,
};

/// How many numbers of a partial sum are held against the taps before.
const LOOKED_AT: u64 = 4096;

/// What explains a row that is `DIFFERENT` or `SUSPECT`, of which `[a, b]` is the worst variant.
pub(crate) fn diagnose(
    opening: &Opening<'_, '_>,
    groups: [&Group; 2],
    opened: &Opened<'_>,
    [a, b]: [&Whole<'_>; 2],
    decided: &Decided,
) -> Vec<Diagnosis> {
    // What is wrong with scales was said when they were measured.
    if a.is_empty() || opened.are_scales {
        return Vec::new();
    }
    let case = Case::new(a, b, opened.precision, decided.inherited);
    if decided.row.verdict == Some(Verdict::Suspect) {
        // The tensor is as it would be after rounding; it is its layer that stands out.
        if decided.row.test.as_ref().is_some_and(|test| test.name == EARLIER_LAYERS) {
            return Vec::new();
        }
        // Rounding may look like a factor, but never like other rows.
        let found = misplaced(opening, groups, decided).or_else(|| ranks::misplaced(&case));
        return found.into_iter().collect();
    }
    // Where the tests of a finding do not see the difference, they cannot tell what explains it.
    if case.is_sum_of(&[&|from: u64, out: &mut [f64]| a.read(from, out)]) {
        return misplaced(opening, groups, decided).into_iter().collect();
    }
    let whose = whose(&case, opened);
    if !decided.searched {
        let found = misplaced(opening, groups, decided)
            .or_else(|| ranks::misplaced(&case))
            .or_else(|| scaled::scaled(&case, &whose));
        return found.into_iter().collect();
    }
    let nearby = Nearby { opening, groups };
    let one = misplaced(opening, groups, decided)
        .or_else(|| ranks::misplaced(&case))
        .or_else(|| bits::reinterpreted(&case))
        .or_else(|| scaled::scaled(&case, &whose))
        .or_else(|| order::transposed(&case))
        .or_else(|| order::shifted(&case))
        .or_else(|| scaled::scaled_per_rank(&case))
        .or_else(|| added::added_multiple(&case, &nearby))
        .or_else(|| order::reordered(&case));
    if let Some(one) = one {
        // Which tap it was that should have been reduced, where that was captured.
        let first: Vec<u64> = (0..b.len().min(LOOKED_AT)).collect();
        let is_partial = one.kind == Kind::UnreducedPartial;
        let own = is_partial.then(|| nearby.not_reduced(&case, &first)).flatten();
        return own.into_iter().chain([one]).collect();
    }
    match pattern::pattern(&case, &nearby) {
        none if none.is_empty() => {
            let vector = added::constant_vector(&case, &nearby);
            vector.or_else(|| scaled::scaled_per_row(&case)).into_iter().collect()
        }
        some => some,
    }
}

/// Who holds the numbers of a case: the ranks of a replica that is not as the others, with those that hold the same bits.
fn whose(case: &Case<'_, '_>, opened: &Opened<'_>) -> String {
    let Some(rank) = case.odd_rank() else { return "candidate".to_owned() };
    let candidate = &opened.tensors[1];
    let twins = candidate.alternatives().into_iter().chain([candidate.clone()]);
    let twins = twins.filter(|other| same_bits(case.candidate, other)).map(|twin| twin.picked());
    let parts: Vec<usize> = twins.flatten().collect();
    let mut ranks = candidate.ranks(&parts);
    if !ranks.contains(&rank) {
        ranks = vec![rank];
    }
    match ranks.as_slice() {
        [one] => format!("rank {one}"),
        all if all.len() == candidate.ranks(&Whole::parts_of(&candidate.root)).len() => {
            "candidate".to_owned()
        }
        several => {
            format!("each of ranks {}", several.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
        }
    }
}

/// The placement that fits, where the one that was used does not: of a row that is searched, and of any whose placement is
/// a guess, since all layers need one that is right.
pub(crate) fn misplaced(
    opening: &Opening<'_, '_>,
    groups: [&Group; 2],
    decided: &Decided,
) -> Option<Diagnosis> {
    let placing = Placing::new(opening, groups, decided.inherited, decided.row.placement.as_deref());
    placing.filter(|_| decided.searched || decided.row.is_guess())?.fitting()
}
