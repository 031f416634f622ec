//! A placement under which the tensors agree: tried as if it stood in the layouts file, so that pasting it there makes the
//! comparison pass.

use super::{
    case::Case,
    order::{name, runs, slices},
};
use crate::{
    index::Group,
    opened::{Opened, Opening},
    pairing::Pair,
    report::{Diagnosis, Kind, PlacementFrom},
    variants::variants,
    verdict::{Verdict, decide, measure},
    whole::Whole,
};
use capture_core::{Placement, Placements, Sharding, placement::Cut};

/// A pair whose placement is in question.
pub(crate) struct Placing<'o, 'r> {
    opening: &'o Opening<'o, 'r>,
    groups: [&'o Group; 2],
    inherited: Option<f64>,
    used: Placements,
}

impl<'o, 'r> Placing<'o, 'r> {
    /// `None` where nothing is placed, as one rank alone holds each side, or the place follows from another tap's.
    pub(crate) fn new(
        opening: &'o Opening<'o, 'r>,
        groups: [&'o Group; 2],
        inherited: Option<f64>,
        used: Option<&str>,
    ) -> Option<Self> {
        let over_tp = || Placements(vec![Placement { sharding: Sharding::Replicate, over: "tp".to_owned() }]);
        let said = opening.pair.said.iter().find_map(|said| said.clone().ok().flatten());
        let used = used.and_then(|used| used.parse().ok()).or(said).unwrap_or_else(over_tp);
        let several = groups.iter().any(|g| g.entries.len() > 1);
        let is_scale = used.0.iter().any(|p| matches!(p.sharding, Sharding::ScaleOf { .. }));
        // What a joined side is made of has placements of its own.
        let is_joined = opening.pair.joined.iter().any(Option::is_some);
        (several && !is_scale && !is_joined).then_some(Self { opening, groups, inherited, used })
    }

    /// The simplest placement that fits.
    pub(crate) fn fitting(&self) -> Option<Diagnosis> {
        (0..self.used.0.len()).find_map(|at| self.plain(at).or_else(|| self.sections(at)))
    }

    fn with(&self, at: usize, sharding: Sharding) -> Placements {
        let mut placements = self.used.clone();
        placements.0[at].sharding = sharding;
        placements
    }

    fn open(&self, placements: &Placements) -> Option<Opened<'r>> {
        let said = [0; 2].map(|_| Ok(Some(placements.clone())));
        let pair = Pair { said, from: PlacementFrom::Layouts, ..self.opening.pair.clone() };
        let opening = Opening { pair: &pair, ..*self.opening };
        opening.open(&mut pair.row(), self.groups).ok()
    }

    /// Whether all that there is passes under a placement.
    fn passes(&self, opened: &Opened<'r>) -> bool {
        variants(&opened.tensors).pairs.iter().all(|[a, b]| {
            let quick = Case::new(a, b, opened.precision, self.inherited);
            quick.is(a) && {
                let measured = measure(a, b, opened.precision);
                decide(&measured, self.inherited, false).verdict <= Verdict::Rounding
            }
        })
    }

    /// The placements without sections, and those whose tail is padding.
    fn plain(&self, at: usize) -> Option<Diagnosis> {
        let ranks = self.groups.iter().map(|g| g.entries.len() as u64).max()?;
        let shard = |axis: usize, cut| Sharding::Shard { axis: axis as i32, cut, size: None };
        let dims = self.dims();
        let slices = (0..dims).map(|axis| shard(axis, Cut::Plain));
        let shares = (2..ranks).filter(|k| ranks.is_multiple_of(*k));
        let groups = shares.flat_map(|k| (0..dims).map(move |axis| shard(axis, Cut::Groups(k))));
        let all = [Sharding::Replicate].into_iter().chain(slices).chain([Sharding::Partial]).chain(groups);
        for sharding in all.chain(self.padded()) {
            let placements = self.with(at, sharding.clone());
            if placements == self.used || !self.open(&placements).is_some_and(|opened| self.passes(&opened)) {
                continue;
            }
            let fits = format!("{placements} would fit");
            let (kind, text) = match &sharding {
                Sharding::Partial => {
                    let missing = "the all-reduce is missing, or the tap stands before it";
                    (Kind::UnreducedPartial, format!("each rank holds a partial sum: {missing}: then {fits}"))
                }
                Sharding::Shard { axis, size: Some(size), .. } => {
                    (Kind::Placement, format!("what is past {size} in dim {axis} is padding: {fits}"))
                }
                Sharding::Shard { axis, cut: Cut::Groups(_), .. } => {
                    (Kind::Placement, format!("neighbouring ranks hold the same slice of dim {axis}: {fits}"))
                }
                Sharding::Shard { axis, .. } => (
                    Kind::Placement,
                    format!("the ranks' tensors joined along dim {axis} are the reference: {fits}"),
                ),
                Sharding::Replicate | Sharding::ScaleOf { .. } => {
                    (Kind::Placement, format!("every rank holds the whole: {fits}"))
                }
            };
            return Some(suggestion(kind, text, &placements));
        }
        None
    }

    /// The dims of the records.
    fn dims(&self) -> usize {
        let entries = self
            .groups
            .iter()
            .zip(self.opening.indices)
            .flat_map(|(group, index)| group.entries.iter().map(|e| index.run.entries[*e].shape.len()));
        entries.min().unwrap_or(0)
    }

    /// Slices that add up to more than the other side has, along one dim.
    fn padded(&self) -> Vec<Sharding> {
        let shapes = [0, 1].map(|side| {
            let index = self.opening.indices[side];
            let entries = self.groups[side].entries.iter();
            entries.map(|e| index.run.entries[*e].shape.clone()).collect::<Vec<_>>()
        });
        let (whole, several) = match &shapes {
            [one, several] if one.len() == 1 => (&one[0], several),
            [several, one] if one.len() == 1 => (&one[0], several),
            _ => return Vec::new(),
        };
        // What leaves a rank no part of its own is no padding: that rank is wrong and would no longer be looked at.
        let fits = |axis: &usize| {
            let slices = || several.iter().filter_map(|s| s.get(*axis)).filter(|n| **n > 0);
            let padding = slices().fold(0u64, |n, d| n.saturating_add(*d)).saturating_sub(whole[*axis]);
            padding > 0 && slices().all(|slice| padding < *slice)
        };
        let sized =
            |axis: usize| Sharding::Shard { axis: axis as i32, cut: Cut::Plain, size: Some(whole[axis]) };
        (0..whole.len()).filter(fits).map(sized).collect()
    }

    /// Sections, found from where the slices are that the first rank holds: it has the head of every section.
    fn sections(&self, at: usize) -> Option<Diagnosis> {
        let several = match self.groups.map(|g| g.entries.len() > 1) {
            [true, false] => 0,
            [false, true] => 1,
            _ => return None,
        };
        (0..self.dims()).find_map(|axis| {
            let shard = |cut| Sharding::Shard { axis: axis as i32, cut, size: None };
            let opened = self.open(&self.with(at, shard(Cut::Plain)))?;
            let [a, b] = &opened.tensors;
            let (other, sharded) = if several == 1 { (a, b) } else { (b, a) };
            let order = slices(other, sharded, axis)?;
            let heads = runs(order.get(..first_slice(sharded, axis)?)?);
            let starts: Vec<u64> = heads.iter().map(|(from, _)| *from).collect();
            if starts.first() != Some(&0) || !starts.is_sorted() {
                return None;
            }
            let ends = starts.iter().skip(1).copied().chain([sharded.shape[axis]]);
            let sections = starts.iter().zip(ends).map(|(from, to)| to - from).collect();
            let placements = self.with(at, shard(Cut::Sections(sections)));
            let passes = self.open(&placements).is_some_and(|opened| self.passes(&opened));
            let slices = name(axis, sharded.shape.len());
            let text = format!("the same {slices} in another order: {placements} would fit");
            passes.then(|| suggestion(Kind::Reordered, text, &placements))
        })
    }
}

/// How many slices of a dim the first rank holds.
fn first_slice(whole: &Whole<'_>, axis: usize) -> Option<usize> {
    let part = *whole.picked().first()?;
    whole.parts[part].shape.get(axis).map(|n| *n as usize)
}

fn suggestion(kind: Kind, text: String, placements: &Placements) -> Diagnosis {
    Diagnosis { suggest: Some(placements.to_string()), ..Diagnosis::new(kind, text) }
}
