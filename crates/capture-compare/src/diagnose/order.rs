//! The reference's numbers in another order: slices of a dim exchanged, a transposition, a shift.

use super::case::{Case, Term};
use crate::{
    extent::extents,
    report::{Diagnosis, Kind},
    statistics::median,
    whole::{Whole, product},
};
use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hasher as _},
};

/// Numbers of a slice that are looked at.
const LOOKED_AT: u64 = 64;
/// The most slices of a dim.
const MOST: u64 = 1 << 17;
/// The most numbers that are held against each other to find where the slices are.
const WORK: u64 = 1 << 29;
/// How many stretches of an order are named.
const NAMED: usize = 8;
/// Of how many ranks.
const RANKS: usize = 4;

/// The order of the slices along one dim, as no placement says it.
pub(crate) fn reordered(case: &Case<'_, '_>) -> Option<Diagnosis> {
    let shape = &case.reference.shape;
    (0..shape.len()).find_map(|axis| {
        let order = slices(case.reference, case.candidate, axis)?;
        let (inner, length) = (product(&shape[axis + 1..]), shape[axis]);
        let predicted = |from: u64, out: &mut [f64]| {
            let mut at = 0;
            while at < out.len() {
                let place = from + at as u64;
                let (slice, within) = (place / inner % length, place % inner);
                let n = (out.len() - at).min((inner - within) as usize);
                let there = place - slice * inner + order[slice as usize] * inner;
                case.reference.read(there, &mut out[at..at + n]);
                at += n;
            }
        };
        if !case.is_sum_of(&[&predicted]) {
            return None;
        }
        let said = by_rank(case.candidate, axis, &order).unwrap_or_else(|| listed(&order, NAMED));
        let text = format!("the same {} in another order: {said}", name(axis, shape.len()));
        Some(Diagnosis::new(Kind::Reordered, text))
    })
}

/// `rank 0 holds 0–3, 8–11; rank 1 holds 4–7, …`, where the candidate's ranks hold the dim one after the other.
fn by_rank(candidate: &Whole<'_>, axis: usize, order: &[u64]) -> Option<String> {
    let parts = candidate.picked();
    if candidate.has_sum() || parts.len() < 2 {
        return None;
    }
    let extents = extents(candidate);
    let mut said = Vec::new();
    for part in parts.iter().take(RANKS) {
        let &[stretch] = extents[*part].get(axis)?.as_slice() else { return None };
        let own = order.get(stretch.global as usize..(stretch.global + stretch.length) as usize)?;
        if own.len() == order.len() {
            return None;
        }
        said.push(format!("rank {} holds {}", candidate.parts[*part].rank?, listed(own, NAMED / 2)));
    }
    let more = if parts.len() > RANKS { "; …" } else { "" };
    Some(said.join("; ") + more)
}

/// `0–3, 8, …`: the first stretches of an order.
fn listed(order: &[u64], most: usize) -> String {
    let runs = runs(order);
    let one = |(from, to): &(u64, u64)| match to - from {
        1 => from.to_string(),
        _ => format!("{from}–{}", to - 1),
    };
    let said: Vec<String> = runs.iter().take(most).map(one).collect();
    said.join(", ") + if runs.len() > most { ", …" } else { "" }
}

/// What slices of a dim are called.
pub(crate) fn name(axis: usize, dims: usize) -> String {
    match axis {
        0 => "rows".to_owned(),
        1 if dims == 2 => "columns".to_owned(),
        _ => format!("slices of dim {axis}"),
    }
}

/// The stretches of an order: first slice and behind the last.
pub(crate) fn runs(order: &[u64]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &slice in order {
        match runs.last_mut() {
            Some((_, end)) if *end == slice => *end += 1,
            _ => runs.push((slice, slice + 1)),
        }
    }
    runs
}

/// For every slice of the candidate along a dim the slice of the reference that it is; `None` where they are not the
/// same slices, or stand where they should.
///
/// A slice is told by some of its numbers, each less the median over slices and over their spread, so that a massive
/// channel does not make all alike. Of those that are no slice's bit by bit, one that goes on where the one before it was
/// is taken as found; else all are looked through for the nearest. That is quick where the order is one of stretches. It is
/// confirmed afterwards, number by number.
pub(crate) fn slices(reference: &Whole<'_>, candidate: &Whole<'_>, axis: usize) -> Option<Vec<u64>> {
    let length = *reference.shape.get(axis)?;
    if !(2..=MOST).contains(&length) || reference.is_empty() {
        return None;
    }
    let (mut r, mut c) = (numbers(reference, axis), numbers(candidate, axis));
    let width = r.len() / length as usize;
    let hash = |slice: &[f64]| {
        let mut hasher = DefaultHasher::new();
        slice.iter().for_each(|x| hasher.write_u64(x.to_bits()));
        hasher.finish()
    };
    // By what they hold, the last ones first.
    let mut known: HashMap<u64, Vec<u64>> = HashMap::new();
    for (i, slice) in r.chunks(width).enumerate().rev() {
        known.entry(hash(slice)).or_default().push(i as u64);
    }
    let equal: Vec<Option<u64>> =
        c.chunks(width).map(|slice| known.get_mut(&hash(slice)).and_then(Vec::pop)).collect();
    for column in 0..width {
        let of = || r.iter().skip(column).step_by(width).copied();
        let middle = median(of())?;
        let spread = match median(of().map(|x| (x - middle).abs()))? {
            0.0 => of().map(|x| (x - middle).abs()).sum::<f64>() / length as f64,
            spread => spread,
        };
        let scale = if spread > 0.0 { 1.0 / spread } else { 0.0 };
        for numbers in [&mut r, &mut c] {
            numbers.iter_mut().skip(column).step_by(width).for_each(|x| *x = (*x - middle) * scale);
        }
    }
    let near = |own: &[f64], i: u64| {
        let other = &r[i as usize * width..(i as usize + 1) * width];
        let (d, s) = own
            .iter()
            .zip(other)
            .fold((0.0, 1e-300), |(d, s), (x, y)| (d + (x - y) * (x - y), s + x * x + y * y));
        d / s
    };
    let mut used = vec![false; length as usize];
    equal.iter().flatten().for_each(|i| used[*i as usize] = true);
    let mut order: Vec<u64> = Vec::with_capacity(length as usize);
    let mut work = 0;
    for (own, equal) in c.chunks(width).zip(equal) {
        let next = order.last().map_or(0, |last| last + 1);
        let found = if let Some(equal) = equal {
            equal
        } else if next < length && !used[next as usize] && near(own, next) <= 0.02 {
            next
        } else {
            work += length * width as u64;
            let free = (0..length).filter(|j| !used[*j as usize]);
            let nearest = free.map(|j| (near(own, j), j)).min_by(|a, b| a.0.total_cmp(&b.0));
            nearest.filter(|(d, _)| *d <= 0.2 && work <= WORK)?.1
        };
        used[found as usize] = true;
        order.push(found);
    }
    (!order.is_sorted()).then_some(order)
}

/// Some numbers of each slice along a dim, slice by slice; those that are not finite as 0.
fn numbers(whole: &Whole<'_>, axis: usize) -> Vec<f64> {
    let (length, inner) = (whole.shape[axis], product(&whole.shape[axis + 1..]));
    let outer = product(&whole.shape[..axis]);
    let outers = outer.min(if inner == 1 { LOOKED_AT } else { 8 });
    let chunk = inner.min(LOOKED_AT / outers);
    let width = (outers * chunk) as usize;
    let mut all = vec![0.0; length as usize * width];
    let mut block = vec![0.0; chunk as usize];
    for o in 0..outers {
        let first = (o * outer / outers * length) * inner + (inner - chunk) / 2;
        if inner == 1 {
            let mut row = vec![0.0; length as usize];
            whole.read(first, &mut row);
            row.iter().enumerate().for_each(|(i, x)| all[i * width + o as usize] = *x);
            continue;
        }
        for i in 0..length {
            whole.read(first + i * inner, &mut block);
            let at = i as usize * width + (o * chunk) as usize;
            all[at..at + block.len()].copy_from_slice(&block);
        }
    }
    all.iter_mut().filter(|x| !x.is_finite()).for_each(|x| *x = 0.0);
    all
}

/// A matrix whose numbers lie as those of its transpose do.
pub(crate) fn transposed(case: &Case<'_, '_>) -> Option<Diagnosis> {
    let &[m, n] = case.reference.shape.as_slice() else { return None };
    if m < 2 || n < 2 || m * n < 16 {
        return None;
    }
    let predicted = |from: u64, out: &mut [f64]| {
        // Number k is that of row k % m and column k / m of the reference.
        let to = from + out.len() as u64;
        let columns = from / m..to.div_ceil(m);
        let mut row = vec![0.0; (columns.end - columns.start) as usize];
        for i in 0..m {
            case.reference.read(i * n + columns.start, &mut row);
            for (j, x) in columns.clone().zip(&row) {
                let k = j * m + i;
                if (from..to).contains(&k) {
                    out[(k - from) as usize] = *x;
                }
            }
        }
    };
    let text = match m == n {
        true => "transposed".to_owned(),
        false => format!("the numbers of the transpose, [{n}, {m}], read as [{m}, {n}]"),
    };
    case.is_sum_of(&[&predicted]).then(|| Diagnosis::new(Kind::Transposed, text))
}

/// Everything moved by one step along a dim, or by one number.
pub(crate) fn shifted(case: &Case<'_, '_>) -> Option<Diagnosis> {
    let shape = &case.reference.shape;
    let by_dim = (0..shape.len()).map(|axis| {
        let words = match (axis, shape.len()) {
            (0, 2..) => "row".to_owned(),
            (_, 1) => "element".to_owned(),
            _ => format!("step of dim {axis}"),
        };
        (product(&shape[axis + 1..]), shape[axis], words)
    });
    // What is moved as a whole is moved along the last dim as well, but for what crosses its edges.
    let flat = (shape.len() > 1).then(|| (1, case.reference.len(), "element of the flat tensor".to_owned()));
    flat.into_iter().chain(by_dim).filter(|(inner, length, _)| *length >= 3 && inner * length >= 16).find_map(
        |(inner, length, words)| {
            [1i64, -1].into_iter().find_map(|by| {
                let predicted = |from: u64, out: &mut [f64]| shift(case, (inner, length), by, from, out);
                let predicted: Term<'_> = &predicted;
                let there = if by > 0 { "before" } else { "after" };
                let text = format!("shifted by one {words}: each holds what the reference has {there} it");
                case.is_sum_of(&[predicted]).then(|| Diagnosis::new(Kind::Shifted, text).fitted([by as f64]))
            })
        },
    )
}

/// The reference's numbers from `from` on, each from `by` steps before along a dim; the candidate's own where there is
/// none.
fn shift(case: &Case<'_, '_>, (inner, length): (u64, u64), by: i64, from: u64, out: &mut [f64]) {
    let mut own = vec![0.0; out.len()];
    case.candidate.read(from, &mut own);
    let moved = by * inner as i64;
    let (start, end) = (from as i64 - moved, from as i64 + out.len() as i64 - moved);
    let (low, high) = (start.max(0), end.min(case.reference.len() as i64));
    if low < high {
        case.reference.read(low as u64, &mut out[(low - start) as usize..(high - start) as usize]);
    }
    for (i, (x, own)) in out.iter_mut().zip(own).enumerate() {
        let step = (from + i as u64) / inner % length;
        let edge = if by > 0 { 0 } else { length - 1 };
        if step == edge {
            *x = own;
        }
    }
}
