//! What was said of how a firing is placed, and the groups of ranks that make one tensor each under it.

use crate::{
    index::{Firing, Group, Index},
    layouts::Layouts,
    report::PlacementFrom,
};
use capture_core::{Placements, Sharding};

/// The placement that was said of a firing, if any was; the text that is none.
pub(crate) type Said = Result<Option<Placements>, String>;

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
