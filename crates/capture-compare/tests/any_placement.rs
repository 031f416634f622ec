//! Any placement: a tensor split as the placement says, then assembled, is the tensor again.
//!
//! The splitter knows nothing of the assembler. It takes a tensor apart along one mesh dimension after the other, the
//! left one of the placement first, by lists of indices.

#![expect(clippy::unwrap_used, reason = "a test")]

use capture_compare::{
    assemble::{Member, assemble},
    part::Part,
};
use capture_core::{Dtype, Mesh};
use proptest::prelude::*;

/// A tensor in C order.
#[derive(Debug, Clone, PartialEq)]
struct Tensor {
    shape: Vec<usize>,
    numbers: Vec<i64>,
}

impl Tensor {
    fn counted(shape: &[usize]) -> Self {
        Self { shape: shape.to_vec(), numbers: (0..shape.iter().product::<usize>() as i64).collect() }
    }

    /// The steps `of` an axis; one past its end is padding.
    fn take(&self, axis: usize, of: &[usize]) -> Self {
        let (length, inner) = (self.shape[axis], self.shape[axis + 1..].iter().product::<usize>());
        let mut shape = self.shape.clone();
        shape[axis] = of.len();
        let outer: usize = self.shape[..axis].iter().product();
        let mut numbers = Vec::new();
        for o in 0..outer {
            for &i in of {
                for j in 0..inner {
                    numbers.push(if i < length { self.numbers[(o * length + i) * inner + j] } else { -1 });
                }
            }
        }
        Self { shape, numbers }
    }
}

/// What one mesh dimension does.
#[derive(Debug, Clone)]
enum Cut {
    Replicate,
    Partial,
    /// Lengths by their shares.
    Plain {
        axis: usize,
        shares: Vec<usize>,
        padding: usize,
    },
    Sections {
        axis: usize,
        sections: Vec<usize>,
    },
    Interleave {
        axis: usize,
        groups: usize,
        shares: Vec<usize>,
    },
    Groups {
        axis: usize,
        groups: usize,
        shares: Vec<usize>,
    },
}

impl Cut {
    fn text(&self, shape: &[usize], negative: bool) -> String {
        let at = |axis: &usize| {
            if negative { format!("-{}", shape.len() - axis) } else { axis.to_string() }
        };
        match self {
            Self::Replicate => "R".into(),
            Self::Partial => "P".into(),
            Self::Plain { axis, padding: 0, .. } => format!("S({})", at(axis)),
            Self::Plain { axis, .. } => format!("S({}, size={})", at(axis), shape[*axis]),
            Self::Sections { axis, sections } => {
                let sections: Vec<String> = sections.iter().map(usize::to_string).collect();
                format!("S({}, sections=[{}])", at(axis), sections.join(","))
            }
            Self::Interleave { axis, groups, .. } => format!("S({}, interleave={groups})", at(axis)),
            Self::Groups { axis, groups, .. } => format!("S({}, groups={groups})", at(axis)),
        }
    }

    /// What each of `n` places holds.
    fn split(&self, whole: &Tensor, n: usize) -> Vec<Tensor> {
        if n == 1 && !matches!(self, Self::Plain { .. }) {
            return vec![whole.clone()];
        }
        match self {
            Self::Replicate => vec![whole.clone(); n],
            Self::Partial => {
                let mut terms: Vec<Tensor> = (1..n)
                    .map(|k| {
                        let numbers = whole.numbers.iter().map(|x| x * 7 % (5 + k as i64) - 2).collect();
                        Tensor { shape: whole.shape.clone(), numbers }
                    })
                    .collect();
                let rest = (0..whole.numbers.len())
                    .map(|i| whole.numbers[i] - terms.iter().map(|t| t.numbers[i]).sum::<i64>());
                terms.push(Tensor { shape: whole.shape.clone(), numbers: rest.collect() });
                terms
            }
            Self::Plain { axis, shares, padding } => {
                let lists = portions(whole.shape[*axis] + padding, 1, &shares[..n]);
                lists.iter().map(|of| whole.take(*axis, of)).collect()
            }
            Self::Sections { axis, sections } => (0..n)
                .map(|place| {
                    let mut of = Vec::new();
                    let mut begin = 0;
                    for section in sections {
                        // torch.chunk: equal pieces, rounded up, until nothing is left.
                        let all: Vec<usize> = (begin..begin + section).collect();
                        of.extend(all.chunks(section.div_ceil(n)).nth(place).unwrap_or_default());
                        begin += section;
                    }
                    whole.take(*axis, &of)
                })
                .collect(),
            Self::Interleave { axis, groups, shares } => {
                let lists = portions(whole.shape[*axis], whole.shape[*axis] / groups, &shares[..n]);
                lists.iter().map(|of| whole.take(*axis, of)).collect()
            }
            Self::Groups { axis, groups, shares } => {
                let lists = portions(whole.shape[*axis], 1, &shares[..*groups]);
                (0..n).map(|place| whole.take(*axis, &lists[place * groups / n])).collect()
            }
        }
    }
}

/// `0..length` in neighbouring portions about as large as their shares, each a multiple of `unit`.
fn portions(length: usize, unit: usize, shares: &[usize]) -> Vec<Vec<usize>> {
    let (units, all) = (length / unit, shares.iter().sum::<usize>().max(1));
    let mut ends: Vec<usize> = Vec::new();
    let mut sum = 0;
    for share in shares {
        sum += share;
        ends.push(units * sum / all * unit);
    }
    *ends.last_mut().unwrap() = length;
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(&ends).map(|(from, to)| (from..*to).collect()).collect()
}

/// A cut of some axis of a tensor of that shape over `n` ranks.
fn cut(shape: Vec<usize>, n: usize) -> impl Strategy<Value = Cut> {
    let shares = prop::collection::vec(0usize..4, 8);
    let kinds = (0..7u8, 0..shape.len(), shares, 1usize..4, prop::collection::vec(1usize..4, 0..3));
    kinds.prop_map(move |(kind, axis, shares, some, splits)| match kind {
        0 => Cut::Replicate,
        1 => Cut::Partial,
        2 => Cut::Plain { axis, shares, padding: 0 },
        3 if shape[axis] > 0 => Cut::Plain { axis, shares, padding: some },
        4 if shape[axis] > splits.iter().sum() => {
            let last = shape[axis] - splits.iter().sum::<usize>();
            Cut::Sections { axis, sections: splits.into_iter().chain([last]).collect() }
        }
        5 if shape[axis] > 0 && shape[axis].is_multiple_of(some) => {
            Cut::Interleave { axis, groups: some, shares }
        }
        6 if n.is_multiple_of(some) => Cut::Groups { axis, groups: some, shares },
        _ => Cut::Plain { axis, shares, padding: 0 },
    })
}

/// A tensor's shape, and the cuts over ep and tp.
fn cases() -> impl Strategy<Value = (Vec<usize>, [usize; 2], [Cut; 2], bool, bool)> {
    let shapes = prop::collection::vec(0usize..9, 1..4);
    (shapes, 1usize..5, 1usize..5, any::<bool>(), any::<bool>()).prop_flat_map(
        |(shape, ep, tp, tp_first, negative)| {
            // Sizes are of the logical tensor, so those of the inner cut speak of an axis that the outer one leaves alone.
            let (outer, inner) = if tp_first { (tp, ep) } else { (ep, tp) };
            let inner_shape = shape.clone();
            (cut(shape.clone(), outer), cut(shape.clone(), inner)).prop_map(move |(a, b)| {
                let axis = |cut: &Cut| match cut {
                    Cut::Replicate | Cut::Partial => None,
                    Cut::Plain { axis, .. } | Cut::Sections { axis, .. } => Some(*axis),
                    Cut::Interleave { axis, .. } | Cut::Groups { axis, .. } => Some(*axis),
                };
                let b = match (&b, axis(&b)) {
                    (Cut::Plain { padding: 0, .. } | Cut::Groups { .. }, _) => b,
                    (_, Some(same)) if axis(&a) == Some(same) => {
                        Cut::Plain { axis: same, shares: vec![1; 8], padding: 0 }
                    }
                    _ => b,
                };
                (inner_shape.clone(), [ep, tp], [a, b], tp_first, negative)
            })
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn split_then_assembled_is_the_tensor(
        (shape, [ep, tp], [a, b], tp_first, negative) in cases()
    ) {
        let whole = Tensor::counted(&shape);
        let [outer, inner] = if tp_first { ["", "/ep"] } else { ["/ep", ""] };
        let text = format!("{}{outer}, {}{inner}", a.text(&shape, negative), b.text(&shape, negative));
        let (n, m) = if tp_first { (tp, ep) } else { (ep, tp) };
        let mut parts = vec![None; ep * tp];
        for (i, piece) in a.split(&whole, n).iter().enumerate() {
            for (j, piece) in b.split(piece, m).into_iter().enumerate() {
                // Of ranks the last dimension, tp, varies fastest.
                parts[if tp_first { j * tp + i } else { i * tp + j }] = Some(piece);
            }
        }
        let meshes: Vec<Mesh> =
            (0..ep * tp).map(|r| Mesh::from_sizes(&format!("ep={ep},tp={tp}"), r as u32).unwrap()).collect();
        let members = parts.into_iter().zip(&meshes).enumerate().map(|(rank, (part, mesh))| {
            let part: Tensor = part.unwrap();
            let shape: Vec<u64> = part.shape.iter().map(|d| *d as u64).collect();
            let bytes: Vec<u8> = part.numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            let part = Part::new(Some(rank as u32), Dtype::I64, &shape, None, bytes.into()).unwrap();
            Member { part, mesh, rows: None, headed: false }
        });
        let found = assemble(members.collect(), &text.parse().unwrap(), None);
        let found = found.map_err(|misfit| TestCaseError::fail(format!("{text}: {misfit}")))?;
        let mut numbers = vec![0.0; found.len() as usize];
        found.read(0, &mut numbers);
        let numbers: Vec<i64> = numbers.iter().map(|x| *x as i64).collect();
        let shape: Vec<usize> = found.shape.iter().map(|d| *d as usize).collect();
        prop_assert_eq!(Tensor { shape, numbers }, whole, "{}", text);
        // Every replica holds the same.
        for other in found.alternatives() {
            let mut again = vec![0.0; found.len() as usize];
            other.read(0, &mut again);
            let again: Vec<i64> = again.iter().map(|x| *x as i64).collect();
            let counted: Vec<i64> = (0..again.len() as i64).collect();
            prop_assert_eq!(again, counted, "{}", text);
        }
    }
}
