//! Whether the tap after partial sums holds their sum, on every rank.
//!
//! That it ought to is not said anywhere. It is taken for the sum where half of its numbers are that, or are what a fault
//! makes of it: a rank's own input, the sum without one rank or with one twice, or times a factor. What is only near the
//! sum may have had something small added, as a residual, and is `SUSPECT`; what is not near it is another tensor.

use crate::{
    exact::same_bits,
    float::Float,
    judged::Judged,
    report::{Diagnosis, Kind, Row},
    running::{Running, running, terms},
    statistics::median,
    verdict::{RUNNING_BOUND, Test, Verdict},
    whole::{Node, Whole},
};
use std::ops::Range;

/// Numbers looked at at a time.
const CHUNK: u64 = 1 << 13;

/// Numbers whose ratio to the sum is looked at.
const SAMPLED: u64 = 1 << 10;

/// Stretches of wrong numbers that are told one by one, for each rank.
const MOST_STRETCHES: usize = 8;

/// How every replica of a result stands to the sum of its partials.
pub(super) struct Sums<'s, 'r> {
    tap: &'s str,
    sum: &'s Whole<'r>,
    terms: Vec<Whole<'r>>,
    /// Replicas that hold the same bits, and how they stand to the sum.
    found: Vec<(&'s [Whole<'r>], Running)>,
    /// Whether it is only near the sum.
    is_near: bool,
}

impl<'s, 'r> Sums<'s, 'r> {
    /// Holds classes of equal replicas of a result against the sum of what `tap` holds. `None` where it is not of that
    /// shape, and where no replica is that sum, more or less: then the tap that follows is another tensor, such as one to
    /// which a residual was added.
    pub(super) fn of(tap: &'s str, sum: &'s Whole<'r>, classes: &'s [Vec<Whole<'r>>]) -> Option<Self> {
        let terms = terms(sum)?;
        let mut replicas = classes.iter().flatten();
        let float = classes.first()?[0].parts.first()?.float()?.coarser(sum.parts.first()?.float()?);
        if replicas.any(|replica| replica.shape != sum.shape) {
            return None;
        }
        let hold =
            |class: &'s Vec<Whole<'r>>| (class.as_slice(), running(&[&terms], sum, &class[0], float, None));
        let found = classes.iter().map(hold).collect();
        let sums = Self { tap, sum, terms, found, is_near: false };
        if sums.found.iter().any(|(class, found)| sums.is_reduced(class, found)) {
            return Some(sums);
        }
        let near = |s: f64, y: f64| (y - s).abs() <= 0.5 * s.abs();
        let near = sums.found.iter().filter(|(class, _)| sums.is_half(sum, &class[0], near));
        let near: Vec<&Whole<'_>> = near.map(|(class, _)| &class[0]).collect();
        let is_faulty = |y: &&Whole<'_>| sums.is_other_sum(y, float) || sums.is_multiple(y, float);
        let is_near = !near.iter().any(is_faulty);
        (!near.is_empty()).then_some(Self { is_near, ..sums })
    }

    /// Whether half of the numbers of a class of replicas are the sum, or its rank's own input. One by one: a massive
    /// number in both would make all directions the same.
    fn is_reduced(&self, class: &[Whole<'r>], found: &Running) -> bool {
        let is_own =
            |replica| self.own(replica).is_some_and(|(own, _)| self.is_half(own, replica, |a, b| a == b));
        found.n_beyond <= self.sum.len().div_ceil(2) || class.iter().any(is_own)
    }

    /// Whether half of a replica is the sum without a rank, or with one twice.
    fn is_other_sum(&self, replica: &Whole<'_>, float: Float) -> bool {
        let terms: Vec<&Node> = self.terms.iter().map(|term| &term.root).collect();
        let half = self.sum.len().div_ceil(2);
        (0..terms.len()).any(|odd| {
            [0, 2].into_iter().any(|times| {
                let with = terms.iter().enumerate();
                let with =
                    with.flat_map(|(i, term)| std::iter::repeat_n(*term, if i == odd { times } else { 1 }));
                let sum = Whole { root: Node::Sum(with.cloned().collect()), ..self.sum.clone() };
                running(&[&self.terms], &sum, replica, float, None).n_beyond <= half
            })
        })
    }

    /// Whether half of a replica is the sum times a factor, which is that of most of it.
    fn is_multiple(&self, replica: &Whole<'_>, float: Float) -> bool {
        let mut ratios = Vec::new();
        let step = (self.sum.len() / SAMPLED).max(1);
        for at in (0..self.sum.len()).step_by(step as usize) {
            let ratio = number(replica, at) / number(self.sum, at);
            ratios.extend(ratio.is_finite().then_some(ratio));
        }
        let Some(factor) = median(ratios.into_iter()) else { return false };
        let most = 4.0 * float.roundoff();
        self.is_half(self.sum, replica, |s, y| {
            (y - factor * s).abs() <= most * y.abs().max((factor * s).abs())
        })
    }

    /// The partial of the rank that holds a replica.
    fn own(&self, replica: &Whole<'_>) -> Option<(&Whole<'r>, u32)> {
        let &[rank] = replica.ranks(&replica.picked()).as_slice() else { return None };
        let own = |term: &&Whole<'_>| term.ranks(&term.picked()) == [rank];
        Some((self.terms.iter().find(own)?, rank))
    }

    /// Whether half of the numbers of a replica are what is said of them and those at the same place of another tensor.
    fn is_half(&self, of: &Whole<'_>, replica: &Whole<'_>, is: impl Fn(f64, f64) -> bool) -> bool {
        let (mut a, mut b) = (vec![0.0; CHUNK as usize], vec![0.0; CHUNK as usize]);
        let mut count = 0;
        for from in (0..self.sum.len()).step_by(CHUNK as usize) {
            let len = (self.sum.len() - from).min(CHUNK) as usize;
            of.read(from, &mut a[..len]);
            replica.read(from, &mut b[..len]);
            count += a[..len].iter().zip(&b).filter(|(a, b)| is(**a, **b)).count() as u64;
        }
        count >= self.sum.len().div_ceil(2)
    }

    /// Whether a class of replicas is the sum but for rounding.
    pub(super) fn holds(&self, class: &[Whole<'_>]) -> bool {
        let found = self.found.iter().find(|(of, _)| of[0].picked() == class[0].picked());
        found.is_some_and(|(_, found)| found.n_beyond == 0)
    }

    /// What every replica holds, where they all hold the sum; else which do not, and what they do.
    pub(super) fn describe(&self, row: &mut Row) {
        let all = self.found.iter().all(|(_, found)| found.n_beyond == 0);
        if all {
            row.diagnoses.push(Diagnosis::new(Kind::Seen, format!("the sum of {:?}", self.tap)));
            return;
        }
        if self.is_near {
            let text = format!("near the sum of {:?} and not the sum: was something added to it?", self.tap);
            row.diagnoses.push(Diagnosis::new(Kind::NotTheSum, text));
            return;
        }
        for (class, found) in self.found.iter().filter(|(_, found)| found.n_beyond > 0) {
            class.iter().for_each(|replica| self.explain(row, replica, found));
        }
    }

    /// Judges the row: replicas that are not the sum make it `DIFFERENT`, on their ranks and by how much; `SUSPECT` where
    /// all are only near it.
    pub(super) fn judge(&self, row: &mut Row) {
        let mut bad: Vec<_> = self.found.iter().filter(|(_, found)| found.n_beyond > 0).collect();
        bad.sort_by(|(_, a), (_, b)| b.worst.0.total_cmp(&a.worst.0));
        if let Some((class, found)) = bad.first() {
            let replica = &class[0];
            let judged = Judged::measure(self.sum, replica, None, Vec::new());
            judged.fill(row, None);
            // As are the figures of the row, those of ranks are against the sum.
            row.by_rank.clear();
            for (class, _) in &self.found {
                let twins = class[1..].iter().map(Whole::picked).collect();
                Judged::measure(self.sum, &class[0], None, twins).add_by_rank(&mut row.by_rank);
            }
            row.worst = Some(crate::report::Worst::at(self.sum, replica, found.worst.1));
            row.test = Some(Test { name: RUNNING_BOUND.into(), severity: found.worst.0 });
            let verdict = if self.is_near { Verdict::Suspect } else { Verdict::Different };
            row.verdict = row.verdict.max(Some(verdict));
            let of = |(class, found): &&(&[Whole<'r>], Running)| -> Vec<u32> {
                class.iter().flat_map(|replica| wrong_ranks(replica, found)).collect()
            };
            row.ranks = bad.iter().flat_map(of).collect();
            row.ranks.sort_unstable();
            row.ranks.dedup();
        } else if row.verdict.is_none() {
            let equal = self.found.iter().all(|(class, _)| same_bits(self.sum, &class[0]));
            row.verdict = Some(if equal { Verdict::Identical } else { Verdict::Rounding });
        }
        self.describe(row);
    }

    /// Where a replica is wrong, and whether it holds its rank's own input there.
    fn explain(&self, row: &mut Row, replica: &Whole<'_>, found: &Running) {
        let ranks = wrong_ranks(replica, found);
        let ranks = ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
        let own = self.own(replica);
        let is_own = |at: u64| own.is_some_and(|(own, _)| number(own, at) == number(replica, at));
        let mut stretches: Vec<Range<u64>> = Vec::new();
        let mut all_own = true;
        for stretch in &found.beyond {
            // What the last one reached need not be looked at again.
            let reached = stretches.last().map_or(0, |last| last.end);
            if stretch.end <= reached {
                continue;
            }
            // Numbers beside it that are the rank's own input, too, are so close to the sum that they do not stand out.
            let (mut start, mut end) = (stretch.start, stretch.end);
            if (start..end).all(is_own) {
                while start > reached && is_own(start - 1) {
                    start -= 1;
                }
                while end < self.sum.len() && is_own(end) {
                    end += 1;
                }
            } else {
                all_own = false;
            }
            match stretches.last_mut() {
                Some(last) if last.end >= start => last.end = end,
                _ => stretches.push(start..end),
            }
        }
        let several = found.n_beyond > 1;
        let (plural, are) = if several { ("s", "are") } else { ("", "is") };
        let stretches = list(&stretches);
        let text = format!("rank {ranks}: element{plural} {stretches} {are} not the sum of {:?}", self.tap);
        row.diagnoses.push(Diagnosis::new(Kind::NotTheSum, text));
        if let (true, Some((_, rank))) = (all_own, own) {
            let text = format!("rank {rank}'s output there is its own input: not reduced");
            row.diagnoses.push(Diagnosis::new(Kind::NotReduced, text));
        }
    }
}

/// The ranks that hold numbers beyond the bound.
fn wrong_ranks(replica: &Whole<'_>, found: &Running) -> Vec<u32> {
    let parts: Vec<usize> = found.beyond.iter().flat_map(|stretch| replica.owners(stretch.start)).collect();
    replica.ranks(&parts)
}

fn number(whole: &Whole<'_>, at: u64) -> f64 {
    let mut number = [0.0];
    whole.read(at, &mut number);
    number[0]
}

/// `96–103, 200 and 3 more stretches`.
fn list(stretches: &[Range<u64>]) -> String {
    let shown = stretches.iter().take(MOST_STRETCHES).map(|s| match s.end - s.start {
        1 => s.start.to_string(),
        _ => format!("{}–{}", s.start, s.end - 1),
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    match stretches.len().saturating_sub(MOST_STRETCHES) {
        0 => shown,
        1 => format!("{shown} and 1 more stretch"),
        more => format!("{shown} and {more} more stretches"),
    }
}
