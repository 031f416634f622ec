//! Placements that leave sizes open, with the sizes that the shapes of both sides tell.

use crate::{
    gather::Gathered,
    index::Firing,
    sections::{Widths, sections},
    taps::Taps,
};
use capture_core::{Placement, Placements, Sharding, placement::Cut};

/// A side: its tap, the entries of its records, and these.
type Side<'s, 'r> = (&'s Taps<'s, 'r>, &'s [usize], &'s Gathered<'r>);

/// Fills in the sections of which only the number is said, where another tap tells how wide the first is, and the size
/// of a dim whose longer side is padded.
pub(crate) fn fill_in(placements: &mut [Placements], sides: &[Side<'_, '_>]) -> Result<(), String> {
    let Some((taps, _, _)) = sides.first() else { return Ok(()) };
    let tap = &taps.firing.tap;
    let padded = taps.layouts.of(tap).is_some_and(|layout| layout.padded);
    let names = taps.layouts.first_section(tap);
    if !padded && names.is_empty() {
        return Ok(());
    }
    let mut count = 0;
    let widths = placements.iter().zip(sides).map(|(placements, (taps, entries, gathered))| {
        let (axis, cut) = shard(placements)?;
        if let Cut::Equal(n) = cut {
            count = *n;
        }
        Some(Widths { slices: slices(gathered, axis)?, first: first(taps, entries, &names) })
    });
    // A dim that is not there is said so where the tensor is assembled.
    let Some(widths) = widths.collect::<Option<Vec<_>>>() else { return Ok(()) };
    if padded {
        let sum = |side: &Widths| side.slices.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
        let least = widths.iter().map(sum).min();
        placements.iter_mut().filter_map(shard_mut).for_each(|(_, size)| *size = least);
    }
    if !names.is_empty() {
        let cuts = sections(count, &widths).map_err(|found| {
            format!(
                "sections={count}: expected tap {} in step {} to tell how wide the first section is, {found}: \
                 capture it, or write the sizes: sections=[…]",
                names.join(" or "),
                taps.firing.step
            )
        })?;
        let open = placements.iter_mut().filter_map(shard_mut);
        open.zip(cuts).for_each(|((cut, _), found)| *cut = found);
    }
    Ok(())
}

/// Axis and cut of a placement that is over one mesh dimension.
fn shard(placements: &Placements) -> Option<(i32, &Cut)> {
    match placements.0.as_slice() {
        [Placement { sharding: Sharding::Shard { axis, cut, .. }, .. }] => Some((*axis, cut)),
        _ => None,
    }
}

fn shard_mut(placements: &mut Placements) -> Option<(&mut Cut, &mut Option<u64>)> {
    match placements.0.as_mut_slice() {
        [Placement { sharding: Sharding::Shard { cut, size, .. }, .. }] => Some((cut, size)),
        _ => None,
    }
}

/// What each rank holds along the axis.
pub(super) fn slices(gathered: &Gathered<'_>, axis: i32) -> Option<Vec<u64>> {
    let width = |shape: Vec<u64>| {
        let at = if axis < 0 {
            shape.len().checked_sub(axis.unsigned_abs() as usize)
        } else {
            Some(axis as usize)
        };
        shape.get(at?).copied()
    };
    gathered.shapes(true).into_iter().map(width).collect()
}

/// The last dim of the first of those taps that all ranks recorded beside the entries: in the same step, and in the same
/// call or the step's first.
fn first(taps: &Taps<'_, '_>, entries: &[usize], names: &[String]) -> Option<Vec<u64>> {
    let run = taps.index.run;
    let beside = |name: &String, entry: &usize| {
        let process = run.entries[*entry].process;
        let find = |call| {
            let firing = Firing { tap: name.clone(), step: taps.firing.step, call };
            taps.index.entries(&firing).iter().map(|e| &run.entries[*e]).find(|e| e.process == process)
        };
        find(taps.firing.call).or_else(|| find(0))?.shape.last().copied()
    };
    names.iter().find_map(|name| entries.iter().map(|entry| beside(name, entry)).collect())
}
