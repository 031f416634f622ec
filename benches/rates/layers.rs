//! False alarms and misses on single layers, by dtype, noise before, kind of layer and fault.

use crate::{
    fault::Fault,
    judge::{Tally, judge, whole},
    layer::{Kind, Recipe},
    linear::Sharding,
    number::Format,
};
use capture_compare::Verdict;
use rayon::prelude::*;

/// What is drawn: how many seeds of each kind, and of what shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    pub(crate) seeds: u64,
    pub(crate) tokens: usize,
    pub(crate) inner: usize,
    pub(crate) width: usize,
}

/// The verdicts on one dtype after one noise, by kind.
pub(crate) struct Rates {
    pub(crate) format: Format,
    pub(crate) kinds: Vec<KindRates>,
}

/// The verdicts on one kind of layer.
#[derive(Clone, Default)]
pub(crate) struct KindRates {
    pub(crate) correct: Tally,
    /// In the order of [`Fault::ALL`].
    pub(crate) faults: [Tally; Fault::ALL.len()],
    /// The tests that raised false alarms, with their severities.
    pub(crate) alarms: Vec<String>,
}

impl Rates {
    pub(crate) fn correct(&self) -> Tally {
        sum(self.kinds.iter().map(|k| k.correct))
    }

    pub(crate) fn fault(&self, fault: usize) -> Tally {
        sum(self.kinds.iter().map(|k| k.faults[fault]))
    }
}

pub(crate) fn sum(tallies: impl Iterator<Item = Tally>) -> Tally {
    tallies.fold(Tally::default(), |mut all, tally| {
        all += tally;
        all
    })
}

/// Judges every kind of layer on every seed, correct and with every fault that suits it.
pub(crate) fn measure(draw: Draw, format: Format, noise: f32) -> Rates {
    let work: Vec<(Kind, u64)> =
        Kind::ALL.into_iter().flat_map(|kind| (0..draw.seeds).map(move |seed| (kind, seed))).collect();
    let one = |&(kind, seed): &(Kind, u64)| {
        let Draw { tokens, inner, width, .. } = draw;
        let recipe = |format| Recipe { kind, format, tokens, inner, width, noise, seed };
        kind.arithmetic(format).map_or_else(KindRates::default, |format| rates_of(recipe(format)))
    };
    let found: Vec<KindRates> = work.par_iter().map(one).collect();
    let kinds = found.chunks(draw.seeds as usize).map(|seeds| {
        let mut all = KindRates::default();
        for rates in seeds {
            all.correct += rates.correct;
            all.faults.iter_mut().zip(rates.faults).for_each(|(all, tally)| *all += tally);
            all.alarms.extend(rates.alarms.iter().cloned());
        }
        all
    });
    Rates { format, kinds: kinds.collect() }
}

fn rates_of(recipe: Recipe) -> KindRates {
    let Recipe { kind, format, noise, seed, .. } = recipe;
    let right = recipe.compute(Sharding::Right);
    // The input that the layer shares with the one before stands for all taps before it.
    let before = Some(judge(&whole(&right.input[0], format), &whole(&right.input[1], format), None).noise);
    let stored = right.stored;
    let reference = whole(&right.output[0], stored);
    let decision = judge(&reference, &whole(&right.output[1], stored), before);
    let mut rates = KindRates { correct: Tally::of(decision.verdict), ..KindRates::default() };
    if decision.verdict > Verdict::Rounding {
        let why = decision.test.map_or("class".into(), |test| format!("{} {:.2}", test.name, test.severity));
        rates.alarms.push(format!("{} seed {seed}: {why}", kind.name()));
    }
    for (fault, tally) in Fault::ALL.into_iter().zip(&mut rates.faults) {
        if !fault.suits(kind, noise) {
            continue;
        }
        let wrong = match fault.sharding() {
            Some(sharding) => Some(recipe.compute(sharding).output[1].clone()),
            None => fault.inject(&right.output[1], stored, seed),
        };
        if let Some(wrong) = wrong {
            *tally = Tally::of(judge(&reference, &whole(&wrong, stored), before).verdict);
        }
    }
    rates
}
