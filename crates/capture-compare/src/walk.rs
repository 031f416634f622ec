//! The walk over all rows in capture order: what a tap may be off by is what the taps before it were.
//!
//! The noise E of a group of ranks starts unknown; every tap that is not `DIFFERENT` raises it to its own, λ·u, and it
//! carries over from step to step, as the KV cache does. A run that differs from the reference by rounding only
//! (`--noise`) says instead what each tap may inherit. After a tap in bf16 or fp16 a wider one may inherit half a rounding
//! of that format, whatever the taps showed: a router's probabilities in fp32 are made of logits that no tap need show. A
//! tap whose own noise grew out of proportion to that of the same tap of earlier layers is `SUSPECT`.
//!
//! Ids that differ are `SUSPECT` where all that differ are ties and their scores passed. The rows concerned are left out
//! of later taps ([`crate::ties`]), and others may follow from them: through attention, and through sequences that go on
//! otherwise. So from a tie on what differs in single rows only is `SUSPECT` at most.

use crate::{
    choice::Ruling,
    float::{BF16, Float},
    noise::{direct_units, is_nothing},
    options::Options,
    outcome::{Measurement, Outcome},
    parted::Parted,
    reduction::is_partial,
    report::{Diagnosis, Kind, Row},
    run::FileError,
    verdict::{Decision, Test, Verdict},
};
use capture_core::Placements;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// A row that was decided, and which of its variants decided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Decided {
    /// Number of the pair.
    pub pair: usize,
    /// The row.
    pub row: Row,
    /// The worst of the variants; `None` where nothing was measured.
    pub variant: Option<usize>,
    /// Noise of the taps before, relative.
    pub inherited: Option<f64>,
    /// Whether it is among the first rows that differ, for which every explanation is looked for.
    pub searched: bool,
    /// Rows that were left out.
    pub(crate) parted: Option<Parted>,
}

/// The test that holds a tap against the same of earlier layers.
pub(crate) const EARLIER_LAYERS: &str = "earlier layers";

/// How many rows that differ are searched for every explanation.
const SEARCHED: usize = 16;

/// Decides all outcomes, which are in capture order.
pub(crate) fn walk(outcomes: Vec<Outcome>, options: Options<'_>) -> (Vec<Decided>, Vec<FileError>) {
    let (mut decided, mut errors) = (Vec::new(), Vec::<FileError>::new());
    let mut walk = Walk::default();
    let mut differing = 0;
    for (pair, outcome) in outcomes.into_iter().enumerate() {
        let (mut row, variant, inherited, parted) = match outcome {
            Outcome::Unreadable(error) => {
                walk.verdicts.push(None);
                if !errors.iter().any(|e| e.file == error.file && e.reason == error.reason) {
                    errors.push(error);
                }
                continue;
            }
            Outcome::Settled(row) => {
                let inherited = walk.noise.get(&row.group).copied();
                (*row, None, inherited, None)
            }
            Outcome::Measured(mut measurement) => {
                let parted = measurement.parted.take();
                let (row, variant, inherited) = walk.decide(*measurement, options);
                (row, variant, inherited, parted)
            }
        };
        walk.verdicts.push(row.verdict);
        let differs = matches!(row.verdict, Some(Verdict::Suspect | Verdict::Different | Verdict::Layout));
        // A tie is explained, and so is what may follow from one.
        let differs = differs && row.diagnoses.iter().all(|d| d.kind != Kind::Tie);
        differing += usize::from(differs);
        let searched = differs && differing <= SEARCHED;
        if differs && differing == SEARCHED + 1 {
            let text = format!(
                "not searched for what explains it, nor is what differs after it: the first {SEARCHED} rows were"
            );
            row.diagnoses.push(Diagnosis::new(Kind::Seen, text));
        }
        decided.push(Decided { pair, row, variant, inherited, searched, parted });
    }
    (decided, errors)
}

#[derive(Default)]
struct Walk {
    /// E by group.
    noise: HashMap<Option<String>, f64>,
    /// The roundoff of the coarsest format of 16 bits or more before, by group.
    roundoff: HashMap<Option<String>, f64>,
    /// E by group and tap of partial sums as it was before them: what they are off by is part of the reduction.
    before_partials: HashMap<(Option<String>, String), Option<f64>>,
    layers: Layers,
    /// Of the pairs so far.
    verdicts: Vec<Option<Verdict>>,
    /// The tap of the first tie of a group, and its step.
    ties: HashMap<Option<String>, (String, u64)>,
}

impl Walk {
    /// The worst of the variants makes the row.
    fn decide(&mut self, found: Measurement, options: Options<'_>) -> (Row, Option<usize>, Option<f64>) {
        let Measurement { mut row, variants, floor, partials, ruling, .. } = found;
        let float = variants.first().and_then(|variant| variant.measured.statistics.float);
        let inherited = match options.stored {
            true => Some(0.0),
            false => floor.or_else(|| self.inherited(&row, partials, float)),
        };
        if let Some(float) = float.filter(|float| float.precision >= BF16.precision) {
            let before = self.roundoff.entry(row.group.clone()).or_insert(0.0);
            *before = before.max(float.roundoff());
        }
        let severity = |d: &Decision| (d.verdict, d.test.as_ref().map_or(0.0, |t| t.severity));
        let mut worst: Option<(usize, Decision)> = None;
        let mut ranks = Vec::new();
        let tie = self.ties.get(&row.group).cloned();
        let is_tie = ruling.as_ref().is_some_and(|ruling| self.is_tie(ruling));
        let is_wrong = ruling.as_ref().is_some_and(|ruling| ruling.is_wrong);
        let mut follows = false;
        for (i, variant) in variants.iter().enumerate() {
            let mut decision = variant.decide(inherited, options.fail_on_nan);
            if let (Some(float), false) = (variant.measured.statistics.float, options.stored)
                && decision.verdict < Verdict::Different
            {
                let before = self.noise.entry(row.group.clone()).or_insert(0.0);
                *before = before.max(variant.measured.inheritable(&decision));
                // One of several replicas stands for the layer.
                let grown = (i == 0).then(|| self.layers.growth(&row, decision.noise, float)).flatten();
                if let (Some(severity), Verdict::Rounding, None) = (grown, decision.verdict, floor) {
                    decision.verdict = Verdict::Suspect;
                    decision.test = Some(Test { name: EARLIER_LAYERS.into(), severity });
                }
            }
            if decision.verdict == Verdict::Different {
                let may_follow = tie.is_some() && !is_wrong && !variant.differs_in_most_rows(inherited);
                follows |= may_follow;
                if is_tie || may_follow {
                    decision.verdict = Verdict::Suspect;
                }
            }
            variant.add_by_rank(&mut row.by_rank);
            ranks.extend(variant.ranks(&decision, inherited));
            let is_worse = |w: &Decision| {
                severity(&decision).partial_cmp(&severity(w)).is_some_and(std::cmp::Ordering::is_gt)
            };
            if worst.as_ref().is_none_or(|(_, w)| is_worse(w)) {
                worst = Some((i, decision));
            }
        }
        let Some((variant, decision)) = worst else { return (row, None, inherited) };
        variants[variant].fill(&mut row, inherited);
        row.worst = variants[variant].seen_at(&decision);
        if let Some(ruling) = ruling {
            let kind = if ruling.is_tie { Kind::Tie } else { Kind::WrongChoice };
            row.diagnoses.extend((is_tie || !ruling.is_tie).then(|| Diagnosis::new(kind, ruling.text)));
        }
        if is_tie {
            self.ties.entry(row.group.clone()).or_insert_with(|| (row.tap.clone(), row.step));
        }
        if let (true, Verdict::Suspect, Some((tap, step))) = (follows, decision.verdict, tie) {
            let when = if step == row.step { String::new() } else { format!(" in step {step}") };
            let text = format!("in single rows only, which may follow from the tie at {tap}{when}");
            row.diagnoses.push(Diagnosis::new(Kind::Tie, text));
        }
        row.test = decision.test;
        let missing = row.verdict;
        row.verdict = missing.max(Some(decision.verdict));
        if row.verdict != missing || missing.is_none() {
            ranks.sort_unstable();
            ranks.dedup();
            row.ranks = ranks;
        }
        (row, Some(variant), inherited)
    }

    /// Whether a choice that differs is a tie: every row is one, and the scores passed.
    fn is_tie(&self, ruling: &Ruling) -> bool {
        let scores = self.verdicts.get(ruling.scores).copied().flatten();
        ruling.is_tie && scores.is_some_and(|verdict| verdict <= Verdict::Suspect)
    }

    /// The noise before a row: of a result that stands beside its partial sums, that before those, as far as it is none.
    fn inherited(&mut self, row: &Row, partials: Option<String>, float: Option<Float>) -> Option<f64> {
        let now = self.noise.get(&row.group).copied();
        let placement = row.placement.as_deref().and_then(|text| text.parse::<Placements>().ok());
        if placement.is_some_and(|placement| is_partial(&placement)) {
            self.before_partials.insert((row.group.clone(), row.tap.clone()), now);
        }
        let before = partials.and_then(|tap| *self.before_partials.get(&(row.group.clone(), tap))?);
        let noise = before.filter(|before| float.is_some_and(|float| is_nothing(*before, float))).or(now)?;
        let coarsest = self.roundoff.get(&row.group).copied().unwrap_or(0.0);
        let is_wider = float.is_some_and(|float| float.roundoff() < coarsest);
        Some(if is_wider { noise.max(coarsest / 2.0) } else { noise })
    }
}

/// The noise of the same tap of the layers before, by group and by name with `*` for the layer. Each step starts anew.
#[derive(Default)]
struct Layers {
    step: u64,
    seen: HashMap<(Option<String>, String), Vec<f64>>,
}

impl Layers {
    /// How far the noise is above 2.5 times the largest of the last three layers, and what direct rounding may make;
    /// `None` where it is not, or less than two layers were seen.
    fn growth(&mut self, row: &Row, noise: f64, float: Float) -> Option<f64> {
        if row.step != self.step {
            (self.step, self.seen) = (row.step, HashMap::new());
        }
        let kind = kind(&row.tap)?;
        let seen = self.seen.entry((row.group.clone(), kind)).or_default();
        let largest = seen.iter().rev().take(3).copied().fold(0.0, f64::max);
        let few = seen.len() < 2;
        seen.push(noise);
        let severity = noise / (2.5 * largest).max(direct_units(float) * float.roundoff());
        (!few && severity > 1.0).then_some(severity)
    }
}

/// A tap's name with `*` for the number of its layer, which is the first in it; `None` where there is none. Other numbers
/// tell outputs and inputs of a module apart, which are different tensors.
fn kind(tap: &str) -> Option<String> {
    let from = tap.find(|c: char| c.is_ascii_digit())?;
    let (before, number) = tap.split_at(from);
    Some(format!("{before}*{}", number.trim_start_matches(|c: char| c.is_ascii_digit())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::float::{BF16, F32};

    #[test]
    fn a_tap_that_grew_out_of_proportion_to_earlier_layers_stands_out() {
        let mut layers = Layers::default();
        let u = BF16.roundoff();
        let mut at = |layer: u32, step, noise| {
            let row = Row { tap: format!("layers.{layer}.o_proj"), step, ..Row::default() };
            layers.growth(&row, noise, BF16)
        };
        assert_eq!(at(0, 0, 0.01), None);
        assert_eq!(at(1, 0, 0.9), None, "one layer before is too few");
        assert_eq!(at(2, 0, 0.01), None);
        assert_eq!(at(3, 0, 0.01), None);
        assert_eq!(at(4, 0, 0.01), None);
        assert_eq!(at(5, 0, 0.02), None);
        assert_eq!(at(6, 0, 0.1), Some(0.1 / 0.05));
        assert_eq!(at(7, 1, 0.9), None, "another step");
        // What direct rounding makes is always allowed.
        assert_eq!([at(0, 2, 1e-5), at(1, 2, 1e-5), at(2, 2, 2.0 * u)], [None; 3]);
    }

    /// As of a real model in fp32: nothing is off in the first layer, and a few units of sums in other order in the third.
    #[test]
    fn what_direct_rounding_makes_is_allowed_after_layers_without_noise() {
        let mut layers = Layers::default();
        let u = F32.roundoff();
        let mut at =
            |tap: &str, noise| layers.growth(&Row { tap: tap.to_owned(), ..Row::default() }, noise, F32);
        assert_eq!([at("layers.0.norm", 0.0), at("layers.1.norm", 2.0 * u)], [None; 2]);
        assert_eq!(at("layers.2.norm", 9.0 * u), None);
        assert_eq!(at("layers.3.norm", 40.0 * u), Some(40.0 / 32.0));
    }

    #[test]
    fn the_first_number_in_a_name_is_the_layer() {
        assert_eq!(kind("layers.12.mlp.experts.3.out").as_deref(), Some("layers.*.mlp.experts.3.out"));
        assert_eq!(kind("layers.12.norm.in.1").as_deref(), Some("layers.*.norm.in.1"));
        assert_eq!(kind("layer12").as_deref(), Some("layer*"));
        assert_eq!(kind("embed.out"), None);
    }
}
