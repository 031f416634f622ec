//! Which steps of two runs belong together.

use crate::{
    index::{Firing, Index},
    layouts::{Layouts, Side},
    options::PairBy,
    taps::Taps,
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// The steps of the reference by those of the candidate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Steps {
    /// By their number in the run.
    Same,
    /// By something else. A step that is not here belongs to none.
    Paired(HashMap<u64, u64>),
}

impl Steps {
    /// Pairs the steps of two runs. Of several that are alike the first is paired with the first.
    pub(crate) fn new(sides: [&Index<'_>; 2], layouts: &Layouts, by: PairBy) -> Self {
        match by {
            PairBy::Step => Self::Same,
            PairBy::Abs => Self::matched(sides.map(in_process)),
            PairBy::Inputs => {
                let [a, b] = sides;
                Self::matched([inputs(a, layouts, Side::Reference), inputs(b, layouts, Side::Candidate)])
            }
        }
    }

    fn matched<K: std::hash::Hash + Eq>([reference, candidate]: [BTreeMap<u64, K>; 2]) -> Self {
        let mut steps: HashMap<K, VecDeque<u64>> = HashMap::new();
        for (step, key) in reference {
            steps.entry(key).or_default().push_back(step);
        }
        let pair = |(step, key)| Some((step, steps.get_mut(&key)?.pop_front()?));
        Self::Paired(candidate.into_iter().filter_map(pair).collect())
    }

    /// The step of the reference that a step of the candidate belongs to.
    pub(crate) fn of_reference(&self, candidate: u64) -> Option<u64> {
        match self {
            Self::Same => Some(candidate),
            Self::Paired(steps) => steps.get(&candidate).copied(),
        }
    }
}

/// The number that each step has in its process, the first one's where they count differently.
fn in_process(index: &Index<'_>) -> BTreeMap<u64, u64> {
    let mut steps = BTreeMap::new();
    for entry in &index.run.entries {
        steps.entry(entry.record.step).or_insert(entry.record.abs_step);
    }
    steps
}

/// The rows of each step of all its groups, in one order whatever theirs was. Steps whose rows are not known have none.
fn inputs(index: &Index<'_>, layouts: &Layouts, side: Side) -> BTreeMap<u64, Vec<Vec<u64>>> {
    let steps: BTreeSet<u64> = index.run.entries.iter().map(|e| e.record.step).collect();
    let Some(by) = layouts.align().first() else { return BTreeMap::new() };
    let rows = |step| {
        let firing = Firing { step, tap: by.clone(), call: 0 };
        let taps = Taps { index, firing: &firing, layouts, side: Some(side) };
        let mut rows: Vec<Vec<u64>> = Vec::new();
        for group in taps.keyed(by) {
            rows.extend(taps.row_keys(&group.at).ok()?.rows().map(<[u64]>::to_vec));
        }
        rows.sort_unstable();
        (!rows.is_empty()).then_some((step, rows))
    };
    steps.into_iter().filter_map(rows).collect()
}
