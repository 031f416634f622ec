//! Two runs against each other: every logical tensor of the candidate with the reference's.

use crate::{
    exact::same_bits,
    float::Float,
    gather::{Fault, Full, Gathered, Tensor},
    index::{Group, Index},
    infer::infer,
    judged::{Judged, Options},
    layouts::{Layouts, Side},
    pairing::{Pair, pairs},
    payload::same_codes,
    report::{Diagnosis, PlacementFrom, Report, Row},
    run::{FileError, Run},
    scale::misplaced,
    taps::Taps,
    verdict::{Decision, Verdict},
    whole::Whole,
};
use capture_core::{Placements, Sharding};
use std::collections::HashMap;

/// Compares a candidate run with a reference. Rows are measured in parallel and decided in capture order, as what the
/// taps before were off by is what a tap may be.
#[must_use]
pub fn compare(reference: &Run, candidate: &Run, layouts: &Layouts, options: Options<'_>) -> Report {
    let a = Index::new(reference, &str::to_owned);
    let b = Index::new(candidate, &|tap| layouts.renamed(tap));
    let pairs = pairs(&a, &b, layouts);
    let n_bytes = |pair: &Pair| {
        let sides = pair.groups.iter().zip([&a, &b]);
        sides.map(|(group, index)| group.as_ref().map_or(0, |group| index.n_bytes(group))).sum()
    };
    let outcomes =
        options.map(&pairs, n_bytes, |pair| Work { indices: [&a, &b], pair, layouts, options }.run());
    let mut errors: Vec<FileError> = [reference, candidate].iter().flat_map(|r| r.errors.clone()).collect();
    let mut noise: HashMap<Option<String>, f64> = HashMap::new();
    let mut rows = Vec::new();
    for outcome in outcomes {
        match outcome {
            Outcome::Unreadable(error) => {
                if !errors.iter().any(|e| e.file == error.file && e.reason == error.reason) {
                    errors.push(error);
                }
            }
            Outcome::Settled(row) => rows.push(*row),
            Outcome::Measured { row, variants } => rows.push(decide(*row, &variants, &mut noise, options)),
        }
    }
    let runs = [reference, candidate].map(|r| r.path.display().to_string());
    Report::new(runs.to_vec(), errors, rows)
}

/// What came of a pair.
enum Outcome {
    /// A file cannot be read.
    Unreadable(FileError),
    /// Nothing to measure: `MISSING` or `LAYOUT`.
    Settled(Box<Row>),
    /// Measured, with every replica that differs from its like as one more variant.
    Measured { row: Box<Row>, variants: Vec<Judged> },
}

/// The worst of the variants makes the row. Noise carries over from tap to tap of a group: a tap that is not
/// `DIFFERENT` raises it to its own.
fn decide(
    mut row: Row,
    variants: &[Judged],
    noise: &mut HashMap<Option<String>, f64>,
    options: Options<'_>,
) -> Row {
    let inherited = noise.get(&row.group).copied();
    let decisions = variants.iter().map(|v| (v, v.decide(inherited, options.fail_on_nan)));
    let severity = |d: &Decision| (d.verdict, d.test.map_or(0.0, |t| t.severity));
    let mut worst: Option<(&Judged, Decision)> = None;
    let mut ranks = Vec::new();
    for (variant, decision) in decisions {
        variant.add_by_rank(&mut row.by_rank);
        ranks.extend(variant.ranks(&decision, inherited));
        if decision.verdict < Verdict::Different && variant.measured.statistics.float.is_some() {
            let before = noise.entry(row.group.clone()).or_insert(0.0);
            *before = before.max(decision.noise);
        }
        let found = severity(&decision);
        if worst
            .as_ref()
            .is_none_or(|(_, w)| found.partial_cmp(&severity(w)).is_some_and(std::cmp::Ordering::is_gt))
        {
            worst = Some((variant, decision));
        }
    }
    let Some((variant, decision)) = worst else { return row };
    variant.fill(&mut row, inherited);
    row.test = decision.test;
    let missing = row.verdict;
    row.verdict = missing.max(Some(decision.verdict));
    if row.verdict != missing || missing.is_none() {
        ranks.sort_unstable();
        ranks.dedup();
        row.ranks = ranks;
    }
    row
}

/// The work on one pair.
struct Work<'w, 'r> {
    indices: [&'w Index<'r>; 2],
    pair: &'w Pair,
    layouts: &'w Layouts,
    options: Options<'w>,
}

const SIDES: [&str; 2] = ["reference", "candidate"];

impl<'r> Work<'_, 'r> {
    fn run(&self) -> Outcome {
        let mut row = self.pair.row();
        for (index, side) in self.indices.iter().zip(SIDES) {
            if let Some(note) = index.restart(&self.pair.firing) {
                row.diagnoses.push(Diagnosis::new("restart", format!("{side}: {note}")));
            }
        }
        let [Some(a), Some(b)] = &self.pair.groups else {
            return Outcome::Settled(Box::new(self.missing(row)));
        };
        match self.measure(&mut row, [a, b]) {
            Ok(variants) => Outcome::Measured { row: Box::new(row), variants },
            Err(Fault::File(error)) => Outcome::Unreadable(error),
            Err(Fault::Layout(text)) => {
                row.verdict = Some(Verdict::Layout);
                row.ranks = self.ranks(1, b);
                row.diagnoses.push(Diagnosis::new("placement", text));
                Outcome::Settled(Box::new(row))
            }
        }
    }

    /// The row of what is on one side only.
    fn missing(&self, mut row: Row) -> Row {
        row.verdict = Some(Verdict::Missing);
        for (side, group) in self.pair.groups.iter().enumerate() {
            if let Some(group) = group {
                row.ranks = self.ranks(side, group);
                row.diagnoses.push(Diagnosis::new("missing", format!("only the {} has it", SIDES[side])));
            }
        }
        row
    }

    fn taps(&self, side: usize) -> Taps<'_, 'r> {
        let of = [Side::Reference, Side::Candidate][side];
        Taps { index: self.indices[side], firing: &self.pair.firing, layouts: self.layouts, side: Some(of) }
    }

    fn ranks(&self, side: usize, group: &Group) -> Vec<u32> {
        group.entries.iter().filter_map(|e| self.indices[side].rank(*e)).collect()
    }

    /// Assembles both sides and measures every variant of them.
    fn measure(&self, row: &mut Row, groups: [&Group; 2]) -> Result<Vec<Judged>, Fault> {
        let gather = |side: usize| self.taps(side).gather(groups[side]).map_err(|fault| of_side(side, fault));
        let gathered = [gather(0)?, gather(1)?];
        let rows = |side: usize| {
            let rows = self.indices[side].rows(&self.pair.firing, groups[side], self.layouts);
            rows.map_err(|text| Fault::Layout(format!("{}: {text}", SIDES[side])))
        };
        let rows = [rows(0)?, rows(1)?];
        let (placements, from) = self.placements(&gathered, rows)?;
        // The side with several ranks is the one whose placement matters.
        let shown = usize::from(gathered[1].members.len() > 1 || gathered[0].members.len() == 1);
        row.placement = Some(placements[shown].to_string());
        row.placement_from = Some(from[shown]);
        let [a, b] = gathered;
        let assemble = |side: usize, gathered: Gathered<'r>| {
            let made = self.taps(side).assemble(gathered, groups[side], &placements[side], rows[side]);
            made.map_err(|fault| of_side(side, fault))
        };
        let tensors = [assemble(0, a)?, assemble(1, b)?];
        if from == [PlacementFrom::Inferred; 2] {
            no_replicas([&tensors[0].whole, &tensors[1].whole])
                .map_or(Ok(()), |text| Err(Fault::Layout(text)))?;
        }
        let [a, b] = matched(tensors)?;
        for (side, placements) in placements.iter().enumerate() {
            self.note_absent(row, side, groups[side], placements);
        }
        let precision = self.layouts.of(&self.pair.firing.tap).and_then(|t| t.precision);
        let variants = variants(row, &a, &b, precision, self.options);
        let scales = placements[1].0.iter().any(|p| matches!(p.sharding, Sharding::ScaleOf { .. }));
        if scales && variants.iter().any(|v| !v.measured.identical) {
            let found = misplaced(&a, &b).into_iter();
            row.diagnoses.extend(found.map(|text| Diagnosis::new("rank_order", text)));
        }
        Ok(variants)
    }

    /// The placement of each side: what was said, else what the shapes say.
    fn placements(
        &self,
        gathered: &[Gathered<'r>; 2],
        rows: [Option<u64>; 2],
    ) -> Result<([Placements; 2], [PlacementFrom; 2]), Fault> {
        let [a, b] = self.pair.said.clone().map(|said| said.map_err(Fault::Layout));
        let said = self.pair.from;
        Ok(match (a?, b?) {
            (Some(a), Some(b)) => ([a, b], [said, said]),
            (None, None) => {
                let replicas: [&dyn Fn() -> bool; 2] =
                    [&|| gathered[0].are_replicas(), &|| gathered[1].are_replicas()];
                let kept = gathered.iter().any(|g| g.head_of == Some(Full::Unknown));
                let found = infer(&gathered[0].shapes(kept), &gathered[1].shapes(kept), rows, replicas);
                (found.map_err(Fault::Layout)?, [PlacementFrom::Inferred; 2])
            }
            // One tap is placed alike on both sides, as far as its mesh goes.
            (Some(a), None) => ([a.clone(), a], [said, PlacementFrom::Inferred]),
            (None, Some(b)) => ([b.clone(), b], [PlacementFrom::Inferred, said]),
        })
    }

    /// A replica that is not there although its rank recorded the tap at other times is `MISSING`; the others are
    /// compared nonetheless.
    fn note_absent(&self, row: &mut Row, side: usize, group: &Group, placements: &Placements) {
        if !placements.0.iter().any(|p| p.sharding == Sharding::Replicate) {
            return;
        }
        let absent = self.indices[side].absent(&self.pair.firing, group);
        if !absent.is_empty() {
            let ranks: Vec<String> = absent.iter().map(u32::to_string).collect();
            let text = format!("{}: no record of rank {}", SIDES[side], ranks.join(", "));
            row.diagnoses.push(Diagnosis::new("missing", text));
            row.verdict = Some(Verdict::Missing);
            row.ranks = self.ranks(side, group);
        }
    }
}

/// The fault, and on which side.
fn of_side(side: usize, fault: Fault) -> Fault {
    match fault {
        Fault::Layout(text) => Fault::Layout(format!("{}: {text}", SIDES[side])),
        file => file,
    }
}

/// What to say where equal shapes alone made replicas of ranks that hold other bits: those of a partial sum look the
/// same. Where the ranks of one side do agree they are replicas, and the other side's are wrong.
fn no_replicas(sides: [&Whole<'_>; 2]) -> Option<String> {
    let mut found = None;
    for (side, whole) in sides.into_iter().enumerate() {
        let others = whole.alternatives();
        match others.iter().find(|other| !same_bits(whole, other)) {
            None if !others.is_empty() => return None,
            None => {}
            Some(other) => {
                let own = |of: &Whole<'_>, not: &Whole<'_>| {
                    let not = not.picked();
                    let parts: Vec<usize> = of.picked().into_iter().filter(|p| !not.contains(p)).collect();
                    of.ranks(&parts).first().copied().unwrap_or_default()
                };
                let [a, b] = [own(whole, other), own(other, whole)];
                found.get_or_insert_with(|| {
                    format!(
                        "{}: no placement was given; taken as R, but ranks {a} and {b} differ: is it P? say \
                         placement=\"P\" at the tap or in --layouts (\"R\" where they are meant to be equal)",
                        SIDES[side]
                    )
                });
            }
        }
    }
    found
}

/// Both sides cut to the rows that both kept, if their shapes and dtypes can be compared.
fn matched<'r>([a, b]: [Tensor<'r>; 2]) -> Result<[Whole<'r>; 2], Fault> {
    let (mut whole_a, mut whole_b) = (a.whole, b.whole);
    if a.head_of.is_some() || b.head_of.is_some() {
        let kept = [&whole_a, &whole_b].map(|w| w.shape.first().copied().unwrap_or(0));
        let full = [a.head_of.unwrap_or(Full::Rows(kept[0])), b.head_of.unwrap_or(Full::Rows(kept[1]))];
        if let [Full::Rows(a), Full::Rows(b)] = full
            && a != b
        {
            return Err(Fault::Layout(format!("expected as many rows on both sides, found {a} and {b}")));
        }
        let rows = kept[0].min(kept[1]);
        (whole_a, whole_b) = (whole_a.first_rows(rows), whole_b.first_rows(rows));
    }
    if whole_a.shape != whole_b.shape {
        let text =
            format!("expected one shape, found {:?} and {:?} (candidate)", whole_a.shape, whole_b.shape);
        return Err(Fault::Layout(text));
    }
    // Assembling made sure that every part of a side has the dtype of the first.
    if let (Some(a), Some(b)) = (whole_a.parts.first(), whole_b.parts.first()) {
        let both_float = a.float().is_some() && b.float().is_some();
        if (a.dtype != b.dtype && !both_float) || a.complex != b.complex {
            let text = format!(
                "expected dtypes that can be compared, found {:?} and {:?} (candidate)",
                a.dtype, b.dtype
            );
            return Err(Fault::Layout(text));
        }
    }
    Ok([whole_a, whole_b])
}

/// The pair as the first replicas have it, and once more for every replica of either side that holds other bits.
fn variants(
    row: &mut Row,
    a: &Whole<'_>,
    b: &Whole<'_>,
    precision: Option<Float>,
    options: Options<'_>,
) -> Vec<Judged> {
    let mut twins = Vec::new();
    let mut others = Vec::new();
    for (side, whole) in [a, b].into_iter().enumerate() {
        let picked = whole.picked();
        for other in whole.alternatives() {
            let parts = other.picked();
            if same_bits(whole, &other) {
                if side == 1 {
                    twins.push(parts);
                }
                continue;
            }
            let only = |of: &[usize], not: &[usize]| {
                let parts: Vec<usize> = of.iter().copied().filter(|p| !not.contains(p)).collect();
                whole.ranks(&parts).iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
            };
            let text = format!(
                "{}: rank {} does not hold what rank {} does",
                SIDES[side],
                only(&parts, &picked),
                only(&picked, &parts)
            );
            row.diagnoses.push(Diagnosis::new("replicas", text));
            others.push((side, other));
        }
    }
    let mut all = vec![Judged::measure(a, b, precision, twins, options)];
    let codes = match &all[0].measured {
        measured if measured.identical => {
            (!same_codes(a, b)).then(|| "the values are equal, their codes are not".to_owned())
        }
        measured => measured.codes.map(|codes| codes.text(a.len())),
    };
    row.diagnoses.extend(codes.map(|text| Diagnosis::new("codes", text)));
    for (side, other) in others {
        let (a, b) = if side == 0 { (&other, b) } else { (a, &other) };
        all.push(Judged::measure(a, b, precision, Vec::new(), options));
    }
    all
}
