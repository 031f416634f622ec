//! Placements that the shapes tell: in place of a ready-made one that does not fit, and in place of replicas that are none.

use super::{Opening, SIDES};
use crate::{
    exact::same_bits,
    gather::{Fault, Tensor},
    index::Group,
    pairing::Pair,
    placing::Said,
    report::{PlacementFrom, Row},
    verdict::{Verdict, decide, measure},
    whole::Whole,
};
use capture_core::Placements;

impl<'r> Opening<'_, 'r> {
    /// The tensors of both sides under the placement that was said. Layouts that come with the package go by names alone,
    /// and models differ in what they cut: where such a placement does not fit the shapes, what these tell counts.
    pub(super) fn assemble_or_infer(
        &self,
        row: &mut Row,
        groups: [&Group; 2],
    ) -> Result<([Tensor<'r>; 2], bool), Fault> {
        let mut inferred = self.may_infer().then(|| row.clone());
        let found = self.assemble(row, groups);
        let fits = |found: &([Tensor<'r>; 2], bool)| found.0[0].whole.shape == found.0[1].whole.shape;
        let fails = match &found {
            Ok(found) => !fits(found),
            Err(fault) => matches!(fault, Fault::Layout(_)),
        };
        let Some(inferred) = inferred.as_mut().filter(|_| fails) else { return found };
        let pair = Pair { said: [const { Ok(None) }; 2], ..self.pair.clone() };
        let other = Opening { pair: &pair, ..*self }.assemble(inferred, groups);
        match other.ok().filter(fits) {
            Some(other) => {
                row.clone_from(inferred);
                Ok(other)
            }
            None => found,
        }
    }

    /// Whether the placement is a ready-made one, over the ranks that an inferred one would be over. Sections that another
    /// tap tells are nothing that shapes could say.
    fn may_infer(&self) -> bool {
        let over_tp = |said: &Said| {
            said.as_ref().is_ok_and(|p| p.as_ref().is_some_and(|p| p.0.iter().all(|p| p.over == "tp")))
        };
        let tap = &self.pair.firing.tap;
        let by_name = self.layouts.of(tap).is_some_and(|layout| layout.ready_made);
        let by_shapes = self.layouts.first_section(tap).is_empty();
        let is_said = self.pair.from == PlacementFrom::Layouts && self.pair.said.iter().all(over_tp);
        by_name && by_shapes && is_said
    }

    /// Under the first of other placements that the shapes allow under which replicas are such, as keys of two heads on two
    /// ranks and on four are.
    pub(super) fn assemble_otherwise(
        &self,
        row: &mut Row,
        groups: [&Group; 2],
        mut others: impl Iterator<Item = [Placements; 2]>,
    ) -> Option<([Tensor<'r>; 2], bool)> {
        if self.pair.said.iter().any(|said| !matches!(said, Ok(None))) {
            return None;
        }
        others.find_map(|placements| {
            let said = placements.map(|placements| Ok(Some(placements)));
            let pair = Pair { said, from: PlacementFrom::Inferred, ..self.pair.clone() };
            let mut other = row.clone();
            let found = Opening { pair: &pair, ..*self }.assemble(&mut other, groups).ok()?;
            row.clone_from(&other);
            Some(found)
        })
    }
}

/// What to say where equal shapes alone made replicas of ranks that hold something else: those of a partial sum look the
/// same. Where the ranks of one side do agree they are replicas, and the other side's are wrong. Not every all-reduce adds up
/// in the same order on all ranks: replicas may differ as rounding does.
pub(super) fn no_replicas(sides: [&Whole<'_>; 2]) -> Option<String> {
    let mut found = None;
    for (side, whole) in sides.into_iter().enumerate() {
        let others = whole.alternatives();
        match others.iter().find(|other| !same_bits(whole, other) && !differ_by_rounding(whole, other)) {
            None if !others.is_empty() => return None,
            None => {}
            Some(other) => {
                let own = |of: &Whole<'_>, not: &Whole<'_>| {
                    of.ranks(&of.picked_unlike(not)).first().copied().unwrap_or_default()
                };
                let [a, b] = [own(whole, other), own(other, whole)];
                found.get_or_insert_with(|| {
                    format!(
                        "{}: no placement was given; taken as R, but ranks {a} and {b} differ: is it P? say \
                         placement=\"P\" at the tap or in --layouts (\"R\" where they are meant to be equal)",
                        SIDES[side]
                    )
                });
            }
        }
    }
    found
}

/// Whether rounding may be all that tells two tensors of one run apart; how much of it there was before is not known.
fn differ_by_rounding(a: &Whole<'_>, b: &Whole<'_>) -> bool {
    decide(&measure(a, b, None), None, false).verdict < Verdict::Different
}
