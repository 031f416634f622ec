//! The scores that ids were chosen by: a tap of floats captured before them, in the same step and call, with as many rows
//! and a score for every id. The nearest counts by whose scores all that the reference chose stands, or the one that the
//! layouts file names.

use crate::{
    choice::{Choice, Choosing},
    float::Float,
    index::Index,
    layouts::{Layouts, Side},
    opened::{Opened, Opening},
    pairing::Pair,
    report::{Diagnosis, Kind, Row},
    run::Entry,
    transform::Transform,
};

/// Taps that are looked at before those of a choice are given up on.
const MOST_TAPS: usize = 8;

/// What was chosen by scores where ids differ, and what to say where the scores that were named are not there. `number` is
/// that of the ids' pair; `opening` opens any.
pub(crate) fn choice<'o, 'r: 'o>(
    pairs: &'o [Pair],
    number: usize,
    ids: &Opened<'r>,
    opening: impl Fn(usize) -> Opening<'o, 'r>,
    row: &mut Row,
) -> Option<Choice> {
    let Opening { layouts, indices, .. } = opening(number);
    let own = &pairs[number];
    let named = layouts.scores(&own.firing.tap);
    let ordered = !are_sets(layouts, &own.firing.tap);
    let is_near = |pair: &&Pair| pair.firing.step == own.firing.step;
    let before = pairs[..number].iter().enumerate().rev().take_while(|(_, pair)| is_near(pair));
    let is_like = |pair: &Pair| pair.firing.call == own.firing.call && pair.label == own.label;
    let may_be = |pair: &Pair| match &named {
        Some(named) => pair.firing.tap == *named,
        None => (0..2).all(|side| may_be_scores(indices[side], pair, side, ids.tensors[side].len())),
    };
    let found =
        before.filter(|(_, pair)| is_like(pair) && may_be(pair)).take(MOST_TAPS).find_map(|(at, pair)| {
            let [Some(a), Some(b)] = &pair.groups else { return None };
            let scores = opening(at).open(&mut pair.row(), [a, b]).ok()?;
            let choosing = Choosing::new(&ids.tensors, &scores.tensors, scores.precision, ordered)?;
            if named.is_none() && !choosing.is_by_scores() {
                return None;
            }
            let (tap, shape) = (pair.firing.tap.clone(), choosing.shape());
            Some(choosing.chosen().map(|chosen| Choice { scores: at, tap, shape, chosen }))
        });
    if let (None, Some(named)) = (&found, named) {
        let text = format!(
            "scores: expected tap {named:?} before it in step {}, with a row of scores for each row of ids, found none",
            own.firing.step
        );
        row.diagnoses.push(Diagnosis::new(Kind::Placement, text));
    }
    found.flatten()
}

/// Whether rows of the tap are sets on both sides.
fn are_sets(layouts: &Layouts, tap: &str) -> bool {
    [Side::Reference, Side::Candidate]
        .into_iter()
        .all(|side| layouts.transforms(tap, Some(side)).contains(&Transform::SetRows))
}

/// Whether headers allow that a side of a pair holds scores for as many ids.
fn may_be_scores(index: &Index<'_>, pair: &Pair, side: usize, ids: u64) -> bool {
    let Some(group) = &pair.groups[side] else { return false };
    let mut entries = group.entries.iter().map(|e| &index.run.entries[*e]);
    let numbers = entries.clone().map(Entry::numel).fold(0u64, u64::saturating_add);
    numbers > ids && entries.all(|e| Float::of(e.dtype).is_some())
}
