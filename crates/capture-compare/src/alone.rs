//! One run across its ranks, without a reference: replicas are equal bit for bit, slices and partial sums fit their
//! placement, ranks share steps. What no placement is known of is only described.

use crate::{
    detail::Detail,
    exact::{count_nan, same_bits},
    gather::{Fault, Gathered},
    index::{Firing, Group, Index},
    judged::Judged,
    layouts::Layouts,
    options::Options,
    pairing::{groups, in_order, said},
    report::{Diagnosis, Kind, PlacementFrom, Report, Row},
    run::{FileError, Run},
    taps::Taps,
    verdict::Verdict,
    whole::Whole,
};
use capture_core::{Placements, Sharding};

/// Checks a run across its ranks.
#[must_use]
pub fn check(run: &Run, layouts: &Layouts, options: Options<'_>) -> Report {
    let index = Index::new(run, &|tap| layouts.renamed(tap));
    let mut work = Vec::new();
    for firing in in_order(&index) {
        let (said, from) = said(&index, firing, layouts);
        for group in groups(&index, firing, &said, layouts) {
            work.push((firing, group, said.clone(), from));
        }
    }
    let n_bytes = |(_, group, _, _): &(_, Group, _, _)| index.n_bytes(group);
    let rows = options.map(&work, n_bytes, |(firing, group, said, from)| {
        let look = Look { index: &index, firing, group, layouts, options };
        let mut row = Row {
            tap: firing.tap.clone(),
            step: firing.step,
            call: firing.call,
            group: group.label(),
            ..Row::default()
        };
        let seen = match said {
            Ok(Some(placements)) => look.placed(&mut row, placements, *from),
            Ok(None) => look.unplaced(&mut row),
            Err(text) => Err(Fault::Layout(text.clone())),
        };
        match seen {
            Ok(()) => Ok(row),
            Err(Fault::File(error)) => Err(error),
            Err(Fault::Layout(text)) => {
                row.verdict = Some(Verdict::Layout);
                row.ranks = look.ranks();
                row.diagnoses.push(Diagnosis::new(Kind::Placement, text));
                Ok(row)
            }
        }
    });
    let mut errors: Vec<FileError> = run.errors.clone();
    let mut good = Vec::new();
    for row in rows {
        match row {
            Ok(row) => good.push(row),
            Err(error) if errors.iter().any(|e| e.file == error.file && e.reason == error.reason) => {}
            Err(error) => errors.push(error),
        }
    }
    Report::new(vec![run.path.display().to_string()], errors, good)
}

/// One group of records, looked at.
struct Look<'l, 'r> {
    index: &'l Index<'r>,
    firing: &'l Firing,
    group: &'l Group,
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
    fn placed(&self, row: &mut Row, placements: &Placements, from: PlacementFrom) -> Result<(), Fault> {
        let gathered = self.gather(row)?;
        (row.placement, row.placement_from) = (Some(placements.to_string()), Some(from));
        let rows = self.index.rows(self.firing, self.group, self.layouts).map_err(Fault::Layout)?;
        let whole = self.taps().assemble(gathered, self.group, placements, rows)?.whole;
        (row.n, row.padded) = (whole.len(), whole.padded);
        let replicas = whole.alternatives();
        if replicas.is_empty() {
            let text = match whole.has_sum() {
                true => format!("partial sums of {:?}", whole.shape),
                false if whole.parts.len() > 1 => format!("slices join to {:?}", whole.shape),
                false => format!("on one rank: {:?}", whole.shape),
            };
            row.diagnoses.push(Diagnosis::new(Kind::Seen, text));
            row.detail = self.options.details.then(|| Box::new(Detail::of_one(&whole)));
            self.count_nan(row, &whole);
        } else {
            self.replicas(row, whole, replicas);
        }
        if placements.0.iter().any(|p| p.sharding == Sharding::Replicate) {
            self.absent(row);
        }
        Ok(())
    }

    /// Compares replicas with what most of them hold; with the lowest rank's where it is a draw.
    fn replicas(&self, row: &mut Row, whole: Whole<'r>, others: Vec<Whole<'r>>) {
        let mut classes: Vec<(Whole<'r>, usize)> = Vec::new();
        for replica in std::iter::once(whole).chain(others) {
            match classes.iter_mut().find(|(first, _)| same_bits(first, &replica)) {
                Some((_, count)) => *count += 1,
                None => classes.push((replica, 1)),
            }
        }
        let most = classes.iter().map(|c| c.1).max().unwrap_or(0);
        let at = classes.iter().position(|c| c.1 == most).unwrap_or(0);
        let (usual, _) = classes.swap_remove(at);
        row.verdict = Some(Verdict::Identical);
        let differ = !classes.is_empty();
        let odd = |replica: &Whole<'r>| differ && !same_bits(&usual, replica);
        // Every replica that is not as usual, whichever of its like it is.
        let (mut differing, same): (Vec<_>, Vec<_>) = usual.alternatives().into_iter().partition(odd);
        let twins = same.iter().map(Whole::picked).collect();
        let judged = Judged::measure(&usual, &usual, None, twins);
        judged.fill(row, None);
        judged.add_by_rank(&mut row.by_rank);
        if differing.is_empty() {
            self.count_nan(row, &usual);
            row.detail = self.options.details.then(|| Box::new(Detail::of_one(&usual)));
            return;
        }
        differing.sort_by_key(Whole::picked);
        let own = usual.picked();
        for replica in &differing {
            let parts: Vec<usize> = replica.picked().into_iter().filter(|p| !own.contains(p)).collect();
            row.ranks.extend(usual.ranks(&parts));
            let judged = Judged::measure(&usual, replica, None, Vec::new());
            judged.add_by_rank(&mut row.by_rank);
            let mut of = row.clone();
            judged.fill(&mut of, None);
            if row.worst.is_none() || of.max_abs > row.max_abs {
                of.detail = self.options.details.then(|| Box::new(Detail::of_two(&usual, replica, None)));
                *row = of;
            }
        }
        row.verdict = Some(Verdict::Different);
        let held: Vec<String> = usual.ranks(&own).iter().map(u32::to_string).collect();
        let text = format!("replicas differ: the others hold what rank {} does", held.join(", "));
        row.diagnoses.push(Diagnosis::new(Kind::Replicas, text));
    }

    /// A tap of which nobody said how it is placed.
    fn unplaced(&self, row: &mut Row) -> Result<(), Fault> {
        let gathered = self.gather(row)?;
        let shapes = gathered.shapes(true);
        let text = match shapes.as_slice() {
            [shape] => format!("on one rank: {shape:?}"),
            [first, rest @ ..] if rest.iter().all(|s| s == first) && gathered.are_replicas() => {
                "equal on all ranks".to_owned()
            }
            _ => "different: sharded or partial?".to_owned(),
        };
        row.diagnoses.push(Diagnosis::new(Kind::Seen, text));
        for member in gathered.members {
            let whole = Gathered { members: vec![member], head_of: None };
            let whole = whole.assemble(&Placements(Vec::new()), None)?.whole;
            row.n += whole.len();
            self.count_nan(row, &whole);
        }
        self.absent(row);
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

    /// Ranks that recorded the tap at other times but not now.
    fn absent(&self, row: &mut Row) {
        let absent = self.index.absent(self.firing, self.group);
        if absent.is_empty() {
            return;
        }
        let ranks: Vec<String> = absent.iter().map(u32::to_string).collect();
        row.diagnoses.push(Diagnosis::new(Kind::Missing, format!("no record of rank {}", ranks.join(", "))));
        if row.verdict < Some(Verdict::Missing) {
            row.verdict = Some(Verdict::Missing);
            row.ranks = self.ranks();
        }
    }
}
