//! Whole models, recorded as runs and compared as runs are: whether a correct one passes, and whether the tap with a
//! fault is the one that is named.

use crate::{
    fault::Fault,
    judge::Tally,
    model::{Model, Pass, Place, Size, Tap},
    number::Format,
    random::Random,
    recorded::{Captured, Recorded},
};
use capture_compare::{Report, Verdict};
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Where each fault is put.
const FAULTS: [(Tap, &[Fault]); 6] = {
    use Fault::*;
    [
        (
            Tap::InputNorm,
            &[
                ElementByRms,
                RowZeroed,
                ChannelsZeroed,
                ColumnsSwapped,
                ChunkReplaced,
                RowsExchanged,
                Every32nd,
                AllBy1Percent,
            ],
        ),
        (Tap::Probabilities, &[RowZeroed, BlockDoubled, RowsExchanged, ElementByRms]),
        (
            Tap::Attention,
            &[
                ElementByRms,
                RowZeroed,
                BiasTwice,
                RankDropped,
                RanksSwapped,
                HeadsSwapped,
                ChunkReplaced,
                BlockDoubled,
                Every32nd,
                AllBy1Percent,
            ],
        ),
        (Tap::MlpNorm, &[RowZeroed, ColumnsSwapped, BlockColumnsDoubled, RowsExchanged, ChannelsZeroed]),
        (Tap::Activation, &[ElementByRms, RowZeroed, HeadsSwapped, BlockDoubled, Every32nd, ChunkReplaced]),
        (
            Tap::Down,
            &[
                ElementByRms,
                RowZeroed,
                BiasTwice,
                RankDropped,
                RanksSwapped,
                ColumnsSwapped,
                RowsExchanged,
                Every32nd,
                BlockDoubled,
                AllBy1Percent,
            ],
        ),
    ]
};

/// Which tap was named for a fault.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) faults: u64,
    pub(crate) right: u64,
    pub(crate) earlier: u64,
    pub(crate) later: u64,
    /// None was, and the right one was called SUSPECT.
    pub(crate) suspect: u64,
}

impl Named {
    fn add(&mut self, other: Self) {
        self.faults += other.faults;
        self.right += other.right;
        self.earlier += other.earlier;
        self.later += other.later;
        self.suspect += other.suspect;
    }

    /// Of all kinds of fault.
    pub(crate) fn sum<'n>(all: impl Iterator<Item = &'n Self>) -> Self {
        all.fold(Self::default(), |mut sum, named| {
            sum.add(*named);
            sum
        })
    }
}

/// What came of the models of one dtype.
#[derive(Clone, Default)]
pub(crate) struct Rates {
    /// Rows of correct models.
    pub(crate) correct: Tally,
    pub(crate) faults: BTreeMap<Fault, Named>,
    /// Rows of correct models that were not ROUNDING, and faults that were not found at their tap.
    pub(crate) remarks: Vec<String>,
}

/// Six faults, each at a layer of its own, in every model; every fourth is without massive channels.
pub(crate) fn measure(models: u64, size: Size, format: Format) -> Rates {
    let found: Vec<Rates> = (0..models).into_par_iter().map(|seed| rates_of(seed, size, format)).collect();
    let mut all = Rates::default();
    for rates in found {
        all.correct += rates.correct;
        rates.faults.iter().for_each(|(fault, named)| all.faults.entry(*fault).or_default().add(*named));
        all.remarks.extend(rates.remarks);
    }
    all
}

fn rates_of(seed: u64, size: Size, format: Format) -> Rates {
    let model = Model::new(size, format, seed % 4 != 3, seed);
    let ranks = [2, 4, 8][(seed % 3) as usize];
    let right = model.forward(ranks);
    let reference = Recorded::new(&captured(&model.forward(1), format));
    let mut rates = Rates::default();
    for row in reference.compare(&captured(&right, format)).rows {
        let verdict = row.verdict.unwrap_or(Verdict::Identical);
        rates.correct += Tally::of(verdict);
        if verdict > Verdict::Rounding {
            rates.remarks.push(format!("correct, model {seed}: {verdict} at {}", row.tap));
        }
    }
    let mut random = Random::new(seed, 6);
    let all: Vec<(Tap, Fault)> =
        FAULTS.iter().flat_map(|(tap, faults)| faults.iter().map(|fault| (*tap, *fault))).collect();
    for pick in random.distinct(6, all.len()) {
        let (tap, fault) = all[pick];
        let place = Place { layer: random.below(size.layers), tap, fault, seed };
        let Some(wrong) = model.faulty(ranks, place, &right) else { continue };
        let report = reference.compare(&captured(&wrong, format));
        let named = named(&report, &tap.name(place.layer));
        if named.right == 0 {
            let first = report.first_divergence.map_or("none".to_owned(), |d| d.tap);
            let name = tap.name(place.layer);
            rates.remarks.push(format!("{}, model {seed}: expected {name}, found {first}", fault.name()));
        }
        rates.faults.entry(fault).or_default().add(named);
    }
    rates
}

fn named(report: &Report, expected: &str) -> Named {
    let position = |tap: &str| report.rows.iter().position(|row| row.tap == tap);
    let here = position(expected);
    let found = report.first_divergence.as_ref().and_then(|d| position(&d.tap));
    let suspect = || here.is_some_and(|at| report.rows[at].verdict == Some(Verdict::Suspect));
    let is = u64::from;
    Named {
        faults: 1,
        right: is(found.is_some() && found == here),
        earlier: is(found.is_some() && found < here),
        later: is(found.is_some() && found > here),
        suspect: is(found.is_none() && suspect()),
    }
}

/// The taps of a pass as they would be captured.
fn captured(pass: &Pass, format: Format) -> Vec<Captured> {
    pass.taps.iter().map(|(tap, matrix)| Captured::of(tap, matrix, format)).collect()
}
