//! Steps in which a tap did not fire although it did in most.

use crate::report::{Diagnosis, Kind, Row};
use std::collections::{BTreeMap, BTreeSet};

/// Steps that are told one by one.
const MOST_STEPS: usize = 8;

/// Says of every tap that misses few of the run's steps which those are, at its first row. A tap that fires now and then
/// is captured now and then, by a condition of the selection or of the model.
pub(super) fn note_gaps(rows: &mut [Row]) {
    let all: BTreeSet<u64> = rows.iter().map(|row| row.step).collect();
    let mut fired: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
    for row in rows.iter() {
        fired.entry(&row.tap).or_default().insert(row.step);
    }
    let missed = |steps: &BTreeSet<u64>| -> Vec<u64> {
        // What a tap does after its last step is not known: a limit may have been reached.
        let (first, last) = (steps.first(), steps.last());
        all.difference(steps).filter(|step| Some(*step) > first && Some(*step) < last).copied().collect()
    };
    let gaps: BTreeMap<String, Vec<u64>> = fired
        .iter()
        .map(|(tap, steps)| ((*tap).to_owned(), missed(steps)))
        .filter(|(tap, missed)| !missed.is_empty() && missed.len() * 4 <= fired[tap.as_str()].len())
        .collect();
    let mut told = BTreeSet::new();
    for row in rows {
        if let Some(missed) = gaps.get(&row.tap)
            && told.insert(row.tap.clone())
        {
            let text = format!("did not fire in step{}", list(missed));
            row.diagnoses.push(Diagnosis::new(Kind::Missing, text));
        }
    }
}

/// ` 3`, `s 3, 7`.
fn list(steps: &[u64]) -> String {
    let plural = if steps.len() == 1 { "" } else { "s" };
    let shown: Vec<String> = steps.iter().take(MOST_STEPS).map(u64::to_string).collect();
    let more = match steps.len().saturating_sub(MOST_STEPS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{plural} {}{more}", shown.join(", "))
}
