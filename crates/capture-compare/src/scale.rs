//! Block scales: which of them a rank holds follows from where its part of the scaled tensor lies.
//!
//! A block counts where it begins: rank r holds the scales of all blocks that its rows and columns reach into, so that
//! ranks whose parts end within a block hold its scale both. Each section of a fused tensor was quantised by itself and
//! begins with a block.

use crate::{
    assemble::Member,
    extent::{Extent, Stretch, extents},
    misfit::Misfit,
    whole::{Join, Node, Piece, Whole, product},
};
use capture_core::{Placements, Sharding};
use std::sync::Arc;

/// The logical tensor of the scales that `members` hold of `weight`, whose parts come from the same ranks and lie under
/// `placements`. Where several ranks hold the same scales, they ought to be equal.
pub(crate) fn assemble<'a>(
    members: Vec<Member<'a>>,
    weight: &Whole<'_>,
    placements: &Placements,
    block: &[u64],
) -> Result<Whole<'a>, (Option<u32>, Misfit)> {
    let rulers = rulers(&weight.shape, placements, block);
    let shape: Vec<u64> = rulers.iter().map(Ruler::blocks).collect();
    let extents = extents(weight);
    let mut held = Vec::with_capacity(members.len());
    for (m, member) in members.iter().enumerate() {
        let rank = member.part.rank;
        let of = weight.parts.iter().position(|p| p.rank == rank);
        let Some((of, extent)) = of.and_then(|of| Some((of, extents.get(of)?))) else {
            return Err((rank, Misfit::ScaleOf(String::new())));
        };
        if weight.parts[of].is_empty() && member.part.is_empty() {
            continue;
        }
        let blocks: Extent = rulers.iter().zip(extent).map(|(ruler, axis)| ruler.reached(axis)).collect();
        let expected: Vec<u64> = blocks.iter().map(|axis| axis.iter().map(|s| s.length).sum()).collect();
        if member.part.shape != expected {
            let (part, found) = (weight.parts[of].shape.clone(), member.part.shape.clone());
            return Err((rank, Misfit::Scales { expected, part, found }));
        }
        held.push(Held { part: m, shape: expected, blocks, at: Vec::new() });
    }
    let root = match product(&shape) {
        0 => Node::Part(0),
        _ => cells(&shape, &held).map_err(|misfit| (None, misfit))?,
    };
    let parts = Arc::new(members.into_iter().map(|m| m.part).collect());
    Ok(Whole { parts, root, shape, padded: 0 })
}

/// How an axis is divided into blocks.
struct Ruler {
    sections: Vec<u64>,
    block: u64,
}

/// The blocks of each axis: those said are of the last ones, the others have a scale for each step.
fn rulers(shape: &[u64], placements: &Placements, block: &[u64]) -> Vec<Ruler> {
    let sections = |axis: usize| {
        let of = placements.0.iter().find_map(|p| match &p.sharding {
            Sharding::Shard { axis: cut_axis, cut, .. } => {
                let at = if *cut_axis < 0 {
                    shape.len() as i64 + i64::from(*cut_axis)
                } else {
                    i64::from(*cut_axis)
                };
                (at == axis as i64).then(|| cut.sizes(shape[axis])).flatten()
            }
            _ => None,
        });
        of.unwrap_or_else(|| vec![shape[axis]])
    };
    let block_of = |axis: usize| (axis + block.len()).checked_sub(shape.len()).map_or(1, |i| block[i]);
    (0..shape.len()).map(|axis| Ruler { sections: sections(axis), block: block_of(axis) }).collect()
}

impl Ruler {
    fn blocks(&self) -> u64 {
        self.sections.iter().map(|n| n.div_ceil(self.block)).sum()
    }

    /// The blocks that stretches of the axis reach into, in the order in which a part holds them.
    fn reached(&self, stretches: &[Stretch]) -> Vec<Stretch> {
        let mut reached: Vec<Stretch> = Vec::new();
        let mut local = 0;
        for stretch in stretches {
            let (mut begin, mut first_block) = (0, 0);
            for &section in &self.sections {
                let from = stretch.global.max(begin);
                let to = (stretch.global + stretch.length).min(begin + section);
                if from < to {
                    let global = first_block + (from - begin) / self.block;
                    let length = first_block + (to - begin).div_ceil(self.block) - global;
                    reached.push(Stretch { local, global, length });
                    local += length;
                }
                (begin, first_block) = (begin + section, first_block + section.div_ceil(self.block));
            }
        }
        reached
    }
}

/// The scales of one rank that lie in a cell.
#[derive(Clone)]
struct Held {
    part: usize,
    shape: Vec<u64>,
    blocks: Extent,
    /// Where the cell begins in the part and how long it is, of the axes that are settled.
    at: Vec<(u64, u64)>,
}

impl Held {
    /// The cell out of the part.
    fn node(&self) -> Node {
        let mut shape = self.shape.clone();
        let mut node = Node::Part(self.part);
        for (axis, &(start, length)) in self.at.iter().enumerate().rev() {
            let of = shape[axis];
            if (start, length) != (0, of) {
                let inner = product(&shape[axis + 1..]);
                node = Node::Join(Join { pieces: vec![Piece { node, start, length, of }], length, inner });
                shape[axis] = length;
            }
        }
        node
    }
}

/// Cuts a tensor of that shape, axis by axis, wherever the scales of a rank begin or end.
fn cells(shape: &[u64], held: &[Held]) -> Result<Node, Misfit> {
    let axis = held.first().map_or(0, |h| h.at.len());
    let Some(&length) = shape.get(axis) else {
        let mut of: Vec<Node> = held.iter().map(Held::node).collect();
        return Ok(if of.len() == 1 { of.remove(0) } else { Node::Same { pick: 0, of } });
    };
    let ends = held.iter().flat_map(|h| &h.blocks[axis]).flat_map(|s| [s.global, s.global + s.length]);
    let mut cuts: Vec<u64> = ends.chain([0, length]).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let mut pieces = Vec::with_capacity(cuts.len());
    for cut in cuts.windows(2) {
        let &[from, to] = cut else { continue };
        let covers = |h: &Held| {
            let stretch = h.blocks[axis].iter().find(|s| s.global <= from && to <= s.global + s.length)?;
            let mut h = h.clone();
            h.at.push((stretch.local + from - stretch.global, to - from));
            Some(h)
        };
        let within: Vec<Held> = held.iter().filter_map(covers).collect();
        if within.is_empty() {
            return Err(Misfit::Unscaled { axis, from, to });
        }
        pieces.push(Piece { node: cells(shape, &within)?, start: 0, length: to - from, of: to - from });
    }
    Ok(Node::Join(Join { pieces, length, inner: product(&shape[axis + 1..]) }))
}

/// The most numbers that are looked through for scales in the wrong place, and the most comparisons of two.
const MOST: (u64, u64) = (1 << 22, 1 << 30);

/// `rank 2 holds scale row 0, expected row 1` for each rank of the candidate that holds scales of the reference, but of
/// other rows or columns than it should.
pub(crate) fn misplaced(reference: &Whole<'_>, candidate: &Whole<'_>) -> Vec<String> {
    let shape = &reference.shape;
    if reference.len() > MOST.0 || reference.is_empty() || shape.len() < 2 || shape != &candidate.shape {
        return Vec::new();
    }
    let mut whole = vec![0.0; reference.len() as usize];
    reference.read(0, &mut whole);
    let look = |(part, extent): (&crate::part::Part<'_>, &Extent)| {
        // A part of one stretch along each axis: a box.
        let corner: Vec<Stretch> = extent
            .iter()
            .map(|axis| <[Stretch; 1]>::try_from(axis.as_slice()).ok().map(|[s]| s))
            .collect::<Option<_>>()?;
        let mut own = vec![0.0; part.len() as usize];
        part.read(0, &mut own);
        let at: Vec<u64> = corner.iter().map(|s| s.global).collect();
        let holds = |at: &[u64]| same_box(&whole, shape, at, &own, &part.shape);
        if holds(&at) {
            return None;
        }
        (0..shape.len()).rev().take(2).rev().find_map(|axis| {
            let last = shape[axis].checked_sub(part.shape[axis])?;
            if last.saturating_mul(part.len()) > MOST.1 {
                return None;
            }
            let elsewhere = (0..=last).filter(|from| {
                let mut at = at.clone();
                at[axis] = *from;
                holds(&at)
            });
            let from = elsewhere.take(2).collect::<Vec<_>>();
            let &[from] = from.as_slice() else { return None };
            let what = if axis + 2 == shape.len() { "row" } else { "column" };
            let (found, expected) = (at_text(from, part.shape[axis]), at_text(at[axis], part.shape[axis]));
            Some(format!("rank {} holds scale {what} {found}, expected {what} {expected}", part.rank?))
        })
    };
    candidate.parts.iter().zip(&extents(candidate)).filter_map(look).collect()
}

/// `1`, or `2 to 3` of several.
fn at_text(from: u64, length: u64) -> String {
    if length == 1 { from.to_string() } else { format!("{from} to {}", from + length - 1) }
}

/// Whether the numbers of a box of the whole, from the corner `at`, are `own`.
fn same_box(whole: &[f64], shape: &[u64], at: &[u64], own: &[f64], size: &[u64]) -> bool {
    let width = size[size.len() - 1] as usize;
    own.chunks(width.max(1)).enumerate().all(|(row, own)| {
        let (mut rest, mut from, mut stride) = (row as u64, at[at.len() - 1], shape[shape.len() - 1]);
        for axis in (0..shape.len() - 1).rev() {
            from += (at[axis] + rest % size[axis]) * stride;
            rest /= size[axis];
            stride *= shape[axis];
        }
        whole[from as usize..from as usize + width].iter().zip(own).all(|(a, b)| a.to_bits() == b.to_bits())
    })
}

#[cfg(test)]
mod tests;
