//! The other taps of a step, as logical tensors.

use super::case::Case;
use crate::{
    gather::gather,
    index::{Firing, Group, Index},
    opened::Opening,
    pairing::{groups, said},
    report::{Diagnosis, Kind},
    whole::Whole,
};
use capture_core::{Placement, Placements, Sharding};

/// How many numbers are looked at to tell a rank's own input.
const LEAST: usize = 4;

/// The other taps of the step of a pair.
pub(crate) struct Nearby<'o, 'r> {
    pub(crate) opening: &'o Opening<'o, 'r>,
    pub(crate) groups: [&'o Group; 2],
}

impl<'r> Nearby<'_, 'r> {
    /// Every other tap that makes a tensor of `len` numbers, in capture order: the candidate's, then the
    /// reference's. One of which nothing was said is taken for replicas, and whether its ranks agree is left to look at, as
    /// that reads all of it.
    pub(crate) fn of_length(&self, len: u64) -> impl Iterator<Item = (String, Whole<'r>)> {
        [1, 0].into_iter().flat_map(move |side| {
            let firings = others(self.opening.indices[side], &self.opening.pair.own(side));
            firings.into_iter().filter_map(move |firing| {
                let whole = self.whole(side, firing, len)?;
                Some((firing.tap.clone(), whole))
            })
        })
    }

    /// That a replica which is not as the others holds its rank's own input at some places: what it should have reduced.
    pub(crate) fn not_reduced(&self, case: &Case<'_, '_>, places: &[u64]) -> Option<Diagnosis> {
        let rank = case.odd_rank()?;
        let value = |at: &u64| {
            let mut value = [0.0];
            case.candidate.read(*at, &mut value);
            value[0]
        };
        let values: Vec<f64> = places.iter().map(value).collect();
        let Opening { indices, layouts, pair, .. } = self.opening;
        let of = (rank, case.candidate.len());
        let tap = own_input(indices[1], layouts, &pair.firing, of, places, &values)?;
        let text = format!("rank {rank}'s output there is its own {tap}: not reduced");
        Some(Diagnosis::new(Kind::NotReduced, text))
    }

    fn whole(&self, side: usize, firing: &Firing, len: u64) -> Option<Whole<'r>> {
        let (index, layouts) = (self.opening.indices[side], self.opening.layouts);
        // Sizes of parts rule most taps out without opening them.
        let numel = index.entries(firing).iter().map(|e| index.run.entries[*e].numel());
        let (all, one) = numel.fold((0u64, false), |(all, one), n| (all.saturating_add(n), one || n == len));
        if !one && all < len {
            return None;
        }
        let taps = self.opening.taps(side, firing);
        let (placed, _) = said(index, firing, layouts);
        let all = groups(index, firing, &placed, layouts);
        let own = all.iter().find(|g| g.at == self.groups[side].at).or(all.first())?;
        let gathered = taps.gather(own).ok()?;
        let replicated =
            || Placements(vec![Placement { sharding: Sharding::Replicate, over: "tp".to_owned() }]);
        let placements = placed.ok()?.unwrap_or_else(replicated);
        let whole = taps.assemble(gathered, own, &placements, None).ok()?.whole;
        (whole.len() == len).then_some(whole)
    }
}

/// The tap of the same step at which rank `rank` holds `values` at `places`, in a tensor of `len` numbers that differs
/// from rank to rank: what it should have reduced. Both are flat; `values` are of the tap `of`.
fn own_input(
    index: &Index<'_>,
    layouts: &crate::Layouts,
    of: &Firing,
    (rank, len): (u32, u64),
    places: &[u64],
    values: &[f64],
) -> Option<String> {
    if values.iter().filter(|x| **x != 0.0 && x.is_finite()).count() < LEAST {
        return None;
    }
    others(index, of).into_iter().find_map(|firing| {
        let entries = index.entries(firing);
        let own = entries.iter().find(|e| index.rank(**e) == Some(rank))?;
        let replicated = |p: &Placements| p.0.iter().all(|p| p.sharding == Sharding::Replicate);
        if index.run.entries[*own].numel() != len
            || entries.len() < 2
            || said(index, firing, layouts).0.is_ok_and(|said| said.as_ref().is_some_and(replicated))
        {
            return None;
        }
        let parts = gather(index, entries).ok()?.members;
        let part = &parts.iter().find(|m| m.part.rank == Some(rank))?.part;
        if part.len() != len || parts.iter().all(|m| m.part == *part) {
            return None;
        }
        let holds = places.iter().zip(values).all(|(at, x)| {
            let mut number = [0.0];
            part.read(*at, &mut number);
            number[0].to_bits() == x.to_bits()
        });
        holds.then(|| firing.tap.clone())
    })
}

/// The other taps of a step, by name.
fn others<'i>(index: &'i Index<'_>, of: &Firing) -> Vec<&'i Firing> {
    let mut all: Vec<&Firing> = index.firings().filter(|f| f.step == of.step && f.tap != of.tap).collect();
    all.sort_by_cached_key(|f| (index.order(f), *f));
    all
}
