//! Logical tensors from the parts of one group of ranks, under a placement. What is there is taken as it is: slices
//! that do not add up, missing ranks and differing shapes are a [`Misfit`], never a trim.

use crate::{
    misfit::Misfit,
    part::Part,
    whole::{Join, Node, Piece, Whole, product},
};
use capture_core::{
    Mesh, Placement, Placements, Sharding,
    placement::{Cut, Section},
};
use std::{collections::BTreeMap, sync::Arc};

/// One rank's part and where the rank stands.
#[derive(Debug, Clone)]
pub struct Member<'a> {
    /// Its numbers.
    pub part: Part<'a>,
    /// Its place in the mesh.
    pub mesh: &'a Mesh,
    /// Valid leading rows.
    pub rows: Option<u64>,
    /// Whether only the first rows of the tensor were kept.
    pub headed: bool,
}

/// The logical tensor that `members` make under `placements`. Members must differ in no mesh dimension but those
/// named. A named dimension that the mesh lacks or that has size 1 leaves the record whole. Replicas may be missing,
/// slices and terms may not; `rows` limits the rows of the result.
pub fn assemble<'a>(
    members: Vec<Member<'a>>,
    placements: &Placements,
    rows: Option<u64>,
) -> Result<Whole<'a>, Misfit> {
    let all: Vec<usize> = (0..members.len()).collect();
    let first = members.first().ok_or(Misfit::Empty)?;
    if members.iter().any(|m| m.part.dtype != first.part.dtype || m.part.complex != first.part.complex) {
        let found = members.iter().map(|m| format!("{} {:?}", label(m), m.part.dtype));
        return Err(Misfit::Dtypes(found.collect::<Vec<_>>().join(", ")));
    }
    let mut built = Assembler { members: &members }.build(&all, &placements.0)?;
    if let Some(rows) = rows {
        built = built.crop(0, rows).map_err(|shape| Misfit::Rows { rows, shape })?;
    }
    Ok(Whole {
        parts: Arc::new(members.into_iter().map(|m| m.part).collect()),
        root: built.node,
        shape: built.shape,
        padded: built.padded,
    })
}

fn label(member: &Member<'_>) -> String {
    member.part.rank.map_or_else(|| "rank unknown".to_owned(), |rank| format!("rank {rank}"))
}

struct Assembler<'m, 'a> {
    members: &'m [Member<'a>],
}

/// A subtree, its shape, and how many slices of padding were left out of it.
#[derive(Clone)]
struct Built {
    node: Node,
    shape: Vec<u64>,
    padded: u64,
}

impl Built {
    /// The first `length` steps of `axis`; the shape where there are fewer.
    fn crop(self, axis: usize, length: u64) -> Result<Self, Vec<u64>> {
        match self.shape.get(axis) {
            Some(&have) if have == length => Ok(self),
            Some(&have) if have > length => {
                let mut shape = self.shape;
                shape[axis] = length;
                let inner = product(&shape[axis + 1..]);
                let pieces = vec![Piece { node: self.node, start: 0, length, of: have }];
                let node = Node::Join(Join { pieces, length, inner });
                Ok(Self { node, shape, padded: self.padded + have - length })
            }
            _ => Err(self.shape),
        }
    }
}

impl Assembler<'_, '_> {
    fn build(&self, members: &[usize], placements: &[Placement]) -> Result<Built, Misfit> {
        let Some((placement, rest)) = placements.split_first() else {
            return self.leaf(members);
        };
        let mut sizes: Vec<u32> = members
            .iter()
            .map(|m| self.members[*m].mesh.dim(&placement.over).map_or(1, |d| d.size))
            .collect();
        sizes.sort_unstable();
        sizes.dedup();
        let &[size] = sizes.as_slice() else {
            return Err(Misfit::Mesh { over: placement.over.clone(), found: sizes });
        };
        if size == 1 {
            return self.unsharded(self.build(members, rest)?, members, &placement.sharding);
        }
        let mut places: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for &m in members {
            let coord = self.members[m].mesh.dim(&placement.over).map_or(0, |d| d.coord);
            places.entry(coord).or_default().push(m);
        }
        if places.len() < size as usize && placement.sharding != Sharding::Replicate {
            // A mesh may claim any size: only the first few that are missing are looked for.
            let missing = (0..size).filter(|c| !places.contains_key(c)).take(Misfit::LISTED).collect();
            return Err(Misfit::Missing { over: placement.over.clone(), size, found: places.len(), missing });
        }
        let built: Vec<Built> =
            places.values().map(|place| self.build(place, rest)).collect::<Result<_, _>>()?;
        match &placement.sharding {
            Sharding::Replicate => self.same(built, placement),
            Sharding::Partial => {
                let padded = built[0].padded;
                self.require_equal(&built, None, placement)?;
                let shape = built[0].shape.clone();
                Ok(Built { node: Node::Sum(built.into_iter().map(|b| b.node).collect()), shape, padded })
            }
            Sharding::ScaleOf { tap, .. } => Err(Misfit::ScaleOf(tap.clone())),
            Sharding::Shard { axis, cut, size } => {
                let axis = self.axis(*axis, members, &built[0].shape)?;
                if axis == 0 && members.iter().any(|m| self.members[*m].headed) {
                    return Err(Misfit::Headed);
                }
                let joined = self.join(built, axis, cut, placement)?;
                sized(joined, axis, *size)
            }
        }
    }

    fn leaf(&self, members: &[usize]) -> Result<Built, Misfit> {
        let &[m] = members else {
            return Err(Misfit::SamePlace(
                members.iter().filter_map(|m| self.members[*m].part.rank).collect(),
            ));
        };
        let member = &self.members[m];
        let whole = Built { node: Node::Part(m), shape: member.part.shape.clone(), padded: 0 };
        match member.rows {
            Some(rows) => whole.crop(0, rows).map_err(|shape| Misfit::Rows { rows, shape }),
            None => Ok(whole),
        }
    }

    /// A record that is the whole may still be padded past the logical size.
    fn unsharded(&self, whole: Built, members: &[usize], sharding: &Sharding) -> Result<Built, Misfit> {
        match sharding {
            Sharding::Shard { axis, size: Some(size), .. } => {
                let axis = self.axis(*axis, members, &whole.shape)?;
                sized(whole, axis, Some(*size))
            }
            _ => Ok(whole),
        }
    }

    /// The dim meant by `axis`, which counts in the logical shape: without the 2 of complex numbers.
    fn axis(&self, axis: i32, members: &[usize], shape: &[u64]) -> Result<usize, Misfit> {
        let complex = members.iter().any(|m| self.members[*m].part.complex);
        let dims = shape.len() - usize::from(complex);
        let found = if axis < 0 { dims as i64 + i64::from(axis) } else { i64::from(axis) };
        usize::try_from(found)
            .ok()
            .filter(|d| *d < dims)
            .ok_or_else(|| Misfit::Axis { axis, shape: shape[..dims].to_vec() })
    }

    fn same(&self, mut built: Vec<Built>, placement: &Placement) -> Result<Built, Misfit> {
        self.require_equal(&built, None, placement)?;
        if built.len() == 1 {
            return Ok(built.remove(0));
        }
        let (shape, padded) = (built[0].shape.clone(), built[0].padded);
        let of = built.into_iter().map(|b| b.node).collect();
        Ok(Built { node: Node::Same { pick: 0, of }, shape, padded })
    }

    /// All shapes equal, but for `axis` where one is given.
    fn require_equal(
        &self,
        built: &[Built],
        axis: Option<usize>,
        placement: &Placement,
    ) -> Result<(), Misfit> {
        let strip = |shape: &[u64]| {
            let mut shape = shape.to_vec();
            if let Some(d) = axis.and_then(|axis| shape.get_mut(axis)) {
                *d = 0;
            }
            shape
        };
        if built.iter().all(|b| strip(&b.shape) == strip(&built[0].shape)) {
            return Ok(());
        }
        let found = built.iter().map(|b| {
            let first = Whole::parts_of(&b.node)[0];
            format!("{} {:?}", label(&self.members[first]), b.shape)
        });
        Err(Misfit::Shapes { placement: placement.to_string(), found: found.collect::<Vec<_>>().join(", ") })
    }

    fn join(
        &self,
        mut built: Vec<Built>,
        axis: usize,
        cut: &Cut,
        placement: &Placement,
    ) -> Result<Built, Misfit> {
        self.require_equal(&built, Some(axis), placement)?;
        if let Cut::Groups(groups) = cut {
            let size = built.len();
            if !(size as u64).is_multiple_of(*groups) {
                return Err(Misfit::Groups { groups: *groups, size });
            }
            let each = size / *groups as usize;
            built = built
                .chunks(each)
                .map(|group| self.same(group.to_vec(), placement))
                .collect::<Result<_, _>>()?;
        }
        let slices: Vec<u64> = built.iter().map(|b| b.shape[axis]).collect();
        let mut total = slices.iter().try_fold(0u64, |sum, n| sum.checked_add(*n)).unwrap_or(u64::MAX);
        let mut shape = built[0].shape.clone();
        let inner = product(&shape[axis + 1..]);
        let whole = |b: &Built, length| Piece { node: b.node.clone(), start: 0, length, of: length };
        let pieces = match cut {
            Cut::Sections(sizes) => {
                let sections = sizes.iter().map(|size| Section { size: *size, groups: None });
                section_pieces(&built, &slices, (axis, inner), &sections.collect::<Vec<_>>())?
            }
            Cut::Equal(count) => {
                if !total.is_multiple_of(*count) {
                    return Err(Misfit::Equal { axis, count: *count, total });
                }
                let sections = vec![Section { size: total / count, groups: None }; *count as usize];
                section_pieces(&built, &slices, (axis, inner), &sections)?
            }
            Cut::Shared(sections) => {
                let pieces = section_pieces(&built, &slices, (axis, inner), sections)?;
                total = pieces.iter().map(|piece| piece.length).sum();
                pieces
            }
            Cut::Interleave(groups) => {
                let group = total / groups;
                if !total.is_multiple_of(*groups)
                    || slices.iter().any(|n| group == 0 || !n.is_multiple_of(group))
                {
                    return Err(Misfit::Interleave { axis, groups: *groups, total, slices });
                }
                built.iter().zip(&slices).map(|(b, n)| whole(b, *n)).collect()
            }
            Cut::Plain | Cut::Groups(_) => built.iter().zip(&slices).map(|(b, n)| whole(b, *n)).collect(),
        };
        shape[axis] = total;
        // Padding rows along the joined dim add up; along another one every slice has the same.
        let padded = built.iter().map(|b| b.padded);
        let padded = if axis == 0 { padded.sum() } else { padded.max().unwrap_or(0) };
        Ok(Built { node: Node::Join(Join { pieces, length: total, inner }), shape, padded })
    }
}

/// Cuts the tail past the logical size, which is padding.
fn sized(whole: Built, axis: usize, size: Option<u64>) -> Result<Built, Misfit> {
    let Some(expected) = size else { return Ok(whole) };
    let found = whole.shape[axis];
    whole.crop(axis, expected).map_err(|_| Misfit::Size { axis, expected, found })
}

/// Each section cut by itself as `torch.chunk` does: equal slices rounded up, the last ones shorter. A slice that several
/// ranks hold is each of theirs.
fn section_pieces(
    built: &[Built],
    slices: &[u64],
    (axis, inner): (usize, u64),
    sections: &[Section],
) -> Result<Vec<Piece>, Misfit> {
    let size = built.len();
    for groups in sections.iter().filter_map(|section| section.groups) {
        if !(size as u64).is_multiple_of(groups) {
            return Err(Misfit::Groups { groups, size });
        }
    }
    let holders = |section: &Section| section.groups.map_or(1, |groups| size / groups as usize);
    let share = |section: &Section, place: usize| {
        let each = section.size.div_ceil((size / holders(section)) as u64);
        let start = each.saturating_mul((place / holders(section)) as u64).min(section.size);
        each.min(section.size - start)
    };
    for (place, &found) in slices.iter().enumerate() {
        let expected = sections.iter().fold(0u64, |sum, s| sum.saturating_add(share(s, place)));
        if expected != found {
            let sections = sections.iter().map(|section| section.size).collect();
            return Err(Misfit::Sections { axis, sections, size, place, expected, found });
        }
    }
    let mut starts = vec![0; size];
    let mut pieces = Vec::new();
    for section in sections {
        let mut cut = (0..size).map(|place| {
            let (start, length) = (starts[place], share(section, place));
            starts[place] += length;
            Piece { node: built[place].node.clone(), start, length, of: slices[place] }
        });
        let holders = holders(section);
        while let Some(piece) = cut.next() {
            let length = piece.length;
            let held: Vec<Piece> = std::iter::once(piece).chain(cut.by_ref().take(holders - 1)).collect();
            pieces.push(if let [piece] = held.as_slice() {
                piece.clone()
            } else {
                shared(held, length, inner)
            });
        }
    }
    Ok(pieces)
}

/// One stretch that several ranks hold.
fn shared(held: Vec<Piece>, length: u64, inner: u64) -> Piece {
    let of = held.into_iter().map(|piece| Node::Join(Join { pieces: vec![piece], length, inner })).collect();
    Piece { node: Node::Same { pick: 0, of }, start: 0, length, of: length }
}

#[cfg(test)]
mod tests;
