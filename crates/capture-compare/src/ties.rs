//! Ties, in capture order. Where all rows of a choice that differ are ties, what follows in these rows is another
//! computation: they are left out of later taps of the step that have as many rows. Where the choice is one id a row and
//! nothing with as many rows follows it in the step, it is what the next step begins with, and the rows are left out of
//! later steps, too, as far as these have as many.
//!
//! A row is a tie if both choices stand by their own scores, which differ only by what the verdict on them allows, or if
//! the scores of what was chosen are within 4 times their noise on both sides.

use crate::{
    choice::{Choice, Chosen, Ruling},
    outcome::Outcome,
    parted::{Parted, leading},
};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Rows that are named one by one.
const MOST_NAMED: usize = 8;

/// A pair that is to be measured again, without the rows that parted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Again {
    /// Number of the pair.
    pub(crate) pair: usize,
    pub(crate) parted: Parted,
}

/// Rules on every choice, and says which pairs are to be measured again.
pub(crate) fn rule(outcomes: &mut [Outcome]) -> Vec<Again> {
    let mut all: HashMap<Option<String>, Ties> = HashMap::new();
    let mut again = Vec::new();
    for pair in 0..outcomes.len() {
        let Outcome::Measured(found) = &mut outcomes[pair] else { continue };
        let choice = found.choice.take();
        // Most runs have none.
        if choice.is_none() && all.is_empty() {
            continue;
        }
        let (step, tap) = (found.row.step, found.row.tap.clone());
        let (shape, identical) = (found.shape.clone(), found.is_identical());
        let ties = all.entry(found.row.group.clone()).or_default();
        ties.begin(step);
        ties.pass(&shape);
        let parted = ties.parted(&shape);
        if let Some(mut choice) = choice {
            if let Some(parted) = &parted {
                choice.chosen.retain(|chosen| parted.rows.binary_search(&chosen.row).is_err());
            }
            if let Some(ruling) = ruling(&choice, outcomes) {
                if ruling.is_tie {
                    ties.add(&choice, (tap, step));
                }
                if let Outcome::Measured(found) = &mut outcomes[pair] {
                    found.ruling = Some(ruling);
                }
            }
        }
        again.extend(parted.filter(|_| !identical).map(|parted| Again { pair, parted }));
    }
    again
}

/// What a choice is; `None` where nothing is left that differs, or the scores were not measured.
fn ruling(choice: &Choice, outcomes: &[Outcome]) -> Option<Ruling> {
    let Some(Outcome::Measured(scores)) = outcomes.get(choice.scores) else { return None };
    let measured = &scores.variants.first()?.measured;
    let roundoff = measured.statistics.float?.roundoff();
    let noise = measured.noise.as_ref().map_or(0.0, |noise| noise.relative() / roundoff);
    // As in the tests of elements, noise is at least half a unit.
    let allowed = 4.0 * noise.max(0.5);
    let is_tie = |chosen: &&Chosen| chosen.stands == [true; 2] || chosen.apart / roundoff <= allowed;
    let (ties, others): (Vec<&Chosen>, Vec<&Chosen>) = choice.chosen.iter().partition(is_tie);
    let farthest = |of: &[&Chosen]| of.iter().copied().max_by(|a, b| a.apart.total_cmp(&b.apart)).cloned();
    let (n, rows, tap) = (choice.chosen.len(), choice.shape[0], &choice.tap);
    let text = match (farthest(&ties), farthest(&others)) {
        (None, None) => return None,
        (_, Some(Chosen { row, ids: [a, b], apart, .. })) => {
            let how = match apart / roundoff {
                units if units.is_finite() => format!("{units:.1} units away by {tap}"),
                _ => format!("one of them twice, or without a score in {tap}"),
            };
            format!(
                "{n} of {rows} rows choose otherwise, {} of them no tie: {b} for {a} in row {row}, {how}",
                others.len()
            )
        }
        (Some(Chosen { apart, .. }), None) => format!(
            "a tie broken by rounding: {n} of {rows} rows choose otherwise ({}), at most {:.1} units apart by {tap}",
            named(&ties),
            apart / roundoff
        ),
    };
    let is_wrong = others.iter().any(|chosen| chosen.stands == [true, false]);
    Some(Ruling { scores: choice.scores, is_tie: others.is_empty(), is_wrong, text })
}

/// `3, 17, 40, …`.
fn named(chosen: &[&Chosen]) -> String {
    let mut rows: Vec<String> = chosen.iter().take(MOST_NAMED).map(|c| c.row.to_string()).collect();
    if chosen.len() > MOST_NAMED {
        rows.push("…".to_owned());
    }
    rows.join(", ")
}

/// The rows of one group of ranks that parted so far.
#[derive(Default)]
struct Ties {
    step: u64,
    /// By how many rows there are: those that parted in this step, and in earlier ones for good.
    rows: BTreeMap<u64, Rows>,
}

struct Rows {
    now: BTreeSet<u64>,
    /// Those of the last choice, of one id a row, that nothing followed yet.
    last: BTreeSet<u64>,
    /// Those that parted for good.
    ever: BTreeSet<u64>,
    /// Where the first did.
    at: (String, u64),
}

impl Ties {
    fn begin(&mut self, step: u64) {
        if step == self.step {
            return;
        }
        self.step = step;
        for rows in self.rows.values_mut() {
            rows.now.clear();
            rows.ever.append(&mut rows.last);
        }
        self.rows.retain(|_, rows| !rows.ever.is_empty());
    }

    /// A tensor follows that may have been computed from the last choice.
    fn pass(&mut self, shape: &[u64]) {
        let following = self.rows.iter_mut().filter(|(of, _)| leading(shape, **of).is_some());
        following.for_each(|(_, rows)| rows.last.clear());
    }

    fn parted(&self, shape: &[u64]) -> Option<Parted> {
        let fits = |of: &u64| leading(shape, *of).is_some();
        let (of, rows) =
            self.rows.iter().find(|(of, rows)| fits(of) && !(rows.now.is_empty() && rows.ever.is_empty()))?;
        Some(Parted { of: *of, rows: rows.now.union(&rows.ever).copied().collect(), at: rows.at.clone() })
    }

    fn add(&mut self, choice: &Choice, at: (String, u64)) {
        let [of, width] = choice.shape;
        let none = || Rows { now: BTreeSet::new(), last: BTreeSet::new(), ever: BTreeSet::new(), at };
        let rows = self.rows.entry(of).or_insert_with(none);
        let parted = || choice.chosen.iter().map(|chosen| chosen.row);
        rows.now.extend(parted());
        if width == 1 {
            rows.last = parted().collect();
        }
    }
}
