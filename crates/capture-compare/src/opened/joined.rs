//! A side that is joined of several taps, against the tap of the other side that is the whole of them.

use super::{
    Opening, SIDES,
    filled::slices,
    no_replicas, of_side,
    stacked::{concatenate, stack, stacked_shape},
};
use crate::{
    gather::{Fault, Gathered, Tensor},
    index::Group,
    infer::{fitting, listed, rank},
    layouts::Side,
    pairing::{Joined, PartOf},
    report::{Diagnosis, Kind, PlacementFrom, Row},
    sections::{Widths, sections},
    taps::Taps,
    whole::Whole,
};
use capture_core::{Placement, Placements, Sharding, placement::Cut};

/// The records of one tap, and what is known of their placement.
struct Piece<'p, 'r> {
    taps: Taps<'p, 'r>,
    group: &'p Group,
    gathered: Gathered<'r>,
    rows: Option<u64>,
    /// Alone it is the whole.
    said: Option<Placements>,
    /// What the tensor may be as far as its shapes tell: for a placement that was said the one shape that it makes.
    may_be: Vec<(Option<Sharding>, Vec<u64>)>,
}

impl<'r> Opening<'_, 'r> {
    /// Assembles and joins the parts of `side`, and assembles the whole of the other side. Where nobody said how the
    /// ranks share the whole, each part is a section of it.
    pub(super) fn join(
        &self,
        row: &mut Row,
        side: usize,
        joined: &Joined,
        whole: &Group,
    ) -> Result<[Tensor<'r>; 2], Fault> {
        let parts = joined.parts.iter().map(|part| self.part(side, part));
        let parts = parts.collect::<Result<Vec<_>, _>>().map_err(|fault| of_side(side, fault))?;
        let other = 1 - side;
        let own = self.pair.own(other);
        let said = self.pair.said[other].clone();
        let taps = self.taps(other, &own);
        let said = said.map(|said| self.cut_as_parts(said, &taps, whole, &parts));
        let whole = Piece::new(taps, whole, said).map_err(|fault| of_side(other, fault))?;
        let inferred = whole.said.is_none() && parts.iter().all(|part| part.said.is_none());
        let axis = axis(joined.dim, &parts).map_err(|fault| of_side(side, fault))?;
        let (of_parts, of_whole) = fit(&parts, &whole, (axis, joined.stacked))?;
        row.placement_from =
            Some(if whole.said.is_some() { self.pair.from } else { PlacementFrom::Inferred });
        row.placement = Some(of_whole.to_string());
        let text = format!("{}: {}", SIDES[side], made_of(joined, &parts, &of_parts));
        row.diagnoses.push(Diagnosis::new(Kind::Joined, text));
        for (part, placements) in parts.iter().zip(&of_parts) {
            self.note_absent(row, side, (part.taps.firing, part.group), placements);
        }
        self.note_absent(row, other, (&own, whole.group), &of_whole);
        let made = parts.into_iter().zip(&of_parts).map(|(part, placements)| part.assemble(placements));
        let made = made.collect::<Result<Vec<_>, _>>().map_err(|fault| of_side(side, fault))?;
        let tensor = match joined.stacked {
            Some(of_one) => stack(made, of_one),
            None => concatenate(made, axis),
        };
        let tensor = tensor.map_err(|text| of_side(side, Fault::Layout(text)))?;
        let whole = whole.assemble(&of_whole).map_err(|fault| of_side(other, fault))?;
        if inferred {
            no_replicas([&tensor.whole, &whole.whole]).map_or(Ok(()), |text| Err(Fault::Layout(text)))?;
        }
        Ok(if side == 0 { [tensor, whole] } else { [whole, tensor] })
    }

    /// A placement of the whole of which only the number of sections is said: they are as large as the parts. Where
    /// ranks hold more than that, several hold the same.
    fn cut_as_parts(
        &self,
        said: Option<Placements>,
        taps: &Taps<'_, 'r>,
        group: &Group,
        parts: &[Piece<'_, 'r>],
    ) -> Option<Placements> {
        let mut said = said?;
        let [Placement { sharding: Sharding::Shard { axis, cut, .. }, .. }] = said.0.as_mut_slice() else {
            return Some(said);
        };
        if *cut != Cut::Equal(parts.len() as u64) {
            return Some(said);
        }
        let size = |part: &Piece<'_, '_>| {
            let (_, shape) = part.may_be.first()?;
            let at = if *axis < 0 {
                shape.len().checked_sub(axis.unsigned_abs() as usize)
            } else {
                Some(*axis as usize)
            };
            shape.get(at?).copied()
        };
        let sizes: Option<Vec<u64>> = parts.iter().map(size).collect();
        let slices = taps.gather(group).ok().and_then(|gathered| slices(&gathered, *axis));
        if let (Some(sizes), Some(slices)) = (sizes, slices) {
            let total: u64 = sizes.iter().sum();
            let of_parts = Widths { slices: vec![total], first: Some(sizes[..1].to_vec()) };
            let shared = || {
                let of_whole = Widths { slices: slices.clone(), first: None };
                sections(parts.len() as u64, &[of_parts, of_whole]).ok()?.pop()
            };
            *cut = match slices.iter().sum::<u64>() > total {
                true => shared().unwrap_or(Cut::Sections(sizes)),
                false => Cut::Sections(sizes),
            };
        }
        Some(said)
    }

    fn part<'p>(&'p self, side: usize, part: &'p PartOf) -> Result<Piece<'p, 'r>, Fault> {
        let of = [Side::Reference, Side::Candidate][side];
        let (index, layouts) = (self.indices[side], self.layouts);
        let taps = Taps { index, firing: &part.firing, layouts, side: Some(of) };
        Piece::new(taps, &part.group, part.said.clone()).map_err(|fault| named(fault, &part.firing.tap))
    }
}

/// With the name of the part in front.
fn named(fault: Fault, tap: &str) -> Fault {
    match fault {
        Fault::Layout(text) => Fault::Layout(format!("{tap}: {text}")),
        file => file,
    }
}

impl<'p, 'r> Piece<'p, 'r> {
    fn new(
        taps: Taps<'p, 'r>,
        group: &'p Group,
        said: Result<Option<Placements>, String>,
    ) -> Result<Self, Fault> {
        let mut said = said.map_err(Fault::Layout)?;
        let gathered = taps.gather(group)?;
        let rows = taps.index.rows(taps.firing, group, taps.layouts).map_err(Fault::Layout)?;
        if gathered.members.len() == 1 && said.is_none() {
            said = Some(placements(Sharding::Replicate));
        }
        let may_be = match &said {
            Some(placements) => {
                let whole = taps.assemble(taps.gather(group)?, group, placements, rows)?.whole;
                vec![(None, logical(&whole))]
            }
            None => {
                let fitting = fitting(&gathered.shapes(true), rows);
                fitting.into_iter().map(|(sharding, shape)| (Some(sharding), shape)).collect()
            }
        };
        Ok(Self { taps, group, gathered, rows, said, may_be })
    }

    fn assemble(self, placements: &Placements) -> Result<Tensor<'r>, Fault> {
        let tensor = self.taps.assemble(self.gathered, self.group, placements, self.rows);
        tensor.map_err(|fault| named(fault, &self.taps.firing.tap))
    }
}

/// The shape without the 2 of complex numbers.
fn logical(whole: &Whole<'_>) -> Vec<u64> {
    let complex = whole.parts.first().is_some_and(|p| p.complex);
    whole.shape[..whole.shape.len() - usize::from(complex)].to_vec()
}

fn placements(sharding: Sharding) -> Placements {
    Placements(vec![Placement { sharding, over: "tp".to_owned() }])
}

/// The dim meant by `dim`, which every part has.
fn axis(dim: i32, parts: &[Piece<'_, '_>]) -> Result<usize, Fault> {
    let shape = parts[0].may_be.first().map_or(&[][..], |(_, shape)| shape);
    let found = if dim < 0 { shape.len() as i64 + i64::from(dim) } else { i64::from(dim) };
    let found = usize::try_from(found).ok().filter(|d| *d < shape.len());
    found.ok_or_else(|| Fault::Layout(format!("expected parts with dim {dim} to join, found {shape:?}")))
}

/// The placements of all parts and of the whole under which the parts make the whole: what was said, and of the rest what
/// the shapes tell, alike for all parts. Replicas come first, then the leading dims.
fn fit(
    parts: &[Piece<'_, '_>],
    whole: &Piece<'_, '_>,
    (axis, stacked): (usize, Option<usize>),
) -> Result<(Vec<Placements>, Placements), Fault> {
    let open = parts.iter().find(|part| part.said.is_none());
    let choices =
        open.map_or_else(|| vec![None], |part| part.may_be.iter().map(|(s, _)| s.clone()).collect());
    let mut best: Option<(i32, (Vec<Placements>, Placements))> = None;
    for choice in choices {
        let shape = |part: &Piece<'_, '_>| {
            let mut fits = part.may_be.iter().filter(|(s, _)| s.is_none() || *s == choice);
            fits.next().map(|(_, shape)| shape.clone())
        };
        let Some(shapes) = parts.iter().map(shape).collect::<Option<Vec<_>>>() else { continue };
        let sizes: Vec<u64> = shapes.iter().map(|s| s.get(axis).copied().unwrap_or(0)).collect();
        let mut joined = shapes[0].clone();
        joined[axis] = sizes.iter().fold(0, |sum, n| n.saturating_add(sum));
        if let Some(of_one) = stacked {
            joined = stacked_shape(&joined, parts.len() / of_one);
        }
        for (sharding, shape) in &whole.may_be {
            // What was said is not doubted: where it does not fit, the shapes say so.
            if *shape != joined && sharding.is_some() {
                continue;
            }
            let sharding = sharding.clone().map(|s| match s {
                Sharding::Shard { axis: along, cut: Cut::Plain, size }
                    if stacked.is_none() && usize::try_from(along) == Ok(axis) =>
                {
                    Sharding::Shard { axis: along, cut: Cut::Sections(sizes.clone()), size }
                }
                other => other,
            });
            let fits = i32::from(*shape != joined) * 1000;
            let cost = fits + choice.as_ref().map_or(0, rank) + sharding.as_ref().map_or(0, rank);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                let of = |piece: &Piece<'_, '_>, found: &Option<Sharding>| match (&piece.said, found) {
                    (Some(said), _) => said.clone(),
                    (None, found) => placements(found.clone().unwrap_or(Sharding::Replicate)),
                };
                let all = parts.iter().map(|part| of(part, &choice)).collect();
                best = Some((cost, (all, of(whole, &sharding))));
            }
        }
    }
    best.map(|(_, found)| found).ok_or_else(|| {
        let of = |piece: &Piece<'_, '_>| {
            format!("{} {}", piece.taps.firing.tap, listed(&piece.gathered.shapes(true)))
        };
        let parts: Vec<String> = parts.iter().map(of).collect();
        Fault::Layout(format!(
            "no placement given, and none fits: {} joined along dim {axis}, and {}",
            parts.join(", "),
            of(whole)
        ))
    })
}

/// What was joined, and how, for people.
fn made_of(joined: &Joined, parts: &[Piece<'_, '_>], placements: &[Placements]) -> String {
    const LISTED: usize = 4;
    let names = parts.iter().zip(placements).map(|(part, p)| format!("{} {p}", part.taps.firing.tap));
    let names: Vec<String> = names.take(LISTED).collect();
    let more = match parts.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let how = match joined.stacked {
        Some(of_one) => format!("{} stacked, each ", parts.len() / of_one),
        None => String::new(),
    };
    format!("{how}joined along dim {} of {}{more}", joined.dim, names.join(", "))
}
