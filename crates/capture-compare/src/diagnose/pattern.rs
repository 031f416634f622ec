//! Where the error is, where that is all there is to say: rows, columns, every n-th element, one rank.
//!
//! An element is bad where it differs at all, or by more than a rounding, or than noise. The bad indices of every dim are a range or every n-th
//! one; together they are a pattern if at least half of what they enclose is bad, and outside there is rounding only.

use super::{case::Case, nearby::Nearby, scaled::parted};
use crate::{
    measure::errors,
    noise::MOST_INHERITED,
    report::{Diagnosis, Kind},
    verdict::{decide, measure},
    whole::{Node, product},
};
use std::collections::BTreeSet;

/// How many bad numbers are held against a rank's own input.
const LOOKED_AT: usize = 4096;

/// What is bad, and whether a rank holds its own input there.
pub(crate) fn pattern(case: &Case<'_, '_>, nearby: &Nearby<'_, '_>) -> Vec<Diagnosis> {
    let shape = &case.reference.shape;
    if shape.is_empty() || case.reference.is_empty() {
        return Vec::new();
    }
    let mut bad: Vec<Bad> = thresholds(case).into_iter().map(|t| Bad::new(t, shape)).collect();
    errors(case.reference, case.candidate, case.float, &mut |from, errors| {
        bad.iter_mut().for_each(|bad| bad.add(case, shape, from, errors));
    });
    let mut found = Vec::new();
    if let Some((bad, text)) = bad.iter().find_map(|bad| Some((bad, bad.text(case, shape)?))) {
        found.push(Diagnosis::new(Kind::Pattern, text));
        found.extend(nearby.not_reduced(case, &bad.places));
    } else if let Some(bad) = bad.first() {
        // All of it may be the rank's own input.
        found.extend(nearby.not_reduced(case, &bad.places));
    }
    found
}

/// Above how many units an element is bad: what differs at all, what one rounding does not make, what noise does not make.
fn thresholds(case: &Case<'_, '_>) -> Vec<f64> {
    let Some(float) = case.float else { return vec![0.0] };
    let noise = case.inherited.unwrap_or_else(|| {
        let all = decide(&measure(case.reference, case.candidate, case.float), None, false);
        all.noise.min(MOST_INHERITED)
    });
    let mut all = vec![0.0, 10.0, 20.0 * (noise / float.roundoff()).max(0.5)];
    all.dedup();
    all
}

/// The bad elements above a threshold.
struct Bad {
    threshold: f64,
    count: u64,
    /// Which indices of each dim have any.
    dims: Vec<Vec<bool>>,
    /// Some of them.
    places: Vec<u64>,
    /// The parts they are of.
    parts: BTreeSet<usize>,
}

impl Bad {
    fn new(threshold: f64, shape: &[u64]) -> Self {
        let dims = shape.iter().map(|d| vec![false; *d as usize]).collect();
        Self { threshold, count: 0, dims, places: Vec::new(), parts: BTreeSet::new() }
    }

    fn add(&mut self, case: &Case<'_, '_>, shape: &[u64], from: u64, errors: &[f64]) {
        let before = self.count;
        let width = shape[shape.len() - 1];
        let (mut at, mut rest) = (from, errors);
        while !rest.is_empty() {
            let (row, behind) = rest.split_at(rest.len().min((width - at % width) as usize));
            self.add_row(shape, at, row);
            (at, rest) = (at + row.len() as u64, behind);
        }
        let Some(whole) = parted(case).filter(|_| self.count > before) else { return };
        let mut at = 0;
        whole.runs(from, from + errors.len() as u64, &mut |leaf, from, to| {
            let next = at + (to - from) as usize;
            if let (Node::Part(part), true) = (leaf, errors[at..next].iter().any(|e| *e > self.threshold)) {
                self.parts.insert(*part);
            }
            at = next;
        });
    }

    /// Adds neighbours in the last dim.
    fn add_row(&mut self, shape: &[u64], at: u64, errors: &[f64]) {
        let last = shape.len() - 1;
        let (threshold, mut count) = (self.threshold, 0);
        for (bad, e) in self.dims[last][(at % shape[last]) as usize..].iter_mut().zip(errors) {
            *bad |= *e > threshold;
            count += u64::from(*e > threshold);
        }
        if count == 0 {
            return;
        }
        self.count += count;
        let room = LOOKED_AT - self.places.len();
        let places = (at..).zip(errors).filter(|(_, e)| **e > threshold);
        self.places.extend(places.map(|(at, _)| at).take(room));
        let mut rest = at / shape[last];
        for axis in (0..last).rev() {
            self.dims[axis][(rest % shape[axis]) as usize] = true;
            rest /= shape[axis];
        }
    }

    /// The pattern in words, where it is one and explains the error.
    fn text(&self, case: &Case<'_, '_>, shape: &[u64]) -> Option<String> {
        let sets: Vec<Set> = self.dims.iter().map(|dim| Set::of(dim)).collect::<Option<_>>()?;
        let enclosed = product(&sets.iter().map(|s| s.count).collect::<Vec<_>>());
        if enclosed < 2 || enclosed == case.reference.len() || 2 * self.count < enclosed {
            return None;
        }
        let width = shape[shape.len() - 1];
        let predicted = |from: u64, out: &mut [f64]| {
            case.reference.read(from, out);
            let mut own = vec![0.0; out.len()];
            case.candidate.read(from, &mut own);
            for (i, x) in out.iter_mut().enumerate() {
                let at = from + i as u64;
                let mut rest = at / width;
                let column = self.dims[shape.len() - 1][(at % width) as usize];
                let is_bad = column
                    && (0..shape.len() - 1).rev().all(|axis| {
                        let bad = self.dims[axis][(rest % shape[axis]) as usize];
                        rest /= shape[axis];
                        bad
                    });
                if is_bad {
                    *x = own[i];
                }
            }
        };
        if !case.is_sum_of(&[&predicted]) {
            return None;
        }
        let ranks = match parted(case) {
            Some(whole) if self.parts.len() == 1 => {
                let part = *self.parts.first()?;
                let rank = whole.parts[part].rank?;
                if enclosed == whole.parts[part].len() {
                    return Some(format!("rank {rank}'s slice and no other"));
                }
                format!("rank {rank}, ")
            }
            Some(_) => String::new(),
            None => case.odd_rank().map_or_else(String::new, |rank| format!("rank {rank}, ")),
        };
        let said = sets.iter().enumerate().filter_map(|(axis, set)| set.text(axis, shape.len()));
        Some(ranks + &said.collect::<Vec<_>>().join(", "))
    }
}

/// Indices of one dim, each `step` from the last.
struct Set {
    first: u64,
    step: u64,
    count: u64,
    all: bool,
}

impl Set {
    /// `None` where they are no range, nor every n-th index of the whole dim.
    fn of(bad: &[bool]) -> Option<Self> {
        let at: Vec<u64> = bad.iter().enumerate().filter(|(_, bad)| **bad).map(|(i, _)| i as u64).collect();
        let (&first, &last) = (at.first()?, at.last()?);
        let step = at.get(1).map_or(1, |second| second - first);
        let (count, length) = (at.len() as u64, bad.len() as u64);
        let even = at.windows(2).all(|w| w[1] - w[0] == step);
        let through = count >= 3 && first < step && last + step >= length;
        (even && (step == 1 || through)).then_some(Self { first, step, count, all: count == length })
    }

    /// `rows 3–5`, `every 32nd element of the last dim`; `None` where they are all.
    fn text(&self, axis: usize, dims: usize) -> Option<String> {
        let Self { first, step, count, .. } = *self;
        let last = first + step * (count - 1);
        let (one, of) = match axis {
            0 if dims > 1 => ("row", String::new()),
            _ if axis + 1 == dims => ("element", " of the last dim".to_owned()),
            _ => ("index", format!(" of dim {axis}")),
        };
        let many = if one == "index" { "indices".to_owned() } else { format!("{one}s") };
        match (self.all, step, count) {
            (true, ..) => None,
            (_, 1, 1) => Some(format!("{one} {first}{of}")),
            (_, 1, _) => Some(format!("{many} {first}–{last}{of}")),
            _ => Some(format!("every {} {one}{of} from {first}", ordinal(step))),
        }
    }
}

/// `2nd`, `3rd`, `32nd`, `11th`.
fn ordinal(n: u64) -> String {
    let ending = match (n % 10, n % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{n}{ending}")
}
