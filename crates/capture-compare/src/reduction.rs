//! Which tap is the result of a reduction whose partial sums were captured: the one that follows a `P` tap in capture
//! order, in the same step, with the same logical shape.

use crate::{
    float::{F32, Float},
    index::{Firing, Group, Index},
    layouts::{Layouts, Side},
    pairing::{groups, in_order, said},
    running::{Sizes, running, terms},
    taps::Taps,
    whole::{Whole, product},
};
use capture_core::{Placements, Sharding, placement::Cut};
use std::collections::HashMap;

/// The partials that feed each result.
#[derive(Debug, Default)]
pub(crate) struct Reductions(HashMap<Firing, Firing>);

impl Reductions {
    /// Finds them from what was said of taps and the shapes of their records.
    pub(crate) fn of(index: &Index<'_>, layouts: &Layouts) -> Self {
        let partial =
            |firing: &Firing| matches!(said(index, firing, layouts).0, Ok(Some(p)) if is_partial(&p));
        // Most runs have none, and their order need not be known.
        if !index.firings().any(partial) {
            return Self::default();
        }
        let mut found = HashMap::new();
        let (mut step, mut waiting) = (0, HashMap::<Vec<u64>, &Firing>::new());
        for firing in in_order(index) {
            if firing.step != step {
                (step, waiting) = (firing.step, HashMap::new());
            }
            let Ok(said) = said(index, firing, layouts).0 else { continue };
            let is_partial = said.as_ref().is_some_and(is_partial);
            if !is_partial && waiting.is_empty() {
                continue;
            }
            let Some(shape) = logical_shape(index, firing, said.as_ref()) else { continue };
            // A scalar or an empty tensor is like any other.
            if product(&shape) < 2 {
                continue;
            }
            if is_partial {
                waiting.insert(shape, firing);
            } else if let Some(of) = waiting.remove(&shape) {
                found.insert(firing.clone(), of.clone());
            }
        }
        Self(found)
    }

    /// The partials that a result was made of.
    pub(crate) fn feeding(&self, result: &Firing) -> Option<&Firing> {
        self.0.get(result)
    }
}

/// A group's result and the partials it was made of.
pub(crate) struct Reduction<'o, 'r> {
    pub(crate) index: &'o Index<'r>,
    /// `None` where none were captured.
    pub(crate) partials: Option<&'o Firing>,
    pub(crate) group: &'o Group,
    pub(crate) layouts: &'o Layouts,
    pub(crate) side: Option<Side>,
}

impl<'r> Reduction<'_, 'r> {
    /// The sum of the partials of several ranks; `None` where it cannot be formed, which the row of the partials says.
    pub(crate) fn sum(&self) -> Option<Whole<'r>> {
        let Self { index, partials: Some(firing), group, layouts, side } = *self else { return None };
        let (placements, _) = said(index, firing, layouts);
        let all = groups(index, firing, &placements, layouts);
        let own = all.iter().find(|g| g.at == group.at)?;
        let taps = Taps { index, firing, layouts, side };
        let rows = index.rows(firing, own, layouts).ok()?;
        let tensor = taps.assemble(taps.gather(own).ok()?, own, &placements.ok()??, rows).ok()?;
        (tensor.head_of.is_none() && terms(&tensor.whole).is_some()).then_some(tensor.whole)
    }

    /// Whether the result is one rank's, which added nothing up.
    fn is_lone(&self) -> bool {
        let mut meshes = self.group.entries.iter().map(|e| self.index.mesh(&self.index.run.entries[*e]));
        meshes.all(|mesh| mesh.dims.iter().all(|d| d.size == 1))
    }
}

/// The partial sums of a pair of results.
pub(crate) struct Reduced<'r> {
    /// The tap that holds them.
    pub(crate) partials: String,
    /// By side; `None` where one rank computed the result by itself.
    sums: [Option<Whole<'r>>; 2],
}

impl<'r> Reduced<'r> {
    /// `None` unless all partial sums are known that rounding had a part in.
    pub(crate) fn of(sides: &[Reduction<'_, 'r>; 2]) -> Option<Self> {
        let partials = sides.iter().find_map(|side| side.partials)?.tap.clone();
        let sums = sides.each_ref().map(Reduction::sum);
        let known = |(side, sum): (&Reduction<'_, 'r>, &Option<_>)| sum.is_some() || side.is_lone();
        let all = sides.iter().zip(&sums).all(known) && sums.iter().any(Option::is_some);
        all.then_some(Self { partials, sums })
    }

    /// The largest error of two results over its running bound, and where. `None` where a side is not the sum of its partials
    /// within that bound: then they are not its partials, or the reduction is at fault; and in formats that accumulate
    /// in their own precision, where partials are off by more than one rounding.
    pub(crate) fn bound(
        &self,
        reference: &Whole<'_>,
        candidate: &Whole<'_>,
        float: Float,
    ) -> Option<(f64, u64)> {
        let mut float = float;
        for part in self.sums.iter().flatten().flat_map(|sum| sum.parts.first()) {
            float = float.coarser(part.float()?);
        }
        if float.precision >= F32.precision {
            return None;
        }
        let mut all = Vec::new();
        for (sum, y) in self.sums.iter().zip([reference, candidate]) {
            let Some(sum) = sum else { continue };
            let terms = terms(sum)?;
            if sum.shape != y.shape || running(&[&terms], sum, y, float, None).worst.0 > 1.0 {
                return None;
            }
            all.push(terms);
        }
        let all: Vec<&[Whole<'_>]> = all.iter().map(Vec::as_slice).collect();
        let sizes = Sizes::of(reference, float);
        let (ratio, at) = running(&all, reference, candidate, float, Some(&sizes)).worst;
        Some((ratio.min(f64::MAX), at))
    }
}

pub(crate) fn is_partial(placements: &Placements) -> bool {
    placements.0.iter().any(|p| p.sharding == Sharding::Partial)
}

/// The shape that records make together, by their headers; `None` where that takes more than a look at them.
fn logical_shape(index: &Index<'_>, firing: &Firing, said: Option<&Placements>) -> Option<Vec<u64>> {
    let entries = index.entries(firing).iter().map(|e| &index.run.entries[*e]);
    let mut shapes = entries.clone().map(|e| e.shape.as_slice());
    let first = shapes.next()?;
    let placements = said.map_or(&[][..], |p| &p.0);
    let axis = match placements {
        [one] => match one.sharding {
            Sharding::Shard { axis, cut: Cut::Plain | Cut::Sections(_) | Cut::Interleave(_), size: None } => {
                axis
            }
            Sharding::Replicate | Sharding::Partial => {
                return shapes.all(|s| s == first).then(|| first.to_vec());
            }
            _ => return None,
        },
        [] => return shapes.all(|s| s == first).then(|| first.to_vec()),
        _ => return None,
    };
    let axis = if axis < 0 { first.len() as i64 + i64::from(axis) } else { i64::from(axis) };
    let axis = usize::try_from(axis).ok().filter(|axis| *axis < first.len())?;
    let mut shape = first.to_vec();
    shape[axis] = 0;
    for entry in entries {
        // Of every rank along the dimension once: others are replicas of other groups.
        let mesh = index.mesh(entry);
        let is_first = mesh.dims.iter().all(|d| d.name == placements[0].over || d.coord == 0);
        if is_first {
            shape[axis] = shape[axis].checked_add(*entry.shape.get(axis)?)?;
        }
    }
    Some(shape)
}
