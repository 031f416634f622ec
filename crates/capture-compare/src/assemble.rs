//! Logical tensors from the parts of one group of ranks, under a placement. What is there is taken as it is: slices
//! that do not add up, missing ranks and differing shapes are a [`Misfit`], never a trim.

use crate::{
    misfit::Misfit,
    part::Part,
    whole::{Join, Node, Piece, Whole, product},
};
use capture_core::{Mesh, Placement, Placements, Sharding, placement::Cut};
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
        let total = slices.iter().try_fold(0u64, |sum, n| sum.checked_add(*n)).unwrap_or(u64::MAX);
        let mut shape = built[0].shape.clone();
        let inner = product(&shape[axis + 1..]);
        shape[axis] = total;
        let whole = |b: &Built, length| Piece { node: b.node.clone(), start: 0, length, of: length };
        let pieces = match cut {
            Cut::Sections(sections) => section_pieces(&built, &slices, axis, sections)?,
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

/// Each section cut by itself as `torch.chunk` does: equal slices rounded up, the last ones shorter.
fn section_pieces(
    built: &[Built],
    slices: &[u64],
    axis: usize,
    sections: &[u64],
) -> Result<Vec<Piece>, Misfit> {
    let size = built.len();
    let share = |section: u64, place: usize| {
        let each = section.div_ceil(size as u64);
        let start = each.saturating_mul(place as u64).min(section);
        each.min(section - start)
    };
    for (place, &found) in slices.iter().enumerate() {
        let expected = sections.iter().fold(0u64, |sum, n| sum.saturating_add(share(*n, place)));
        if expected != found {
            let sections = sections.to_vec();
            return Err(Misfit::Sections { axis, sections, size, place, expected, found });
        }
    }
    let mut starts = vec![0; size];
    let mut pieces = Vec::with_capacity(sections.len() * size);
    for &section in sections {
        for (place, built) in built.iter().enumerate() {
            let length = share(section, place);
            let (node, start, of) = (built.node.clone(), starts[place], slices[place]);
            pieces.push(Piece { node, start, length, of });
            starts[place] += length;
        }
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture_core::Dtype;

    /// Members of a mesh, each an F32 tensor of that shape and numbers.
    fn check(
        mesh: &str,
        placement: &str,
        parts: &[(&[u64], &[f32])],
    ) -> Result<(Vec<u64>, Vec<f64>, u64), Misfit> {
        let meshes: Vec<Mesh> =
            (0..parts.len()).map(|rank| Mesh::from_sizes(mesh, rank as u32).unwrap()).collect();
        let members = parts.iter().zip(&meshes).enumerate().map(|(rank, ((shape, numbers), mesh))| {
            let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            let part = Part::new(Some(rank as u32), Dtype::F32, shape, None, bytes.into()).unwrap();
            Member { part, mesh, rows: None, headed: false }
        });
        let whole = assemble(members.collect(), &placement.parse().unwrap(), None)?;
        let mut numbers = vec![0.0; whole.len() as usize];
        whole.read(0, &mut numbers);
        Ok((whole.shape.clone(), numbers, whole.padded))
    }

    #[test]
    fn slices_join_in_rank_order() {
        let parts: &[(&[u64], &[f32])] = &[(&[1, 2], &[1., 2.]), (&[1, 2], &[3., 4.])];
        assert_eq!(check("tp=2", "S(0)", parts).unwrap(), (vec![2, 2], vec![1., 2., 3., 4.], 0));
        assert_eq!(check("tp=2", "S(-1)", parts).unwrap(), (vec![1, 4], vec![1., 2., 3., 4.], 0));
        assert_eq!(check("tp=2", "P", parts).unwrap(), (vec![1, 2], vec![4., 6.], 0));
        assert_eq!(check("tp=2", "R", parts).unwrap(), (vec![1, 2], vec![1., 2.], 0));
    }

    /// U01: rows are q0..q3, k0, k1, v0, v1; rank 0 holds q0 q1 k0 v0.
    #[test]
    fn sections_are_cut_each_by_itself() {
        let parts: &[(&[u64], &[f32])] = &[(&[4], &[0., 1., 4., 6.]), (&[4], &[2., 3., 5., 7.])];
        let (_, numbers, _) = check("tp=2", "S(0, sections=[4,2,2])", parts).unwrap();
        assert_eq!(numbers, [0., 1., 2., 3., 4., 5., 6., 7.]);
        let misfit = check("tp=2", "S(0, sections=[4,2,4])", parts).unwrap_err();
        assert_eq!(misfit.to_string(), "dim 0: sections [4, 2, 4] over 2 ranks leave rank 0 5, found 4");
    }

    #[test]
    fn uneven_sections_are_cut_as_torch_chunk_does() {
        // 5 over 2 ranks is 3 and 2; 2 over 2 ranks is 1 and 1.
        let parts: &[(&[u64], &[f32])] = &[(&[4], &[0., 1., 2., 5.]), (&[3], &[3., 4., 6.])];
        let (_, numbers, _) = check("tp=2", "S(0, sections=[5,2])", parts).unwrap();
        assert_eq!(numbers, [0., 1., 2., 3., 4., 5., 6.]);
    }

    /// U12: ten columns over four ranks of three, and uneven slices 3, 3, 3, 1.
    #[test]
    fn the_tail_past_the_size_is_padding() {
        let three: &[(&[u64], &[f32])] =
            &[(&[3], &[0., 1., 2.]), (&[3], &[3., 4., 5.]), (&[3], &[6., 7., 8.]), (&[3], &[9., -1., -1.])];
        let ten: Vec<f64> = (0..10).map(f64::from).collect();
        assert_eq!(check("tp=4", "S(0, size=10)", three).unwrap(), (vec![10], ten.clone(), 2));
        let mut uneven = three.to_vec();
        uneven[3] = (&[1], &[9.]);
        assert_eq!(check("tp=4", "S(0)", &uneven).unwrap(), (vec![10], ten, 0));
        assert_eq!(
            check("tp=4", "S(0, size=11)", &uneven).unwrap_err(),
            Misfit::Size { axis: 0, expected: 11, found: 10 }
        );
        // A record that is the whole is cropped too.
        assert_eq!(check("tp=1", "S(0, size=2)", &three[..1]).unwrap(), (vec![2], vec![0., 1.], 1));
    }

    #[test]
    fn groups_are_held_by_neighbours() {
        let parts: &[(&[u64], &[f32])] = &[(&[1], &[1.]), (&[1], &[1.]), (&[1], &[2.]), (&[1], &[2.])];
        assert_eq!(check("tp=4", "S(0, groups=2)", parts).unwrap(), (vec![2], vec![1., 2.], 0));
        assert_eq!(
            check("tp=4", "S(0, groups=3)", parts).unwrap_err(),
            Misfit::Groups { groups: 3, size: 4 }
        );
    }

    #[test]
    fn interleaved_groups_stay_whole() {
        let parts: &[(&[u64], &[f32])] = &[(&[4], &[0., 1., 2., 3.]), (&[4], &[4., 5., 6., 7.])];
        assert_eq!(check("tp=2", "S(0, interleave=4)", parts).unwrap().0, [8]);
        let cut: &[(&[u64], &[f32])] = &[(&[3], &[0., 1., 2.]), (&[5], &[3., 4., 5., 6., 7.])];
        assert!(matches!(check("tp=2", "S(0, interleave=4)", cut), Err(Misfit::Interleave { .. })));
    }

    #[test]
    fn the_left_dimension_is_outermost() {
        let parts: &[(&[u64], &[f32])] = &[(&[1], &[0.]), (&[1], &[1.]), (&[1], &[2.]), (&[1], &[3.])];
        // rank = 2·ep + tp
        assert_eq!(check("ep=2,tp=2", "S(0)/ep, S(0)", parts).unwrap().1, [0., 1., 2., 3.]);
        assert_eq!(check("ep=2,tp=2", "S(0), S(0)/ep", parts).unwrap().1, [0., 2., 1., 3.]);
        assert_eq!(check("ep=2,tp=2", "S(0)/ep, R", parts).unwrap().1, [0., 2.]);
    }

    #[test]
    fn what_does_not_fit_is_said_with_both_sizes() {
        let parts: &[(&[u64], &[f32])] = &[(&[1, 2], &[1., 2.]), (&[1, 3], &[3., 4., 5.])];
        assert_eq!(
            check("tp=2", "S(0)", parts).unwrap_err().to_string(),
            "expected shapes that fit together under S(0), found rank 0 [1, 2], rank 1 [1, 3]"
        );
        assert_eq!(
            check("tp=4", "S(1)", parts).unwrap_err().to_string(),
            "expected 4 ranks over tp, found 2: tp 2, 3 missing"
        );
        assert_eq!(check("tp=2", "S(2)", parts).unwrap_err(), Misfit::Axis { axis: 2, shape: vec![1, 2] });
        assert_eq!(check("dp=2", "S(0)", parts).unwrap_err(), Misfit::SamePlace(vec![0, 1]));
    }

    /// A mesh is what a file claims: nothing is made as large as that.
    #[test]
    fn a_mesh_of_any_size_is_only_counted() {
        let parts: &[(&[u64], &[f32])] = &[(&[1], &[1.]), (&[1], &[2.])];
        assert_eq!(
            check("tp=4294967295", "S(0)", parts).unwrap_err().to_string(),
            "expected 4294967295 ranks over tp, found 2: \
             tp 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17 and 4294967277 more missing"
        );
    }

    #[test]
    fn a_tensor_without_numbers_may_have_any_other_dims() {
        let parts: &[(&[u64], &[f32])] = &[(&[0, 1 << 40, 1 << 40], &[]), (&[0, 1 << 40, 1 << 40], &[])];
        assert_eq!(check("tp=2", "S(0)", parts).unwrap(), (vec![0, 1 << 40, 1 << 40], vec![], 0));
    }

    #[test]
    fn padding_rows_of_each_rank_are_left_out() {
        let mesh = [Mesh::from_sizes("tp=2", 0).unwrap(), Mesh::from_sizes("tp=2", 1).unwrap()];
        let member = |rank: usize, rows| {
            let bytes: Vec<u8> =
                [rank as f32, 10.0 + rank as f32, 9.0].iter().flat_map(|x| x.to_le_bytes()).collect();
            let part = Part::new(Some(rank as u32), Dtype::F32, &[3, 1], None, bytes.into()).unwrap();
            Member { part, mesh: &mesh[rank], rows, headed: false }
        };
        let members = || vec![member(0, Some(2)), member(1, Some(2))];
        for (placement, shape, padded) in [("S(0)", [4, 1], 2), ("S(1)", [2, 2], 1), ("P", [2, 1], 1)] {
            let whole = assemble(members(), &placement.parse().unwrap(), None).unwrap();
            assert_eq!((whole.shape.as_slice(), whole.padded), (shape.as_slice(), padded), "{placement}");
        }
        let error = assemble(vec![member(0, Some(4))], &"R".parse().unwrap(), None).unwrap_err();
        assert_eq!(error, Misfit::Rows { rows: 4, shape: vec![3, 1] });
        let headed = Member { headed: true, ..member(0, None) };
        let error = assemble(vec![headed, member(1, None)], &"S(0)".parse().unwrap(), None);
        assert_eq!(error.unwrap_err(), Misfit::Headed);
    }
}
