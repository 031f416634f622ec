//! Which logical tensors of two runs are to be compared, in capture order.

pub(crate) use crate::placing::{Said, groups, said};

use crate::{
    index::{Firing, Group, Index},
    joining::{Parts, Source, sources},
    layouts::Layouts,
    report::{PlacementFrom, Row},
    steps::Steps,
};
use std::collections::HashMap;

/// One row to be: the groups of both sides, of which one may be missing.
#[derive(Clone)]
pub(crate) struct Pair {
    /// As the reference counts steps; as the candidate does where only that has it.
    pub(crate) firing: Firing,
    pub(crate) label: Option<String>,
    /// The step of each side.
    pub(crate) steps: [u64; 2],
    /// What is to be said where the sides count the step otherwise.
    pub(crate) note: Option<String>,
    /// Reference and candidate. A joined side's has the records of all its parts.
    pub(crate) groups: [Option<Group>; 2],
    /// What a side is joined of, where it is.
    pub(crate) joined: [Option<Joined>; 2],
    /// By side.
    pub(crate) said: [Said; 2],
    pub(crate) from: PlacementFrom,
}

/// The parts of a side that is joined of several taps.
#[derive(Clone)]
pub(crate) struct Joined {
    pub(crate) parts: Vec<PartOf>,
    /// Names of parts that were not recorded.
    pub(crate) missing: Vec<String>,
    /// Dim along which the parts lie one after the other.
    pub(crate) dim: i32,
    /// How many make a step of the dim in front that they are stacked along, where they are.
    pub(crate) stacked: Option<usize>,
}

/// One of the taps that a side is joined of.
#[derive(Clone)]
pub(crate) struct PartOf {
    pub(crate) firing: Firing,
    pub(crate) group: Group,
    pub(crate) said: Said,
}

impl Pair {
    /// The row, with nothing compared yet.
    pub(crate) fn row(&self) -> Row {
        Row {
            tap: self.firing.tap.clone(),
            step: self.firing.step,
            call: self.firing.call,
            group: self.label.clone(),
            ..Row::default()
        }
    }

    /// What the side calls the firing: its own step.
    pub(crate) fn own(&self, side: usize) -> Firing {
        Firing { step: self.steps[side], ..self.firing.clone() }
    }
}

/// All firings of a run, in capture order.
pub(crate) fn in_order<'i>(index: &'i Index<'_>) -> Vec<&'i Firing> {
    let mut firings: Vec<&Firing> = index.firings().collect();
    firings.sort_by_cached_key(|f| (index.order(f), *f));
    firings
}

/// A firing of the reference, of the candidate or of both.
#[derive(Default)]
struct Match {
    sources: [Option<Source>; 2],
}

/// All pairs, in capture order of the reference; what only the candidate has stands where its own order puts it.
pub(crate) fn pairs(
    reference: &Index<'_>,
    candidate: &Index<'_>,
    layouts: &Layouts,
    steps: &Steps,
) -> Vec<Pair> {
    let mut matches: HashMap<(Firing, bool), Match> = HashMap::new();
    for source in sources(reference, candidate, layouts) {
        let found = matches.entry((source.firing.clone(), true)).or_default();
        found.sources[0] = Some(source);
    }
    for source in sources(candidate, reference, layouts) {
        let step = steps.of_reference(source.firing.step);
        let firing = Firing { step: step.unwrap_or(source.firing.step), ..source.firing.clone() };
        matches.entry((firing, step.is_some())).or_default().sources[1] = Some(source);
    }
    let mut matches: Vec<((Firing, bool), Match)> = matches.into_iter().collect();
    matches.sort_by_cached_key(|((firing, paired), found)| {
        let order = match &found.sources {
            [Some(source), _] => source.order(reference),
            [None, source] => source.as_ref().map_or_else(Default::default, |s| s.order(candidate)),
        };
        (firing.step, !*paired, order.1, order.2, firing.clone())
    });
    let of = |((firing, _), found)| pairs_of([reference, candidate], layouts, &firing, found);
    let mut pairs: Vec<Pair> = matches.into_iter().flat_map(of).collect();
    let mut noted = None;
    for pair in &mut pairs {
        let [a, b] = pair.steps;
        if a != b && noted != Some(a) {
            noted = Some(a);
            pair.note = Some(format!("paired with the candidate's step {b}"));
        }
    }
    pairs
}

fn pairs_of(indices: [&Index<'_>; 2], layouts: &Layouts, firing: &Firing, found: Match) -> Vec<Pair> {
    let [a, b] = found.sources;
    let step = |source: &Option<Source>| source.as_ref().map_or(firing.step, |s| s.firing.step);
    let steps = [step(&a), step(&b)];
    let own = |side: usize| Firing { step: steps[side], ..firing.clone() };
    let (of_reference, _) = said(indices[0], &own(0), layouts);
    let (of_candidate, from) = said(indices[1], &own(1), layouts);
    // One tap is placed alike on both sides.
    let either = |own: &Said, other: &Said| if matches!(own, Ok(None)) { other.clone() } else { own.clone() };
    let of = |side: usize, source: Option<Source>, said: &Said| match source {
        None => Vec::new(),
        Some(Source { parts: Some(parts), .. }) => joined(indices[side], &parts, layouts),
        Some(_) => {
            let groups = groups(indices[side], &own(side), said, layouts);
            groups.into_iter().map(|group| (group, None)).collect()
        }
    };
    let a = of(0, a, &either(&of_reference, &of_candidate));
    let b = of(1, b, &either(&of_candidate, &of_reference));
    let pair = |label: Option<String>, sides: [Option<&(Group, Option<Joined>)>; 2]| Pair {
        firing: firing.clone(),
        label,
        steps,
        note: None,
        groups: sides.map(|side| side.map(|(group, _)| group.clone())),
        joined: sides.map(|side| side.and_then(|(_, joined)| joined.clone())),
        said: [of_reference.clone(), of_candidate.clone()],
        from,
    };
    match (a.as_slice(), b.as_slice()) {
        // One logical tensor on one side stands against every replica of the other.
        ([a], b) if !b.is_empty() => b.iter().map(|b| pair(b.0.label(), [Some(a), Some(b)])).collect(),
        (a, [b]) if !a.is_empty() => a.iter().map(|a| pair(a.0.label(), [Some(a), Some(b)])).collect(),
        _ => {
            let other = |a: &(Group, Option<Joined>)| b.iter().find(|b| b.0.at == a.0.at);
            let mut all: Vec<Pair> = a.iter().map(|a| pair(a.0.label(), [Some(a), other(a)])).collect();
            let new = b.iter().filter(|b| !a.iter().any(|a| a.0.at == b.0.at));
            all.extend(new.map(|b| pair(b.0.label(), [None, Some(b)])));
            all
        }
    }
}

/// The groups of a joined tap: those of its first part, each with the groups of the other parts that stand where it does.
fn joined(index: &Index<'_>, parts: &Parts, layouts: &Layouts) -> Vec<(Group, Option<Joined>)> {
    let of_part = |firing: &Firing| {
        let (said, _) = said(index, firing, layouts);
        let groups = groups(index, firing, &said, layouts);
        groups.into_iter().map(|group| PartOf { firing: firing.clone(), group, said: said.clone() }).collect()
    };
    let all: Vec<Vec<PartOf>> = parts.firings.iter().map(of_part).collect();
    let Some((first, rest)) = all.split_first() else { return Vec::new() };
    let of = |first: &PartOf| {
        let mut joined = Joined {
            parts: vec![first.clone()],
            missing: parts.missing.clone(),
            dim: parts.dim,
            stacked: parts.stacked,
        };
        for others in rest {
            let alone = if let [one] = others.as_slice() { Some(one) } else { None };
            match others.iter().find(|o| o.group.at == first.group.at).or(alone) {
                Some(other) => joined.parts.push(other.clone()),
                None => joined.missing.extend(others.first().map(|o| o.firing.tap.clone())),
            }
        }
        let entries = joined.parts.iter().flat_map(|p| p.group.entries.iter().copied()).collect();
        (Group { at: first.group.at.clone(), entries }, Some(joined))
    };
    first.iter().map(of).collect()
}
