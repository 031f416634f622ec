//! Something added too often, or not at all: another tap of the step, or one vector on every row.

use super::{
    case::{Case, Factor, Sample},
    nearby::Nearby,
};
use crate::{
    report::{Diagnosis, Kind},
    whole::Whole,
};

/// The largest multiple that is one.
const MOST: f64 = 256.0;
/// The share of the residual's energy that the multiple must explain on the sample.
const LEAST_SHARE: f64 = 0.5;

/// candidate − reference = n × another tap of the step. The integer that fits best of all is taken.
pub(crate) fn added_multiple(case: &Case<'_, '_>, nearby: &Nearby<'_, '_>) -> Option<Diagnosis> {
    case.float?;
    let sample = case.sample();
    let mut all: Vec<(f64, String, f64, Whole<'_>)> = nearby
        .of_length(case.candidate.len())
        .filter_map(|(tap, whole)| {
            let mut x = vec![0.0; sample.r.len()];
            for (row, out) in sample.rows.iter().zip(x.chunks_mut(sample.width)) {
                whole.read(row * sample.width as u64, out);
            }
            let errors = sample.finite().map(|(row, column, r, c)| (x[row * sample.width + column], c - r));
            let (n, share) = multiple(errors)?;
            Some((share, tap, n, whole))
        })
        .collect();
    // The first of equals: taps are in capture order.
    all.sort_by(|a, b| b.0.total_cmp(&a.0));
    let (_, tap, fitted, _) = all.into_iter().find(|(_, _, n, whole)| {
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

/// The multiple of x that comes closest to e, and its share of e's energy; `None` where it is next to no integer but 0 or
/// explains little.
fn multiple(pairs: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    let (mut factor, mut energy) = (Factor::default(), 0.0);
    for (x, e) in pairs {
        factor.add(x, e);
        energy += e * e;
    }
    let n = factor.value()?;
    let share = n * n * factor.energy() / energy;
    let near = (n - n.round()).abs() <= 0.1 && n.round() != 0.0 && n.abs() <= MOST;
    (near && share >= LEAST_SHARE).then_some((n, share))
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
