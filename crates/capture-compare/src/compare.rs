//! Two runs against each other: every logical tensor of the candidate with the reference's.
//!
//! Pairs are planned from the headers, measured in any order and in parallel, decided in capture order by the walk, and
//! explained where they differ. Only measuring and explaining read tensors.

use crate::{
    align::Alignments,
    choice::Choice,
    detail::Detail,
    diagnose::{Repeated, diagnose, misplaced},
    exact::{self, same_bits},
    gather::Fault,
    index::{Group, Index},
    judged::Judged,
    kept,
    layouts::{Layouts, Side},
    opened::{Opened, Opening, SIDES},
    options::{OneSided, Options, PairBy},
    outcome::{Measurement, Outcome},
    pairing::{Pair, groups, pairs},
    parted::Parted,
    payload::same_codes,
    reduction::{Reduced, Reduction, Reductions},
    report::{Diagnosis, Kind, LeftOut, Report, Row},
    run::{Entry, FileError, Run},
    scale, scores,
    steps::Steps,
    ties::{Again, rule},
    variants::variants,
    verdict::Verdict,
    walk::{Decided, walk},
};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// Compares a candidate run with a reference.
#[must_use]
pub fn compare(reference: &Run, candidate: &Run, layouts: &Layouts, options: Options<'_>) -> Report {
    let comparison = Comparison::new(reference, candidate, layouts, options);
    let all: Vec<usize> = (0..comparison.len()).collect();
    let mut outcomes = options.map(&all, |pair| comparison.n_bytes(*pair), |pair| comparison.measure(*pair));
    let again = comparison.rule(&mut outcomes);
    let found = options.map(&again, |_| 0, |again| comparison.measure_again(again));
    take_in(&mut outcomes, &again, found);
    let (mut decided, errors) = comparison.walk(outcomes);
    let explained = options.map(&decided, |_| 0, |decided| comparison.explain(decided));
    for (decided, found) in decided.iter_mut().zip(explained) {
        decided.say(found);
    }
    comparison.report(decided, errors)
}

/// Puts what was measured again in the place of what it was before.
pub(crate) fn take_in(outcomes: &mut [Outcome], again: &[Again], found: Vec<Outcome>) {
    for (again, mut found) in again.iter().zip(found) {
        let outcome = &mut outcomes[again.pair];
        if let (Outcome::Measured(found), Outcome::Measured(before)) = (&mut found, &mut *outcome) {
            found.ruling = before.ruling.take();
        }
        *outcome = found;
    }
}

impl Decided {
    /// Takes into the row what explaining it found. Numbers that differ under a placement that nobody gave, and not under
    /// another, are no fault of the numbers.
    pub(crate) fn say(&mut self, found: Explained) {
        let row = &mut self.row;
        let fits_otherwise = found.diagnoses.iter().any(|d| d.suggest.is_some());
        if row.verdict == Some(Verdict::Different) && row.is_guess() && fits_otherwise {
            row.take_for_misplaced();
        }
        row.diagnoses.extend(found.diagnoses);
        row.detail = found.detail;
    }
}

/// Two runs and the pairs of tensors that are to be compared, in capture order.
pub struct Comparison<'r> {
    sides: [Index<'r>; 2],
    noise: Option<Index<'r>>,
    reductions: [Reductions; 2],
    layouts: &'r Layouts,
    options: Options<'r>,
    pairs: Vec<Pair>,
    left_out: LeftOut,
    repeated: Repeated,
    alignments: Alignments,
    noise_alignments: Alignments,
}

/// What is to be said of a row beyond its figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// Findings.
    pub diagnoses: Vec<Diagnosis>,
    /// What a page shows, where it is asked for.
    pub detail: Option<Box<Detail>>,
}

impl<'r> Comparison<'r> {
    /// Plans from the headers of the runs.
    #[must_use]
    pub fn new(reference: &'r Run, candidate: &'r Run, layouts: &'r Layouts, options: Options<'r>) -> Self {
        let steps = Self::steps([reference, candidate], layouts, options.pair);
        Self::paired([reference, candidate], layouts, options, &steps)
    }

    /// Which steps of the runs belong together.
    pub(crate) fn steps(runs: [&Run; 2], layouts: &Layouts, by: PairBy) -> Steps {
        Steps::new(sides(runs, layouts).each_ref(), layouts, by)
    }

    /// The same as [`new`](Self::new) where the steps that belong together are known.
    pub(crate) fn paired(
        runs: [&'r Run; 2],
        layouts: &'r Layouts,
        options: Options<'r>,
        steps: &Steps,
    ) -> Self {
        let sides = sides(runs, layouts);
        let mut pairs = pairs(&sides[0], &sides[1], layouts, steps);
        let left_out = leave_out(&mut pairs, options.one_sided);
        let noise = options.noise.map(|run| Index::new(run, &str::to_owned));
        let reductions = sides.each_ref().map(|side| Reductions::of(side, layouts));
        let repeated = Repeated::of(&sides[1], &sides[0]);
        let (alignments, noise_alignments) = Default::default();
        Self {
            sides,
            noise,
            reductions,
            layouts,
            options,
            pairs,
            left_out,
            repeated,
            alignments,
            noise_alignments,
        }
    }

    /// How many pairs there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Bytes of a pair's records.
    #[must_use]
    pub fn n_bytes(&self, pair: usize) -> u64 {
        let sides = self.pairs[pair].groups.iter().zip(&self.sides);
        sides.map(|(group, index)| group.as_ref().map_or(0, |group| index.n_bytes(group))).sum()
    }

    /// The records that a pair is made of, other than those that its layout draws on: whether the candidate's, and which.
    pub(crate) fn records(&self, pair: usize) -> impl Iterator<Item = (usize, &Entry)> {
        let sides = self.pairs[pair].groups.iter().zip(&self.sides).enumerate();
        sides.flat_map(|(side, (group, index))| {
            let entries = group.iter().flat_map(|group| &group.entries);
            entries.map(move |e| (side, &index.run.entries[*e]))
        })
    }

    fn opening<'o>(&'o self, pair: usize, parted: Option<&'o Parted>) -> Opening<'o, 'r> {
        let [a, b] = &self.sides;
        let (layouts, alignments) = (self.layouts, &self.alignments);
        Opening { indices: [a, b], pair: &self.pairs[pair], layouts, alignments, parted }
    }

    /// Reads a pair and measures every variant of it.
    #[must_use]
    pub fn measure(&self, pair: usize) -> Outcome {
        self.outcome(pair, None)
    }

    /// Rules on choices that differ by outcomes of all pairs, in their order. Which pairs are to be measured again follows
    /// from it: those that go on after a tie, without the rows that do so otherwise.
    #[must_use]
    pub fn rule(&self, outcomes: &mut [Outcome]) -> Vec<Again> {
        rule(outcomes)
    }

    /// Measures a pair without the rows that parted.
    #[must_use]
    pub fn measure_again(&self, again: &Again) -> Outcome {
        self.outcome(again.pair, Some(&again.parted))
    }

    fn outcome(&self, pair: usize, parted: Option<&Parted>) -> Outcome {
        let opening = self.opening(pair, parted);
        let mut row = opening.pair.row();
        for (side, index) in self.sides.iter().enumerate() {
            let own = opening.pair.groups[side].as_ref().map(|_| opening.pair.own(side));
            if let Some(note) = own.and_then(|own| index.restart(&own)) {
                row.diagnoses.push(Diagnosis::new(Kind::Restart, format!("{}: {note}", SIDES[side])));
            }
        }
        row.diagnoses.extend(opening.pair.note.clone().map(|text| Diagnosis::new(Kind::Paired, text)));
        let [Some(a), Some(b)] = &opening.pair.groups else {
            return Outcome::Settled(Box::new(missing(&opening, row)));
        };
        if opening.pair.joined.iter().flatten().any(|joined| !joined.missing.is_empty()) {
            return Outcome::Settled(Box::new(incomplete(&opening, row)));
        }
        let opened = match opening.open(&mut row, [a, b]) {
            Ok(opened) => {
                // Ranks that one side lacks: the others' figures are to decide.
                if self.options.one_sided == OneSided::LeftOut {
                    row.verdict = None;
                }
                opened
            }
            Err(Fault::File(error)) => return Outcome::Unreadable(error),
            Err(Fault::Layout(text)) => {
                row.verdict = Some(Verdict::Layout);
                row.ranks = opening.ranks(1, b);
                row.diagnoses.push(Diagnosis::new(Kind::Placement, text));
                return Outcome::Settled(Box::new(row));
            }
        };
        if parted.is_some() && opened.tensors[1].is_empty() {
            row.padded = opened.tensors[1].padded;
            return Outcome::Settled(Box::new(row));
        }
        let reduced = self.reduced(opening.pair, [a, b]);
        if opened.is_left_out(&self.sides, [a, b]) {
            row.verdict = row.verdict.filter(|verdict| *verdict == Verdict::Missing);
            row.padded = opened.tensors.iter().map(|t| t.padded).max().unwrap_or(0);
            row.diagnoses
                .push(Diagnosis::new(Kind::Seen, "nothing compared: all of it is left out as padding"));
            return Outcome::Settled(Box::new(row));
        }
        let variants = measured(&mut row, &opened, reduced.as_ref(), self.options.stored);
        let mut floor = None;
        if variants.iter().any(|variant| !variant.measured.identical) {
            let found = self.floor(opening.pair, a);
            floor = found.as_ref().and_then(|found| found.as_ref().ok()).copied();
            let unused = found.and_then(Result::err);
            row.diagnoses
                .extend(unused.map(|why| Diagnosis::new(Kind::Seen, format!("noise run not used: {why}"))));
        }
        if let Some(error) = self.failure(opening.pair) {
            return Outcome::Unreadable(error);
        }
        let partials = reduced.map(|reduced| reduced.partials);
        let shape = opened.tensors[1].shape.clone();
        let choice = match parted {
            None => self.choice(pair, &opened, &variants, &mut row),
            Some(_) => None,
        };
        let (ruling, parted) = (None, parted.cloned());
        let measurement = Measurement { row, variants, floor, partials, shape, choice, ruling, parted };
        Outcome::Measured(Box::new(measurement))
    }

    /// What was chosen by scores, where ids differ that all replicas agree on.
    fn choice(&self, pair: usize, opened: &Opened<'r>, variants: &[Judged], row: &mut Row) -> Option<Choice> {
        let [Judged { measured, .. }] = variants else { return None };
        let are_ids = measured.statistics.float.is_none() && measured.statistics.differs;
        are_ids.then(|| scores::choice(&self.pairs, pair, opened, |pair| self.opening(pair, None), row))?
    }

    /// What could not be read of a pair while it was looked at.
    fn failure(&self, pair: &Pair) -> Option<FileError> {
        let of = |(group, side): (&Option<Group>, &Index<'_>)| side.run.failure(&group.as_ref()?.entries);
        pair.groups.iter().zip(&self.sides).find_map(of)
    }

    /// The partial sums that the tensors are made of, where they were captured.
    fn reduced(&self, pair: &Pair, groups: [&Group; 2]) -> Option<Reduced<'r>> {
        if pair.joined.iter().any(Option::is_some) {
            return None;
        }
        let of = [Side::Reference, Side::Candidate];
        Reduced::of(&std::array::from_fn(|side| Reduction {
            index: &self.sides[side],
            partials: self.reductions[side].feeding(&pair.own(side)),
            group: groups[side],
            layouts: self.layouts,
            side: Some(of[side]),
        }))
    }

    /// The relative noise of the pair's tap in the noise run, where that has it and it can be compared; why it is not
    /// used, where it differs from the reference as rounding does not.
    fn floor(&self, pair: &Pair, reference: &Group) -> Option<Result<f64, String>> {
        let noise = self.noise.as_ref().filter(|_| pair.joined.iter().all(Option::is_none))?;
        let all = groups(noise, &pair.own(0), &pair.said[0], self.layouts);
        let own = all.iter().find(|g| g.at == reference.at).or(all.first())?;
        // A second run of the reference counts steps as the reference does, and has its taps.
        let steps = [pair.steps[0]; 2];
        let pair = &Pair { steps, ..pair.clone() };
        let (layouts, alignments) = (self.layouts, &self.noise_alignments);
        let (indices, parted) = ([&self.sides[0], noise], None);
        let opening = Opening { indices, pair, layouts, alignments, parted };
        let opened = opening.open(&mut pair.row(), [reference, own]).ok()?;
        let [a, b] = &opened.tensors;
        let found = if same_bits(a, b) {
            Some(Ok(0.0))
        } else {
            crate::verdict::measure(a, b, opened.precision).as_noise()
        };
        found.filter(|_| noise.run.failure(&own.entries).is_none())
    }

    /// Decides all outcomes, one of each pair in the order of pairs. What could not be read comes as well.
    #[must_use]
    pub fn walk(&self, outcomes: Vec<Outcome>) -> (Vec<Decided>, Vec<FileError>) {
        walk(outcomes, self.options)
    }

    /// Reads a pair once more, where there is something to be said of it that its figures do not say.
    #[must_use]
    pub fn explain(&self, decided: &Decided) -> Explained {
        let mut explained = self.explain_difference(decided);
        let own = self.pairs[decided.pair].own(1);
        let repeated = self.repeated.text(&self.sides[1], &own);
        explained.diagnoses.extend(repeated.map(|text| Diagnosis::new(Kind::SameBytes, text)));
        match self.failure(&self.pairs[decided.pair]) {
            // It could be read before; where it cannot any more, the verdict stands without more words.
            Some(_) => Explained::default(),
            None => explained,
        }
    }

    fn explain_difference(&self, decided: &Decided) -> Explained {
        let none = Explained::default();
        let differs = matches!(decided.row.verdict, Some(Verdict::Suspect | Verdict::Different));
        let misfits = decided.row.verdict == Some(Verdict::Layout);
        if !(differs || misfits || self.options.details) {
            return none;
        }
        let opening = self.opening(decided.pair, decided.parted.as_ref());
        let [Some(a), Some(b)] = &opening.pair.groups else { return none };
        let Some(variant) = decided.variant else {
            let found = misfits.then(|| misplaced(&opening, [a, b], decided)).flatten();
            return Explained { diagnoses: found.into_iter().collect(), detail: None };
        };
        // It could be read before; where it cannot any more, the verdict stands without more words.
        let Ok(opened) = opening.open(&mut opening.pair.row(), [a, b]) else { return none };
        let variants = variants(&opened.tensors).pairs;
        let Some([r, c]) = variants.get(variant) else { return none };
        let diagnoses = match differs {
            true => diagnose(&opening, [a, b], &opened, [r, c], decided),
            false => Vec::new(),
        };
        let detail = self.options.details.then(|| match decided.row.verdict {
            Some(Verdict::Identical) => Detail::of_one(r),
            _ => Detail::of_two(r, c, opened.precision),
        });
        Explained { diagnoses, detail: detail.map(Box::new) }
    }

    /// All rows, and what could not be read.
    #[must_use]
    pub fn report(&self, decided: Vec<Decided>, unread: Vec<FileError>) -> Report {
        let mut errors: Vec<FileError> = self.sides.iter().flat_map(|side| side.run.errors.clone()).collect();
        for error in unread {
            if !errors.contains(&error) {
                errors.push(error);
            }
        }
        let runs = self.sides.each_ref().map(|side| side.run.path.display().to_string());
        let (kept, unread) =
            kept::rows(self.sides.each_ref().map(|side| side.run), self.layouts, self.options);
        errors.extend(unread);
        let of_kept: HashSet<_> = kept.iter().map(|row| (row.tap.clone(), row.step, row.call)).collect();
        let rows = decided.into_iter().map(|d| d.row);
        // What one side has in full and the other as a digest is no more missing than compared.
        let is_other = |row: &Row| {
            row.verdict != Some(Verdict::Missing) || !of_kept.contains(&(row.tap.clone(), row.step, row.call))
        };
        let rows = rows.filter(is_other).collect::<Vec<_>>().into_iter().chain(kept).collect();
        Report { left_out: self.left_out, ..Report::new(runs.to_vec(), errors, rows) }
    }
}

/// Reference and candidate, the candidate's taps under the names that the reference has for them.
fn sides<'r>([reference, candidate]: [&'r Run; 2], layouts: &Layouts) -> [Index<'r>; 2] {
    [Index::new(reference, &str::to_owned), Index::new(candidate, &|tap| layouts.renamed(tap))]
}

/// Every variant of a pair, measured; what its replicas, scales and codes say goes into the row.
fn measured(row: &mut Row, opened: &Opened<'_>, reduced: Option<&Reduced<'_>>, stored: bool) -> Vec<Judged> {
    let [a, b] = &opened.tensors;
    let found = variants(&opened.tensors);
    row.diagnoses.extend(found.notes);
    let mut twins = found.twins;
    let judge = |[a, b]: &[_; 2]| {
        let mut judged = Judged::measure(a, b, opened.precision, std::mem::take(&mut twins));
        let identical = judged.measured.identical;
        if let (false, Some(reduced), Some(float)) = (identical, reduced, judged.measured.statistics.float) {
            judged.bound(reduced.bound(a, b, float), [a, b]);
        }
        if stored && !identical {
            judged.measured.cast = exact::is_cast(a, b);
        }
        judged
    };
    let judged: Vec<Judged> = found.pairs.iter().map(judge).collect();
    let codes = match &judged[0].measured {
        measured if measured.identical => {
            (!same_codes(a, b)).then(|| "the values are equal, their codes are not".to_owned())
        }
        measured => measured.codes.map(|codes| codes.text(a.len())),
    };
    row.diagnoses.extend(codes.map(|text| Diagnosis::new(Kind::Codes, text)));
    if opened.are_scales && judged.iter().any(|v| !v.measured.identical) {
        row.diagnoses
            .extend(scale::misplaced(a, b).into_iter().map(|text| Diagnosis::new(Kind::RankOrder, text)));
    }
    judged
}

/// Leaves out the pairs of which only one side is there, where that is asked for.
fn leave_out(pairs: &mut Vec<Pair>, one_sided: OneSided) -> LeftOut {
    let mut left_out = LeftOut::default();
    pairs.retain(|pair| {
        let (side, count) = match pair.groups {
            [Some(_), None] => (0, &mut left_out.reference),
            [None, Some(_)] => (1, &mut left_out.candidate),
            _ => return true,
        };
        let is_left_out = one_sided.leaves_out(side);
        *count += usize::from(is_left_out) * pair.joined[side].as_ref().map_or(1, |j| j.parts.len());
        !is_left_out
    });
    left_out
}

/// The row of what is on one side only.
fn missing(opening: &Opening<'_, '_>, mut row: Row) -> Row {
    row.verdict = Some(Verdict::Missing);
    for (side, group) in opening.pair.groups.iter().enumerate() {
        if let Some(group) = group {
            row.ranks = opening.ranks(side, group);
            row.diagnoses.push(Diagnosis::new(Kind::Missing, format!("only the {} has it", SIDES[side])));
        }
    }
    row
}

/// The row of what is joined of taps that are not all there.
fn incomplete(opening: &Opening<'_, '_>, mut row: Row) -> Row {
    row.verdict = Some(Verdict::Missing);
    for (side, joined) in opening.pair.joined.iter().enumerate() {
        let (Some(joined), Some(group)) = (joined, &opening.pair.groups[side]) else { continue };
        row.ranks = opening.ranks(side, group);
        let found: Vec<&str> = joined.parts.iter().map(|p| p.firing.tap.as_str()).collect();
        let text = format!(
            "{}: expected all parts to join, found {} and not {}",
            SIDES[side],
            found.join(", "),
            joined.missing.join(", ")
        );
        row.diagnoses.push(Diagnosis::new(Kind::Missing, text));
    }
    row
}
