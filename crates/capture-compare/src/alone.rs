//! One run across its ranks, without a reference: replicas are equal bit for bit, slices and partial sums fit their
//! placement, the tap after partial sums holds their sum, ranks share steps. NaN and infinity are named where they first
//! appear. What no placement is known of is only described.

mod finite;
mod gaps;
mod sums;

use self::{
    finite::{Seen, note_first},
    gaps::note_gaps,
    sums::Sums,
};
use crate::{
    absent::{absent, over},
    detail::Detail,
    exact::{count_nan, same_bits},
    gather::{Fault, Gathered},
    index::{Firing, Group, Index},
    judged::Judged,
    kept::rows_alone,
    layouts::Layouts,
    opened::fill_in,
    options::Options,
    pairing::{groups, in_order, said},
    placing::Said,
    reduction::{Reduction, Reductions},
    report::{Diagnosis, Kind, PlacementFrom, Report, Row},
    run::{Entry, FileError, Run},
    taps::Taps,
    verdict::Verdict,
    whole::Whole,
};
use capture_core::{Placements, Sharding};
use serde::{Deserialize, Serialize};

/// Checks a run across its ranks.
#[must_use]
pub fn check(run: &Run, layouts: &Layouts, options: Options<'_>) -> Report {
    let checking = Checking::new(run, layouts, options);
    let all: Vec<usize> = (0..checking.work.len()).collect();
    let n_bytes = |i: &usize| checking.index.n_bytes(&checking.work[*i].group);
    checking.report(options.map(&all, n_bytes, |i| checking.look(*i)))
}

/// A run and the groups of records that are to be looked at, in capture order.
pub(crate) struct Checking<'r> {
    index: Index<'r>,
    reductions: Reductions,
    layouts: &'r Layouts,
    options: Options<'r>,
    work: Vec<Work>,
}

/// The records of a firing that make one tensor, and what was said of how.
struct Work {
    firing: Firing,
    group: Group,
    said: Said,
    from: PlacementFrom,
}

/// The row of a group, and what of its numbers is not finite.
#[derive(Serialize, Deserialize)]
pub(crate) struct Found {
    row: Row,
    seen: Seen,
}

impl<'r> Checking<'r> {
    /// Plans from the headers of the run.
    pub(crate) fn new(run: &'r Run, layouts: &'r Layouts, options: Options<'r>) -> Self {
        let index = Index::new(run, &|tap| layouts.renamed(tap));
        let mut work = Vec::new();
        for firing in in_order(&index) {
            let (said, from) = said(&index, firing, layouts);
            for group in groups(&index, firing, &said, layouts) {
                work.push(Work { firing: firing.clone(), group, said: said.clone(), from });
            }
        }
        let reductions = Reductions::of(&index, layouts);
        Self { index, reductions, layouts, options, work }
    }

    /// How many groups there are.
    pub(crate) fn len(&self) -> usize {
        self.work.len()
    }

    /// The records of a group.
    pub(crate) fn records(&self, group: usize) -> impl Iterator<Item = &'r Entry> {
        let run = self.index.run;
        self.work[group].group.entries.iter().map(move |e| &run.entries[*e])
    }

    /// Looks at a group.
    pub(crate) fn look(&self, group: usize) -> Result<Found, FileError> {
        let Work { firing, group, said, from } = &self.work[group];
        let (index, layouts, options) = (&self.index, self.layouts, self.options);
        let look = Look { index, firing, group, partials: self.reductions.feeding(firing), layouts, options };
        let mut seen = Seen::default();
        let mut row = Row {
            tap: firing.tap.clone(),
            step: firing.step,
            call: firing.call,
            group: group.label(),
            ..Row::default()
        };
        let looked = match said {
            Ok(Some(placements)) => look.placed(&mut row, &mut seen, placements, *from),
            Ok(None) => look.gather(&mut row).and_then(|all| look.unplaced(&mut row, &mut seen, all)),
            Err(text) => Err(Fault::Layout(text.clone())),
        };
        match looked {
            _ if let Some(error) = index.run.failure(&group.entries) => return Err(error),
            Ok(()) => {}
            Err(Fault::File(error)) => return Err(error),
            Err(Fault::Layout(text)) => {
                row.verdict = Some(Verdict::Layout);
                row.ranks = look.ranks();
                row.diagnoses.push(Diagnosis::new(Kind::Placement, text));
            }
        }
        Ok(Found { row, seen })
    }

    /// All rows, in the order of groups, and what could not be read.
    pub(crate) fn report(&self, found: Vec<Result<Found, FileError>>) -> Report {
        let run = self.index.run;
        let mut errors: Vec<FileError> = run.errors.clone();
        let (mut good, mut odd) = (Vec::new(), Vec::new());
        for found in found {
            match found {
                Ok(Found { row, seen }) => {
                    good.push(row);
                    odd.push(seen);
                }
                Err(error) if errors.iter().any(|e| e.file == error.file && e.reason == error.reason) => {}
                Err(error) => errors.push(error),
            }
        }
        note_first(&mut good, &odd);
        note_gaps(&mut good);
        let (kept, unread) = rows_alone(run);
        good.extend(kept);
        errors.extend(unread);
        Report::new(vec![run.path.display().to_string()], errors, good)
    }
}

/// `rank 1` and `does`, `ranks 1, 3` and `do`.
fn named(ranks: &[u32]) -> (String, &'static str) {
    let list = ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    if ranks.len() == 1 { (format!("rank {list}"), "does") } else { (format!("ranks {list}"), "do") }
}

/// One group of records, looked at.
struct Look<'l, 'r> {
    index: &'l Index<'r>,
    firing: &'l Firing,
    group: &'l Group,
    /// The partial sums that it follows.
    partials: Option<&'l Firing>,
    layouts: &'l Layouts,
    options: Options<'l>,
}

impl<'r> Look<'_, 'r> {
    fn ranks(&self) -> Vec<u32> {
        self.group.entries.iter().filter_map(|e| self.index.rank(*e)).collect()
    }

    fn taps(&self) -> Taps<'_, 'r> {
        Taps { index: self.index, firing: self.firing, layouts: self.layouts, side: None }
    }

    fn gather(&self, row: &mut Row) -> Result<Gathered<'r>, Fault> {
        if let Some(note) = self.index.restart(self.firing) {
            row.diagnoses.push(Diagnosis::new(Kind::Restart, note));
        }
        self.taps().gather(self.group)
    }

    /// A tap of known placement: replicas are compared, the rest need only fit.
    fn placed(
        &self,
        row: &mut Row,
        seen: &mut Seen,
        placements: &Placements,
        from: PlacementFrom,
    ) -> Result<(), Fault> {
        let mut placements = [placements.clone()];
        let taps = self.taps();
        let gathered = self.gather(row)?;
        // Where the shapes do not tell how it is cut, nothing is known of it.
        if fill_in(&mut placements, &[(&taps, &self.group.entries, &gathered)]).is_err() {
            return self.unplaced(row, seen, gathered);
        }
        let [placements] = &placements;
        (row.placement, row.placement_from) = (Some(placements.to_string()), Some(from));
        let rows = self.index.rows(self.firing, self.group, self.layouts).map_err(Fault::Layout)?;
        let whole = self.taps().assemble(gathered, self.group, placements, rows)?.whole;
        let whole_is_empty = whole.is_empty();
        (row.n, row.padded) = (whole.len(), whole.padded);
        seen.add(&whole);
        let others = whole.alternatives();
        if others.is_empty() {
            let text = match whole.has_sum() {
                true => format!("partial sums of {:?}", whole.shape),
                false if whole.parts.len() > 1 => format!("slices join to {:?}", whole.shape),
                false => format!("on one rank: {:?}", whole.shape),
            };
            row.diagnoses.push(Diagnosis::new(Kind::Seen, text));
            row.detail = self.options.details.then(|| Box::new(Detail::of_one(&whole)));
            if let Some((tap, sum)) = self.sum()
                && let Some(sums) = Sums::of(&tap, &sum, &[vec![whole.clone()]])
            {
                sums.judge(row);
            }
            self.count_nan(row, &whole);
        } else {
            self.replicas(row, seen, whole, others);
        }
        let holds = |e: &usize| self.index.run.entries[*e].numel() > 0;
        if whole_is_empty && self.group.entries.iter().any(holds) {
            row.verdict = None;
            row.diagnoses
                .push(Diagnosis::new(Kind::Seen, "nothing compared: all of it is left out as padding"));
        }
        if placements.0.iter().any(|p| p.sharding == Sharding::Replicate) {
            self.absent(row, Some(placements));
        }
        Ok(())
    }

    /// The sum of the partials before it.
    fn sum(&self) -> Option<(String, Whole<'r>)> {
        let Self { index, group, partials, layouts, .. } = *self;
        let sum = Reduction { index, partials, group, layouts, side: None }.sum()?;
        Some((partials?.tap.clone(), sum))
    }

    /// Compares replicas with what most of them hold; where it is a draw with what is the sum of the partials before it,
    /// else with the lowest rank's.
    fn replicas(&self, row: &mut Row, seen: &mut Seen, whole: Whole<'r>, others: Vec<Whole<'r>>) {
        let mut classes: Vec<Vec<Whole<'r>>> = Vec::new();
        for replica in std::iter::once(whole).chain(others) {
            match classes.iter_mut().find(|class| same_bits(&class[0], &replica)) {
                Some(class) => class.push(replica),
                None => classes.push(vec![replica]),
            }
        }
        classes.iter().skip(1).for_each(|class| seen.add(&class[0]));
        let partials = self.sum();
        let sums = partials.as_ref().and_then(|(tap, sum)| Sums::of(tap, sum, &classes));
        let worth = |class: &Vec<Whole<'r>>| (sums.as_ref().is_some_and(|s| s.holds(class)), class.len());
        let most = classes.iter().map(worth).max().unwrap_or_default();
        let at = classes.iter().position(|class| worth(class) == most).unwrap_or(0);
        self.differences(row, &classes[at][0], classes.len() > 1);
        if let Some(sums) = sums {
            sums.judge(row);
        }
    }

    /// Compares all replicas with the usual one.
    fn differences(&self, row: &mut Row, usual: &Whole<'r>, differ: bool) {
        row.verdict = Some(Verdict::Identical);
        let odd = |replica: &Whole<'r>| differ && !same_bits(usual, replica);
        // Every replica that is not as usual, whichever of its like it is.
        let (mut differing, same): (Vec<_>, Vec<_>) = usual.alternatives().into_iter().partition(odd);
        let twins = same.iter().map(Whole::picked).collect();
        let judged = Judged::measure(usual, usual, None, twins);
        judged.fill(row, None);
        judged.add_by_rank(&mut row.by_rank);
        if differing.is_empty() {
            self.count_nan(row, usual);
            row.detail = self.options.details.then(|| Box::new(Detail::of_one(usual)));
            return;
        }
        differing.sort_by_key(Whole::picked);
        let own = usual.picked_unlike(&differing[0]);
        for replica in &differing {
            row.ranks.extend(usual.ranks(&replica.picked_unlike(usual)));
            let judged = Judged::measure(usual, replica, None, Vec::new());
            judged.add_by_rank(&mut row.by_rank);
            let mut of = row.clone();
            judged.fill(&mut of, None);
            if row.worst.is_none() || of.max_abs > row.max_abs {
                of.detail = self.options.details.then(|| Box::new(Detail::of_two(usual, replica, None)));
                *row = of;
            }
        }
        row.verdict = Some(Verdict::Different);
        row.ranks.sort_unstable();
        row.ranks.dedup();
        let [(odd, differ), (held, hold)] = [row.ranks.clone(), usual.ranks(&own)].map(|ranks| named(&ranks));
        let text = format!("replicas differ: {odd} {differ} not hold what {held} {hold}");
        row.diagnoses.push(Diagnosis::new(Kind::Replicas, text));
    }

    /// A tap of which nobody said how it is placed.
    fn unplaced(&self, row: &mut Row, seen: &mut Seen, gathered: Gathered<'r>) -> Result<(), Fault> {
        let shapes = gathered.shapes(true);
        let text = match shapes.as_slice() {
            [shape] => format!("on one rank: {shape:?}"),
            [first, rest @ ..] if rest.iter().all(|s| s == first) && gathered.are_replicas() => {
                "equal on all ranks".to_owned()
            }
            _ => "different: sharded or partial?".to_owned(),
        };
        row.diagnoses.push(Diagnosis::new(Kind::Seen, text));
        let mut wholes = Vec::new();
        for member in gathered.members {
            let whole = Gathered { members: vec![member], head_of: None };
            let whole = whole.assemble(&Placements(Vec::new()), None)?.whole;
            row.n += whole.len();
            seen.add(&whole);
            self.count_nan(row, &whole);
            wholes.push(vec![whole]);
        }
        if let Some((tap, sum)) = self.sum()
            && let Some(sums) = Sums::of(&tap, &sum, &wholes)
        {
            sums.describe(row);
        }
        self.absent(row, None);
        Ok(())
    }

    /// NaNs, which a run alone has no other side for.
    fn count_nan(&self, row: &mut Row, whole: &Whole<'_>) {
        row.both_nan = row.both_nan.max(count_nan(whole));
        if self.options.fail_on_nan && row.both_nan > 0 {
            row.verdict = Some(Verdict::Different);
            row.ranks = self.ranks();
        }
    }

    /// Ranks that have no record although they stand where the group does.
    fn absent(&self, row: &mut Row, placements: Option<&Placements>) {
        for found in absent(self.index, self.firing, self.group, &over(placements)) {
            if found.kind == Kind::Missing && row.verdict < Some(Verdict::Missing) {
                row.verdict = Some(Verdict::Missing);
                row.ranks = self.ranks();
            }
            row.diagnoses.push(found);
        }
    }
}
