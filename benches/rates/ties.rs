//! Routers: whether experts that rounding swapped are told from experts that were chosen wrongly.
//!
//! A gate, its softmax in fp32, the top k of it in order, and a mixture of experts that each scale every channel by their
//! own gains. The candidate's gate is row-parallel over 2, 4 or 8 ranks, and its input has noise.

use crate::{
    judge::Tally,
    layer::noisy,
    linear::{Linear, Sharding},
    matrix::Matrix,
    number::Format,
    random::Random,
    recorded::{Captured, Recorded},
};
use capture_compare::{Report, Verdict};
use rayon::prelude::*;

/// The relative noise of the input.
pub(crate) const NOISE: [f32; 3] = [0.0, 0.003, 0.01];
pub(crate) const FORMATS: [Format; 2] = [Format::Bf16, Format::Fp32];

/// How many experts there are, and how many are chosen for each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Experts {
    pub(crate) all: usize,
    pub(crate) chosen: usize,
}

pub(crate) const EXPERTS: [Experts; 2] = [Experts { all: 8, chosen: 2 }, Experts { all: 64, chosen: 8 }];

/// What is wrong with a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// One id of one token is another.
    OneId,
    /// Two experts have each other's number.
    TwoSwapped,
    /// Every id is the next one, as where experts are counted from another start.
    Offset,
    /// One expert is never chosen.
    Masked,
}

impl Fault {
    pub(crate) const ALL: [Self; 4] = [Self::OneId, Self::TwoSwapped, Self::Offset, Self::Masked];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::OneId => "one id of one token is another",
            Self::TwoSwapped => "two experts have each other's number",
            Self::Offset => "every id is the next",
            Self::Masked => "an expert is never chosen",
        }
    }
}

/// How much is drawn.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Draw {
    pub(crate) seeds: u64,
    pub(crate) tokens: usize,
    pub(crate) inner: usize,
}

/// What came of one router in one dtype after one noise.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rates {
    /// The worst of all taps of correct pairs.
    pub(crate) correct: Tally,
    /// The ids of correct pairs.
    pub(crate) ids: Tally,
    /// In the order of [`Fault::ALL`], at the ids.
    pub(crate) faults: [Tally; Fault::ALL.len()],
    /// Rows of correct pairs that were `DIFFERENT`.
    pub(crate) remarks: Vec<String>,
}

pub(crate) fn measure(draw: Draw, experts: Experts, format: Format, noise: f32) -> Rates {
    let of_seed = |seed| rates_of(&Router::new(draw, experts, format, noise, seed));
    let found: Vec<Rates> = (0..draw.seeds).into_par_iter().map(of_seed).collect();
    found.into_iter().fold(Rates::default(), |mut all, rates| {
        all.correct += rates.correct;
        all.ids += rates.ids;
        all.faults.iter_mut().zip(rates.faults).for_each(|(all, tally)| *all += tally);
        all.remarks.extend(rates.remarks);
        all
    })
}

fn rates_of(router: &Router) -> Rates {
    let [reference, candidate] = [0, 1].map(|side| router.pass(side));
    let recorded = Recorded::new(&reference.captured(&reference.ids, router));
    let compare = |ids: &[Vec<i32>]| recorded.compare(&candidate.captured(ids, router));
    let at_ids = |report: &Report| {
        let verdict = report.rows.iter().find(|row| row.tap == "topk_ids").and_then(|row| row.verdict);
        Tally::of(verdict.unwrap_or(Verdict::Missing))
    };
    let report = compare(&candidate.ids);
    let all = report.verdict.unwrap_or(Verdict::Missing);
    let mut rates = Rates { correct: Tally::of(all), ids: at_ids(&report), ..Rates::default() };
    for row in report.rows.iter().filter(|row| row.verdict == Some(Verdict::Different)) {
        let test = row.test.as_ref().map(|test| format!(": {} {:.2}", test.name, test.severity));
        let Experts { all, chosen } = router.experts;
        let (seed, tap) = (router.seed, &row.tap);
        rates.remarks.push(format!("{chosen} of {all}, seed {seed}: {tap}{}", test.unwrap_or_default()));
    }
    let mut random = Random::new(router.seed, 9);
    for (fault, tally) in Fault::ALL.into_iter().zip(&mut rates.faults) {
        let wrong = router.faulty(fault, &candidate, &mut random);
        // A fault that changes nothing is none.
        if wrong != candidate.ids {
            *tally = at_ids(&compare(&wrong));
        }
    }
    rates
}

struct Router {
    experts: Experts,
    format: Format,
    seed: u64,
    /// The input of both sides.
    input: [Matrix; 2],
    gate: Matrix,
    /// By expert and channel.
    gains: Matrix,
}

/// What one side computed.
struct Pass {
    input: Matrix,
    logits: Matrix,
    scores: Matrix,
    ids: Vec<Vec<i32>>,
}

impl Router {
    fn new(draw: Draw, experts: Experts, format: Format, noise: f32, seed: u64) -> Self {
        let Draw { tokens, inner, .. } = draw;
        let mut random = Random::new(seed, 8);
        let x = Matrix::normal(&mut random, [tokens, inner], 1.0, format);
        let gate = Matrix::weights(&mut random, [inner, experts.all], (inner as f32).powf(-0.5), format);
        let gains = Matrix::normal(&mut random, [experts.all, inner], 1.0, format);
        let with_noise = if noise > 0.0 { noisy(&mut random, &x, noise, format) } else { x.clone() };
        Self { experts, format, seed, input: [x, with_noise], gate, gains }
    }

    fn pass(&self, side: usize) -> Pass {
        let ranks = if side == 0 { 1 } else { [2, 4, 8][(self.seed % 3) as usize] };
        let gate = Linear { weight: &self.gate, bias: None, format: self.format };
        let input = self.input[side].clone();
        let logits = gate.forward(&input, ranks, Sharding::Right);
        let scores = logits.softmax(|_, _| true);
        let ids = (0..scores.rows).map(|row| self.top(scores.row(row), None)).collect();
        Pass { input, logits, scores, ids }
    }

    /// The ids of the largest scores, the first of equal ones first.
    fn top(&self, scores: &[f32], masked: Option<usize>) -> Vec<i32> {
        let mut ids: Vec<usize> = (0..scores.len()).filter(|id| Some(*id) != masked).collect();
        ids.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        ids.into_iter().take(self.experts.chosen).map(|id| id as i32).collect()
    }

    fn faulty(&self, fault: Fault, pass: &Pass, random: &mut Random) -> Vec<Vec<i32>> {
        let n = self.experts.all;
        let renamed = |name: &dyn Fn(i32) -> i32| {
            pass.ids.iter().map(|row| row.iter().map(|id| name(*id)).collect()).collect()
        };
        let picks: Vec<i32> = random.distinct(2, n).into_iter().map(|id| id as i32).collect();
        let (a, b) = (picks[0], picks[1]);
        match fault {
            Fault::OneId => {
                let mut ids = pass.ids.clone();
                let row = random.below(ids.len());
                let others: Vec<i32> = (0..n as i32).filter(|id| !ids[row].contains(id)).collect();
                let place = random.below(self.experts.chosen);
                ids[row][place] = others[random.below(others.len())];
                ids
            }
            Fault::TwoSwapped => renamed(&|id| match id {
                id if id == a => b,
                id if id == b => a,
                id => id,
            }),
            Fault::Offset => renamed(&|id| (id + 1) % n as i32),
            Fault::Masked => {
                (0..pass.scores.rows).map(|row| self.top(pass.scores.row(row), Some(a as usize))).collect()
            }
        }
    }

    /// The experts' outputs, weighted by their scores and rounded.
    fn mixed(&self, pass: &Pass, ids: &[Vec<i32>]) -> Matrix {
        pass.input.map(self.format, |i, j, x| {
            let weight = |id: &i32| pass.scores.at(i, *id as usize);
            let all: f32 = ids[i].iter().map(weight).sum();
            ids[i].iter().map(|id| weight(id) / all * self.gains.at(*id as usize, j) * x).sum()
        })
    }
}

impl Pass {
    fn captured(&self, ids: &[Vec<i32>], router: &Router) -> Vec<Captured> {
        let Router { format, .. } = *router;
        vec![
            Captured::of("input", &self.input, format),
            Captured::of("logits", &self.logits, format),
            Captured::of("scores", &self.scores, Format::Fp32),
            Captured::of_ids("topk_ids", ids),
            Captured::of("output", &router.mixed(self, ids), format),
        ]
    }
}
