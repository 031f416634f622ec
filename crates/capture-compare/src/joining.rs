//! What each side of a comparison has to compare: the firings that were recorded, and those that taps joined under a
//! `[[join]]` make.

use crate::{
    index::{Firing, Index},
    layouts::{Join, Layouts},
};
use std::collections::{BTreeMap, HashMap};

/// A firing of one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    /// What the other side calls it, in this side's own step.
    pub(crate) firing: Firing,
    /// The parts it is joined of; `None` where it was recorded as it is.
    pub(crate) parts: Option<Parts>,
}

/// The parts of a joined tap, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts {
    /// Those that were recorded.
    pub(crate) firings: Vec<Firing>,
    /// The names of those that were not.
    pub(crate) missing: Vec<String>,
    /// Dim along which they lie one after the other.
    pub(crate) dim: i32,
    /// How many make a step of the dim in front that they are stacked along, where they are.
    pub(crate) stacked: Option<usize>,
}

impl Source {
    /// Where it stands in its run's capture order: with the first of its parts.
    pub(crate) fn order(&self, index: &Index<'_>) -> (u64, u32, u64) {
        match &self.parts {
            Some(parts) => parts.firings.iter().map(|f| index.order(f)).min().unwrap_or_default(),
            None => index.order(&self.firing),
        }
    }
}

/// Which part of which whole a tap is.
struct Place<'l> {
    join: &'l Join,
    part: usize,
    captured: Vec<String>,
    whole: String,
}

/// All firings of a side, in no order. Taps are joined where the other side has the whole and not the parts, and this
/// side has no tap of the whole's name.
pub(crate) fn sources(own: &Index<'_>, other: &Index<'_>, layouts: &Layouts) -> Vec<Source> {
    let mut places: HashMap<&str, Place<'_>> = HashMap::new();
    for tap in own.taps() {
        let place = layouts.joins().iter().find_map(|join| {
            let (part, captured) = join.part(tap)?;
            let whole = join.whole(&captured);
            let joined = other.has_tap(&whole) && !own.has_tap(&whole) && !other.has_tap(tap);
            let captured = captured.into_iter().map(str::to_owned).collect();
            joined.then_some(Place { join, part, captured, whole })
        });
        places.extend(place.map(|place| (tap, place)));
    }
    let mut all = Vec::new();
    let mut wholes: HashMap<Firing, (&Place<'_>, BTreeMap<usize, Firing>)> = HashMap::new();
    for firing in own.firings() {
        let Some(place) = places.get(firing.tap.as_str()) else {
            all.push(Source { firing: firing.clone(), parts: None });
            continue;
        };
        let whole = Firing { tap: place.whole.clone(), ..firing.clone() };
        let (_, parts) = wholes.entry(whole).or_insert_with(|| (place, BTreeMap::new()));
        parts.insert(place.part, firing.clone());
    }
    all.extend(wholes.into_iter().map(|(firing, (place, parts))| {
        let captured: Vec<&str> = place.captured.iter().map(String::as_str).collect();
        let last = parts.last_key_value().map_or(0, |(part, _)| *part);
        let all = 0..(last / place.join.len() + 1) * place.join.len();
        let missing = all.filter(|i| !parts.contains_key(i)).map(|i| place.join.name(i, &captured)).collect();
        let firings = parts.into_values().collect();
        let (dim, stacked) = (place.join.dim, place.join.stacked());
        Source { firing, parts: Some(Parts { firings, missing, dim, stacked }) }
    }));
    all
}
