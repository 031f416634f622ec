//! Which logical tensors of two runs are to be compared, in capture order.

use crate::{
    index::{Firing, Group, Index},
    layouts::Layouts,
    report::{PlacementFrom, Row},
};
use capture_core::{Placements, Sharding};
use std::collections::BTreeSet;

/// The placement that was said of a firing, if any was; the text that is none.
pub(crate) type Said = Result<Option<Placements>, String>;

/// One row to be: the groups of both sides, of which one may be missing.
pub(crate) struct Pair {
    pub(crate) firing: Firing,
    pub(crate) label: Option<String>,
    /// Reference and candidate.
    pub(crate) groups: [Option<Group>; 2],
    /// By side.
    pub(crate) said: [Said; 2],
    pub(crate) from: PlacementFrom,
}

impl Pair {
    /// The row, with nothing compared yet.
    pub(crate) fn row(&self) -> Row {
        Row {
            tap: self.firing.tap.clone(),
            step: self.firing.step,
            call: self.firing.call,
            group: self.label.clone(),
            ..Row::default()
        }
    }
}

/// The placement said of a firing, and who said so: the layouts file before the capture calls.
pub(crate) fn said(index: &Index<'_>, firing: &Firing, layouts: &Layouts) -> (Said, PlacementFrom) {
    match layouts.placement(&firing.tap) {
        Some(placement) => (Ok(Some(placement)), PlacementFrom::Layouts),
        None => (index.captured_placement(index.entries(firing)), PlacementFrom::Capture),
    }
}

/// The groups of a firing under the placement said. Scales are on the ranks that the tensor is on that they are of.
pub(crate) fn groups(index: &Index<'_>, firing: &Firing, said: &Said, layouts: &Layouts) -> Vec<Group> {
    let scaled = match said {
        Ok(Some(placements)) => placements.0.iter().find_map(|p| match &p.sharding {
            Sharding::ScaleOf { tap, .. } => Some(Firing { tap: tap.clone(), ..firing.clone() }),
            _ => None,
        }),
        _ => None,
    };
    let said = scaled.map_or_else(|| said.clone(), |of| self::said(index, &of, layouts).0);
    let over: Vec<&str> = match &said {
        Ok(Some(placements)) => placements.0.iter().map(|p| p.over.as_str()).collect(),
        _ => vec!["tp"],
    };
    index.groups(firing, &over)
}

/// All firings of a run, in capture order.
pub(crate) fn in_order<'i>(index: &'i Index<'_>) -> Vec<&'i Firing> {
    let mut firings: Vec<&Firing> = index.firings().collect();
    firings.sort_by_cached_key(|f| (index.order(f), *f));
    firings
}

/// All pairs, in capture order of the reference; what only the candidate has stands where its own order puts it.
pub(crate) fn pairs(reference: &Index<'_>, candidate: &Index<'_>, layouts: &Layouts) -> Vec<Pair> {
    let firings: BTreeSet<&Firing> = reference.firings().chain(candidate.firings()).collect();
    let mut firings: Vec<&Firing> = firings.into_iter().collect();
    firings.sort_by_cached_key(|f| {
        let of_reference = !reference.entries(f).is_empty();
        (if of_reference { reference.order(f) } else { candidate.order(f) }, *f)
    });
    firings.into_iter().flat_map(|f| pairs_of(reference, candidate, layouts, f)).collect()
}

fn pairs_of(reference: &Index<'_>, candidate: &Index<'_>, layouts: &Layouts, firing: &Firing) -> Vec<Pair> {
    let (of_reference, _) = said(reference, firing, layouts);
    let (of_candidate, from) = said(candidate, firing, layouts);
    // One tap is placed alike on both sides.
    let either = |own: &Said, other: &Said| if matches!(own, Ok(None)) { other.clone() } else { own.clone() };
    let a = groups(reference, firing, &either(&of_reference, &of_candidate), layouts);
    let b = groups(candidate, firing, &either(&of_candidate, &of_reference), layouts);
    let pair = |label: Option<String>, groups| Pair {
        firing: firing.clone(),
        label,
        groups,
        said: [of_reference.clone(), of_candidate.clone()],
        from,
    };
    match (a.as_slice(), b.as_slice()) {
        // One logical tensor on one side stands against every replica of the other.
        ([a], b) if !b.is_empty() => {
            b.iter().map(|b| pair(b.label(), [Some(a.clone()), Some(b.clone())])).collect()
        }
        (a, [b]) if !a.is_empty() => {
            a.iter().map(|a| pair(a.label(), [Some(a.clone()), Some(b.clone())])).collect()
        }
        _ => {
            let mut all: Vec<Pair> = a
                .iter()
                .map(|a| pair(a.label(), [Some(a.clone()), b.iter().find(|b| b.at == a.at).cloned()]))
                .collect();
            let new = b.iter().filter(|b| !a.iter().any(|a| a.at == b.at));
            all.extend(new.map(|b| pair(b.label(), [None, Some(b.clone())])));
            all
        }
    }
}
