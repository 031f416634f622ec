//! A factor: one for all, one of each rank, or one of each rank and row.

use super::case::{Case, Factor};
use crate::{
    report::{Diagnosis, Kind},
    statistics::median,
    whole::{Node, Whole},
};

/// How many numbers each factor must be fitted to.
const LEAST: usize = 16;

/// One factor for all.
pub(crate) fn scaled(case: &Case<'_, '_>, whose: &str) -> Option<Diagnosis> {
    let roundoff = case.float?.roundoff();
    let sample = case.sample();
    let mut factor = Factor::default();
    sample.finite().for_each(|(_, _, r, c)| factor.add(r, c));
    // A factor that rounding hides explains nothing.
    let is_one = |factor: &f64| (factor - 1.0).abs() < roundoff / 8.0;
    let factor = factor.value().filter(|factor| sample.r.len() >= LEAST && !is_one(factor))?;
    let scaled = |from: u64, out: &mut [f64]| {
        case.reference.read(from, out);
        out.iter_mut().for_each(|x| *x *= factor);
    };
    let text = match factor {
        0.0 => format!("{whose} holds zeros only"),
        _ => format!("{whose} = {} × reference", beside_one(factor)),
    };
    case.is_sum_of(&[&scaled]).then(|| Diagnosis::new(Kind::Scaled, text).fitted([factor]))
}

/// A factor of each rank.
pub(crate) fn scaled_per_rank(case: &Case<'_, '_>) -> Option<Diagnosis> {
    case.float?;
    let parted = parted(case)?;
    let sample = case.sample();
    let mut factors = vec![(Factor::default(), 0); parted.parts.len()];
    let rows = sample.rows.iter().zip(sample.r.chunks(sample.width).zip(sample.c.chunks(sample.width)));
    for (row, (r, c)) in rows {
        pieces(parted, row * sample.width as u64, r.len(), |part, range| {
            let (factor, count) = &mut factors[part];
            r[range.clone()].iter().zip(&c[range.clone()]).for_each(|(r, c)| factor.add(*r, *c));
            *count += range.len();
        });
    }
    let picked = parted.picked();
    let fitted: Vec<f64> = picked
        .iter()
        .map(|p| factors[*p].0.value().filter(|_| factors[*p].1 >= LEAST))
        .collect::<Option<_>>()?;
    let mut by_part = vec![1.0; parted.parts.len()];
    picked.iter().zip(&fitted).for_each(|(p, f)| by_part[*p] = *f);
    let scaled = |from: u64, out: &mut [f64]| {
        case.reference.read(from, out);
        pieces(parted, from, out.len(), |part, range| {
            out[range].iter_mut().for_each(|x| *x *= by_part[part]);
        });
    };
    let off: Vec<usize> = (0..fitted.len()).filter(|i| (fitted[*i] - 1.0).abs() > 0.005).collect();
    let text = match off.as_slice() {
        &[one] => {
            let rank = parted.parts[picked[one]].rank?;
            match fitted[one] {
                0.0 => format!("rank {rank} holds zeros only"),
                factor => format!("rank {rank} is off by a factor: {}", number(factor)),
            }
        }
        _ => {
            let all: Vec<String> = fitted.iter().map(|f| number(*f)).collect();
            format!("each rank is off by its own factor: {}", all.join(", "))
        }
    };
    case.is_sum_of(&[&scaled]).then(|| Diagnosis::new(Kind::ScaledPerRank, text).fitted(fitted))
}

/// A factor of each rank and row, as where a norm is over the local shard. So many factors fit anything of few columns.
pub(crate) fn scaled_per_row(case: &Case<'_, '_>) -> Option<Diagnosis> {
    case.float?;
    let whole = parted(case).unwrap_or(case.candidate);
    let width = case.width() as usize;
    let ranks = whole.picked();
    if whole.has_sum() || width < LEAST * ranks.len() || width as u64 * case.rows() != case.candidate.len() {
        return None;
    }
    let rows = |from: u64, out: &mut [f64], seen: &mut dyn FnMut(usize, f64)| {
        case.reference.read(from, out);
        let mut candidate = vec![0.0; width];
        for (row, out) in out.chunks_mut(width).enumerate() {
            let from = from + (row * width) as u64;
            case.candidate.read(from, &mut candidate);
            pieces(whole, from, width, |part, range| {
                let mut factor = Factor::default();
                let both = out[range.clone()].iter().zip(&candidate[range.clone()]);
                both.for_each(|(r, c)| factor.add(*r, *c));
                let Some(factor) = factor.value() else { return };
                seen(part, factor);
                out[range].iter_mut().for_each(|x| *x *= factor);
            });
        }
    };
    if !case.is_sum_of(&[&|from, out| rows(from, out, &mut |_, _| {})]) {
        return None;
    }
    let mut seen = vec![Vec::new(); whole.parts.len()];
    let sample = case.sample();
    for row in sample.rows {
        let mut out = vec![0.0; width];
        rows(row * width as u64, &mut out, &mut |part, factor| seen[part].push(factor));
    }
    let middle = ranks.iter().map(|p| median(seen[*p].iter().copied())).collect::<Option<Vec<f64>>>()?;
    let text = match ranks.len() {
        1 => format!("each row is off by its own factor, {} in the middle: a norm?", number(middle[0])),
        _ => {
            let all: Vec<String> = middle.iter().map(|f| number(*f)).collect();
            format!(
                "each rank is off by its own factor in every row: {} in the middle: a norm over the local shard?",
                all.join(", ")
            )
        }
    };
    Some(Diagnosis::new(Kind::ScaledPerRank, text).fitted(middle))
}

/// The side whose numbers are of several ranks, each of one: the candidate before the reference.
pub(crate) fn parted<'w, 'r>(case: &Case<'w, 'r>) -> Option<&'w Whole<'r>> {
    [case.candidate, case.reference].into_iter().find(|w| !w.has_sum() && w.picked().len() > 1)
}

/// Which part each piece of the numbers from `from` on is of.
fn pieces(whole: &Whole<'_>, from: u64, len: usize, mut visit: impl FnMut(usize, std::ops::Range<usize>)) {
    let mut at = 0;
    whole.runs(from, from + len as u64, &mut |leaf, from, to| {
        let next = at + (to - from) as usize;
        if let Node::Part(part) = leaf {
            visit(*part, at..next);
        }
        at = next;
    });
}

/// A factor with as many decimals as tell it from 1.
fn beside_one(factor: f64) -> String {
    let distance = (factor.abs() - 1.0).abs();
    if !(f64::EPSILON..5e-5).contains(&distance) {
        return number(factor);
    }
    let digits = 1.0 - distance.log10().floor();
    format!("{factor:.*}", digits as usize)
}

/// A factor as one reads it: two decimals, four where it is next to 1.
pub(crate) fn number(factor: f64) -> String {
    match factor.abs() {
        x if (x - 1.0).abs() < 0.05 && (x - 1.0).abs() > 5e-5 => format!("{factor:.4}"),
        x if x != 0.0 && !(0.01..1e4).contains(&x) => format!("{factor:.2e}"),
        _ => format!("{factor:.2}"),
    }
}
