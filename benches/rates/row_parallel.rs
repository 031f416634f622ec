//! One row-parallel linear layer of a model's size, for which every seed must be right.

use crate::{
    fault::Fault,
    judge::{Tally, judge, whole},
    linear::{Linear, Sharding},
    matrix::Matrix,
    number::Format,
    random::Random,
};
use rayon::prelude::*;

const FORMAT: Format = Format::Bf16;

/// The layer's size: 64 tokens, K = 4096, N = 512 where it counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) tokens: usize,
    pub(crate) inner: usize,
    pub(crate) width: usize,
}

/// The faults that must be DIFFERENT on every seed.
pub(crate) const FAULTS: [Fault; 8] = [
    Fault::ElementByQuarter,
    Fault::RowBy2Percent,
    Fault::AllBy1Percent,
    Fault::AllBy3PerMille,
    Fault::BiasTwice,
    Fault::RowZeroed,
    Fault::RankDropped,
    Fault::RanksSwapped,
];

/// The verdicts on TP = 4, correct and with each fault: knowing that nothing before was off, and knowing nothing.
pub(crate) struct Rates {
    pub(crate) correct: [Tally; 2],
    pub(crate) faults: [[Tally; 2]; FAULTS.len()],
}

/// Judges all seeds.
pub(crate) fn faults(seeds: u64, size: Size) -> Rates {
    let found: Vec<Rates> = (0..seeds).into_par_iter().map(|seed| of_seed(seed, size)).collect();
    let mut all = Rates { correct: [Tally::default(); 2], faults: [[Tally::default(); 2]; FAULTS.len()] };
    for rates in found {
        all.correct.iter_mut().zip(rates.correct).for_each(|(all, tally)| *all += tally);
        let pairs = all.faults.as_flattened_mut().iter_mut().zip(rates.faults.as_flattened());
        pairs.for_each(|(all, tally)| *all += *tally);
    }
    all
}

fn of_seed(seed: u64, size: Size) -> Rates {
    let layer = Layer::new(seed, size);
    let reference = whole(&layer.linear().forward(&layer.x, 1, Sharding::Right), FORMAT);
    let right = layer.linear().forward(&layer.x, 4, Sharding::Right);
    let verdicts = |candidate: &Matrix| {
        [Some(0.0), None]
            .map(|before| Tally::of(judge(&reference, &whole(candidate, FORMAT), before).verdict))
    };
    let with = |fault: Fault| {
        let wrong = match fault.sharding() {
            Some(sharding) => layer.linear().forward(&layer.x, 4, sharding),
            None => fault.inject(&right, FORMAT, seed).expect("every number is finite and no row is zero"),
        };
        verdicts(&wrong)
    };
    Rates { correct: verdicts(&right), faults: FAULTS.map(with) }
}

/// The verdicts on correct sums of 2, 4 and 8 partials against one product.
pub(crate) fn partials(seeds: u64, size: Size) -> [Tally; 3] {
    let of_seed = |seed| {
        let layer = Layer::new(seed, size);
        let reference = whole(&layer.linear().forward(&layer.x, 1, Sharding::Right), FORMAT);
        [2, 4, 8].map(|ranks| {
            let candidate = layer.linear().forward(&layer.x, ranks, Sharding::Right);
            Tally::of(judge(&reference, &whole(&candidate, FORMAT), None).verdict)
        })
    };
    let found: Vec<[Tally; 3]> = (0..seeds).into_par_iter().map(of_seed).collect();
    let mut all = [Tally::default(); 3];
    for tallies in found {
        all.iter_mut().zip(tallies).for_each(|(all, tally)| *all += tally);
    }
    all
}

struct Layer {
    x: Matrix,
    weight: Matrix,
    bias: Vec<f32>,
}

impl Layer {
    fn new(seed: u64, Size { tokens, inner, width }: Size) -> Self {
        let mut random = Random::new(seed, 4);
        Self {
            x: Matrix::normal(&mut random, [tokens, inner], 1.0, FORMAT),
            weight: Matrix::weights(&mut random, [inner, width], (inner as f32).powf(-0.5), FORMAT),
            bias: (0..width).map(|_| FORMAT.round(0.05 * random.normal())).collect(),
        }
    }

    fn linear(&self) -> Linear<'_> {
        Linear { weight: &self.weight, bias: Some(&self.bias), format: FORMAT }
    }
}
