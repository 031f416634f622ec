//! A pair of groups, opened: the logical tensors of both sides under the placements that were said or inferred.

mod filled;
mod inferred;
mod joined;
mod stacked;

pub(crate) use self::filled::fill_in;

use self::inferred::no_replicas;

use crate::{
    absent::{absent, over},
    align::Alignments,
    float::Float,
    gather::{Fault, Full, Gathered, Tensor},
    index::{Firing, Group, Index},
    infer::{all, infer},
    layouts::{Layouts, Side},
    pairing::Pair,
    parted::Parted,
    rearrange::tiles_hint,
    report::{Diagnosis, Kind, PlacementFrom, Row},
    taps::Taps,
    verdict::Verdict,
    whole::Whole,
};
use capture_core::{Placements, Sharding};

/// What the sides of a pair are called.
pub(crate) const SIDES: [&str; 2] = ["reference", "candidate"];

/// A pair and where its records are.
#[derive(Clone, Copy)]
pub(crate) struct Opening<'o, 'r> {
    pub(crate) indices: [&'o Index<'r>; 2],
    pub(crate) pair: &'o Pair,
    pub(crate) layouts: &'o Layouts,
    pub(crate) alignments: &'o Alignments,
    /// Rows that are left out.
    pub(crate) parted: Option<&'o Parted>,
}

/// Two tensors of one shape whose dtypes can be compared.
pub(crate) struct Opened<'r> {
    /// Reference and candidate.
    pub(crate) tensors: [Whole<'r>; 2],
    /// The coarsest arithmetic upstream, where it was said.
    pub(crate) precision: Option<Float>,
    /// Whether they are scales whose place follows from their weight's.
    pub(crate) are_scales: bool,
}

impl Opened<'_> {
    /// Whether nothing is left of records that hold something.
    pub(crate) fn is_left_out(&self, indices: &[Index<'_>; 2], groups: [&Group; 2]) -> bool {
        let holds = |(index, group): (&Index<'_>, &Group)| {
            group.entries.iter().any(|e| index.run.entries[*e].numel() > 0)
        };
        self.tensors[0].is_empty() && indices.iter().zip(groups).any(holds)
    }
}

impl<'r> Opening<'_, 'r> {
    pub(crate) fn taps<'t>(&'t self, side: usize, firing: &'t Firing) -> Taps<'t, 'r> {
        let of = [Side::Reference, Side::Candidate][side];
        Taps { index: self.indices[side], firing, layouts: self.layouts, side: Some(of) }
    }

    pub(crate) fn ranks(&self, side: usize, group: &Group) -> Vec<u32> {
        let mut ranks: Vec<u32> = group.entries.iter().filter_map(|e| self.indices[side].rank(*e)).collect();
        if self.pair.joined[side].is_some() {
            ranks.sort_unstable();
            ranks.dedup();
        }
        ranks
    }

    /// Assembles both sides, and writes into the row how.
    pub(crate) fn open(&self, row: &mut Row, groups: [&Group; 2]) -> Result<Opened<'r>, Fault> {
        let (tensors, are_scales) = match &self.pair.joined {
            [Some(parts), _] => (self.join(row, 0, parts, groups[1])?, false),
            [_, Some(parts)] => (self.join(row, 1, parts, groups[0])?, false),
            [None, None] => self.assemble_or_infer(row, groups)?,
        };
        let (tensors, text) = self.alignments.align(self.indices, self.pair, self.layouts, tensors)?;
        row.diagnoses.extend(text.map(|text| Diagnosis::new(Kind::Aligned, text)));
        let mut tensors = matched(tensors)?;
        if let Some(parted) = self.parted {
            let text = parted.text(self.pair.firing.step);
            row.diagnoses.push(Diagnosis::new(Kind::LeftOut, text));
            tensors = tensors.map(|whole| parted.left_out_of(whole));
        }
        let precision = self.layouts.of(&self.pair.firing.tap).and_then(|t| t.precision);
        Ok(Opened { tensors, precision, are_scales })
    }

    /// The tensors of both sides, and whether they are scales whose place follows from their weight's.
    fn assemble(&self, row: &mut Row, groups: [&Group; 2]) -> Result<([Tensor<'r>; 2], bool), Fault> {
        let firings = [self.pair.own(0), self.pair.own(1)];
        let taps = [self.taps(0, &firings[0]), self.taps(1, &firings[1])];
        let gather = |side: usize| taps[side].gather(groups[side]).map_err(|fault| of_side(side, fault));
        let gathered = [gather(0)?, gather(1)?];
        let rows = |side: usize| {
            let rows = self.indices[side].rows(&firings[side], groups[side], self.layouts);
            rows.map_err(|text| Fault::Layout(format!("{}: {text}", SIDES[side])))
        };
        let rows = [rows(0)?, rows(1)?];
        let (mut placements, from) = self.placements(&gathered, rows)?;
        let entries = [&groups[0].entries[..], &groups[1].entries[..]];
        let sides = [0, 1].map(|side| (&taps[side], entries[side], &gathered[side]));
        if from != [PlacementFrom::Inferred; 2] {
            fill_in(&mut placements, &sides).map_err(Fault::Layout)?;
        }
        // The side with several ranks is the one whose placement matters.
        let shown = usize::from(gathered[1].members.len() > 1 || gathered[0].members.len() == 1);
        row.placement = Some(placements[shown].to_string());
        row.placement_from = Some(from[shown]);
        let [a, b] = gathered;
        let assemble = |side: usize, gathered: Gathered<'r>| {
            let made = taps[side].assemble(gathered, groups[side], &placements[side], rows[side]);
            made.map_err(|fault| of_side(side, fault))
        };
        let tensors = [assemble(0, a)?, assemble(1, b)?];
        if from == [PlacementFrom::Inferred; 2]
            && let Some(text) = no_replicas([&tensors[0].whole, &tensors[1].whole])
        {
            let shapes = [gather(0)?, gather(1)?].map(|gathered| gathered.shapes(false));
            let others = all(&shapes[0], &shapes[1], rows).into_iter().skip(1);
            return self.assemble_otherwise(row, groups, others).ok_or(Fault::Layout(text));
        }
        for (side, placements) in placements.iter().enumerate() {
            self.note_absent(row, side, (&firings[side], groups[side]), placements);
        }
        let are_scales = placements[1].0.iter().any(|p| matches!(p.sharding, Sharding::ScaleOf { .. }));
        Ok((tensors, are_scales))
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

    /// A replica that is not there is `MISSING`, unless the run says why; the others are compared nonetheless.
    fn note_absent(
        &self,
        row: &mut Row,
        side: usize,
        (firing, group): (&Firing, &Group),
        placements: &Placements,
    ) {
        if !placements.0.iter().any(|p| p.sharding == Sharding::Replicate) {
            return;
        }
        for mut found in absent(self.indices[side], firing, group, &over(Some(placements))) {
            if found.kind == Kind::Missing {
                row.verdict = Some(Verdict::Missing);
                row.ranks = self.ranks(side, group);
            }
            found.text = format!("{}: {}", SIDES[side], found.text);
            row.diagnoses.push(found);
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
        whole_a.padded += kept[0] - rows;
        whole_b.padded += kept[1] - rows;
    }
    if whole_a.shape != whole_b.shape {
        let (a, b) = (&whole_a.shape, &whole_b.shape);
        let hint = tiles_hint(a, b).or_else(|| tiles_hint(b, a)).unwrap_or_default();
        return Err(Fault::Layout(format!("expected one shape, found {a:?} and {b:?} (candidate){hint}")));
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
