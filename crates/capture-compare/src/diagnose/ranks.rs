//! Ranks that hold another rank's slice.
//!
//! Each part is held against the other side's numbers at the place of every part of its shape, at some numbers of it: the
//! place where it is nearest is the one whose slice it holds.

use super::case::Case;
use crate::{
    extent::{Extent, extents},
    report::{Diagnosis, Kind},
    whole::{Node, Whole},
};
use std::sync::Arc;

/// How many numbers of a slice are looked at.
const LOOKED_AT: u64 = 256;
/// The most slices.
const MOST: usize = 128;
/// How many ranks are named.
const NAMED: usize = 8;

/// Ranks out of order, or several that hold one slice. The candidate's, else the reference's.
pub(crate) fn misplaced(case: &Case<'_, '_>) -> Option<Diagnosis> {
    held(case, "").or_else(|| held(&case.swapped(), "reference: "))
}

fn held(case: &Case<'_, '_>, side: &str) -> Option<Diagnosis> {
    let whole = case.candidate;
    let parts = whole.picked();
    if whole.has_sum() || !(2..=MOST).contains(&parts.len()) {
        return None;
    }
    let shape = &whole.parts[parts[0]].shape;
    if parts.iter().any(|p| whole.parts[*p].shape != *shape) {
        return None;
    }
    let holds = nearest(case, &parts)?;
    let places = 0..parts.len();
    if places.clone().all(|p| holds[p] == p) {
        return None;
    }
    // The slices put where they belong. Where several ranks hold one, others are on no rank: nothing is said of those.
    let mut sorted = whole.parts.as_ref().clone();
    let mut missing = Vec::new();
    for place in places.clone() {
        match holds.iter().position(|h| *h == place) {
            Some(holder) => sorted[parts[place]] = whole.parts[parts[holder]].clone(),
            None => missing.push(parts[place]),
        }
    }
    let sorted = Whole { parts: Arc::new(sorted), ..whole.clone() };
    let sorted_case = Case { reference: &sorted, candidate: case.reference, ..*case };
    let explained = sorted_case.is_sum_of(&[&|from, out| {
        sorted.read(from, out);
        let mut at = 0;
        sorted.runs(from, from + out.len() as u64, &mut |leaf, leaf_from, leaf_to| {
            let next = at + (leaf_to - leaf_from) as usize;
            if matches!(leaf, Node::Part(part) if missing.contains(part)) {
                case.reference.read(from + at as u64, &mut out[at..next]);
            }
            at = next;
        });
    }]);
    if !explained {
        return None;
    }
    let rank = |place: usize| whole.parts[parts[place]].rank;
    if missing.is_empty() {
        let moved: Vec<usize> = places.filter(|p| holds[*p] != *p).collect();
        let said =
            moved.iter().take(NAMED).map(|p| Some(format!("rank {} holds slice {}", rank(*p)?, holds[*p])));
        let more = moved.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let text = side.to_owned() + &said.collect::<Option<Vec<_>>>()?.join(", ") + &more;
        let fit = holds.iter().map(|h| *h as f64);
        return Some(Diagnosis::new(Kind::RankOrder, text).fitted(fit));
    }
    let mut said = Vec::new();
    for slice in places {
        let holders: Vec<usize> = (0..parts.len()).filter(|p| holds[*p] == slice).collect();
        let (Some(first), true) = (holders.first(), holders.len() > 1) else { continue };
        let part = |place: usize| Whole {
            parts: Arc::new(vec![whole.parts[parts[place]].clone()]),
            root: Node::Part(0),
            shape: shape.clone(),
            padded: 0,
        };
        let first = part(*first);
        let same = |p: &usize| Case { reference: &first, candidate: &part(*p), ..*case }.is(&first);
        if !holders[1..].iter().all(same) {
            return None;
        }
        let ranks = holders.iter().map(|p| rank(*p).map(|r| r.to_string())).collect::<Option<Vec<_>>>()?;
        let (last, others) = ranks.split_last()?;
        said.push(format!("ranks {} and {last} hold the same slice", others.join(", ")));
    }
    let fit = holds.iter().map(|h| *h as f64);
    Some(Diagnosis::new(Kind::DuplicateSlice, side.to_owned() + &said.join("; ")).fitted(fit))
}

/// The place whose slice each part holds; `None` where one is near none, or as near to several.
fn nearest(case: &Case<'_, '_>, parts: &[usize]) -> Option<Vec<usize>> {
    let extents = extents(case.candidate);
    let (whole, shape) = (case.candidate, &case.candidate.parts[parts[0]].shape);
    let len = whole.parts[parts[0]].len();
    let n = len.min(LOOKED_AT);
    let looked: Vec<u64> = (0..n).map(|i| (i * len + len / 2) / n).collect();
    let slices: Vec<Vec<f64>> = parts
        .iter()
        .map(|p| {
            let at = |i: &u64| number(case.reference, global(*i, shape, &extents[*p], &whole.shape)?);
            looked.iter().map(at).collect::<Option<Vec<f64>>>()
        })
        .collect::<Option<_>>()?;
    let mean: Vec<f64> =
        (0..looked.len()).map(|i| slices.iter().map(|s| s[i]).sum::<f64>() / parts.len() as f64).collect();
    let find = |part: &usize| {
        let own: Vec<f64> = looked
            .iter()
            .map(|i| {
                let mut own = [0.0];
                whole.parts[*part].read(*i, &mut own);
                own[0]
            })
            .collect();
        let distance = |slice: &Vec<f64>| -> (f64, f64) {
            let all = own.iter().zip(slice).zip(&mean);
            all.fold((0.0, 0.0), |(d, s), ((x, y), m)| (d + (x - y) * (x - y), s + (y - m) * (y - m)))
        };
        let mut all: Vec<(f64, f64, usize)> =
            slices.iter().map(distance).enumerate().map(|(place, (d, s))| (d, s, place)).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ((d, s, place), next) = (*all.first()?, all.get(1)?.0);
        (d <= 0.1 * s && next > 4.0 * d).then_some(place)
    };
    parts.iter().map(find).collect()
}

fn number(whole: &Whole<'_>, at: u64) -> Option<f64> {
    let mut number = [0.0];
    whole.read(at, &mut number);
    number[0].is_finite().then_some(number[0])
}

/// Where number `local` of a part is in the tensor.
fn global(mut local: u64, of: &[u64], extent: &Extent, shape: &[u64]) -> Option<u64> {
    let (mut at, mut stride) = (0, 1);
    for axis in (0..shape.len()).rev() {
        let index = local % of[axis];
        local /= of[axis];
        let stretch = extent[axis].iter().find(|s| s.local <= index && index < s.local + s.length)?;
        at += (stretch.global + index - stretch.local) * stride;
        stride *= shape[axis];
    }
    Some(at)
}
