//! Something added too often, or not at all: another tap of the step, or one vector on every row.

use super::{
    case::{Case, Factor, Sample},
    nearby::Nearby,
};
use crate::{
    exact::same_bits,
    report::{Diagnosis, Kind},
    whole::Whole,
};

/// The largest multiple that is one.
const MOST: f64 = 256.0;
/// The share of the residual's energy that the multiple must explain on the sample.
const LEAST_SHARE: f64 = 0.5;
/// Of about how many numbers it is looked at first.
const GLANCE: usize = 1 << 12;

/// candidate − reference = n × another tap of the step. The integer that fits best of all is taken.
pub(crate) fn added_multiple(case: &Case<'_, '_>, nearby: &Nearby<'_, '_>) -> Option<Diagnosis> {
    case.float?;
    let sample = case.sample();
    let mut all: Vec<(f64, String, f64, Whole<'_>)> = nearby
        .of_length(case.candidate.len())
        .filter_map(|(tap, whole)| {
            // Most taps are far from it, as a few rows tell. Where nothing is off in these, they tell nothing.
            let few = closest(errors(&sample, &whole, sample.r.len().div_ceil(GLANCE)));
            if few.is_some_and(|(_, share)| share < LEAST_SHARE / 2.0) {
                return None;
            }
            let (n, share) = multiple(errors(&sample, &whole, 1))?;
            Some((share, tap, n, whole))
        })
        .collect();
    // The first of equals: taps are in capture order.
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (_, tap, fitted, _) =
        all.into_iter().filter(|(.., whole)| agree(whole)).find(|(_, _, n, whole)| {
            let n = n.round();
            let times = |from: u64, out: &mut [f64]| {
                whole.read(from, out);
                out.iter_mut().for_each(|x| *x *= n);
            };
            case.is_sum_of(&[&|from, out| case.reference.read(from, out), &times])
        })?;
    let text = format!("candidate − reference = {fitted:.2} × {tap}: {}", often(fitted.round()));
    Some(Diagnosis::new(Kind::AddedMultiple, text).fitted([fitted]))
}

/// One vector on every row: a bias. Which one, where it was captured.
pub(crate) fn constant_vector(case: &Case<'_, '_>, nearby: &Nearby<'_, '_>) -> Option<Diagnosis> {
    case.float?;
    let sample = case.sample();
    if sample.rows.len() < 3 || case.width() * case.rows() != case.candidate.len() {
        return None;
    }
    let vector = mean_error(&sample);
    let every_row = |vector: &[f64], from: u64, out: &mut [f64]| {
        let first = (from % vector.len() as u64) as usize;
        out.iter_mut().zip(vector.iter().cycle().skip(first)).for_each(|(x, v)| *x = *v);
    };
    let explains = |vector: &[f64]| {
        let vector = |from: u64, out: &mut [f64]| every_row(vector, from, out);
        case.is_sum_of(&[&|from, out| case.reference.read(from, out), &vector])
    };
    let words = "the same vector on every token";
    for (tap, whole) in nearby.of_length(vector.len() as u64) {
        let mut x = vec![0.0; vector.len()];
        whole.read(0, &mut x);
        let Some((fitted, _)) = multiple(x.iter().copied().zip(vector.iter().copied())) else { continue };
        let n = fitted.round();
        if !agree(&whole) {
            continue;
        }
        let times: Vec<f64> = x.iter().map(|x| x * n).collect();
        if explains(&times) {
            let text = format!("{words}: {fitted:.2} × {tap}: {}", often(n));
            return Some(Diagnosis::new(Kind::ConstantVector, text).fitted([fitted]));
        }
    }
    let text = format!("{words}: a bias added once too often or not at all");
    explains(&vector).then(|| Diagnosis::new(Kind::ConstantVector, text))
}

/// The mean error of each column.
fn mean_error(sample: &Sample) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); sample.width];
    for (_, column, r, c) in sample.finite() {
        sums[column].0 += c - r;
        sums[column].1 += 1.0;
    }
    sums.into_iter().map(|(sum, n)| if n > 0.0 { sum / n } else { 0.0 }).collect()
}

/// The numbers of a tap and the errors at the same places, in every so-manieth row of the sample.
fn errors(sample: &Sample, whole: &Whole<'_>, every: usize) -> impl Iterator<Item = (f64, f64)> {
    let width = sample.width;
    let rows = sample.rows.iter().zip(sample.r.chunks(width).zip(sample.c.chunks(width))).step_by(every);
    rows.flat_map(move |(row, (r, c))| {
        let mut x = vec![0.0; width];
        whole.read(row * width as u64, &mut x);
        x.into_iter().zip(r.iter().zip(c)).map(|(x, (r, c))| (x, c - r))
    })
}

/// Whether the replicas of a tap are equal: where nothing was said, ranks of one shape are taken for some.
fn agree(whole: &Whole<'_>) -> bool {
    whole.alternatives().iter().all(|other| same_bits(whole, other))
}

/// The multiple of x that comes closest to e, and its share of e's energy; `None` where it is next to no integer but 0 or
/// explains little.
fn multiple(pairs: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    let (n, share) = closest(pairs)?;
    let near = (n - n.round()).abs() <= 0.1 && n.round() != 0.0 && n.abs() <= MOST;
    (near && share >= LEAST_SHARE).then_some((n, share))
}

/// The same of any number; `None` where either is zero throughout.
fn closest(pairs: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    let (mut factor, mut energy) = (Factor::default(), 0.0);
    for (x, e) in pairs.filter(|(x, e)| x.is_finite() && e.is_finite()) {
        factor.add(x, e);
        energy += e * e;
    }
    let n = factor.value()?;
    (energy > 0.0).then(|| (n, n * n * factor.energy() / energy))
}

/// What a multiple means.
fn often(n: f64) -> String {
    match n {
        1.0 => "added once too often".to_owned(),
        -1.0 => "left out".to_owned(),
        n if n > 0.0 => format!("added {n} times too often"),
        n => format!("left out or taken away {} times", -n),
    }
}
