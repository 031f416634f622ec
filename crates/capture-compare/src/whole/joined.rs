//! Several tensors that are one.

use super::{Join, Node, Piece, Whole, product};
use std::sync::Arc;

impl Whole<'_> {
    /// The tensors one after the other along `axis`. The parts must be of one dtype.
    ///
    /// # Errors
    /// What was expected and found, where they do not fit.
    pub(crate) fn joined(wholes: Vec<Self>, axis: usize) -> Result<Self, String> {
        let shapes: Vec<&[u64]> = wholes.iter().map(|w| w.shape.as_slice()).collect();
        let fits = |shape: &&[u64]| {
            let alike = |(i, (a, b)): (usize, (&u64, &u64))| i == axis || a == b;
            shape.len() == shapes[0].len() && shape.iter().zip(shapes[0]).enumerate().all(alike)
        };
        if axis >= shapes[0].len() || !shapes.iter().all(fits) {
            return Err(format!("expected shapes that differ in dim {axis} only, found {shapes:?}"));
        }
        let dtypes: Vec<_> =
            wholes.iter().filter_map(|w| w.parts.first().map(|p| (p.dtype, p.complex))).collect();
        if dtypes.iter().any(|d| *d != dtypes[0]) {
            let dtypes: Vec<_> = dtypes.iter().map(|d| d.0).collect();
            return Err(format!("expected one dtype, found {dtypes:?}"));
        }
        let (mut parts, mut pieces) = (Vec::new(), Vec::new());
        let (mut shape, mut length, mut padded) = (wholes[0].shape.clone(), 0u64, 0);
        let inner = product(&shape[axis + 1..]);
        for whole in wholes {
            let of = whole.shape[axis];
            pieces.push(Piece { node: whole.root.after(parts.len()), start: 0, length: of, of });
            parts.extend(Arc::unwrap_or_clone(whole.parts));
            length = length.saturating_add(of);
            padded = if axis == 0 { padded + whole.padded } else { whole.padded.max(padded) };
        }
        shape[axis] = length;
        Ok(Self { parts: Arc::new(parts), root: Node::Join(Join { pieces, length, inner }), shape, padded })
    }
}

impl Node {
    /// The same tree of parts that stand behind so many others.
    fn after(self, others: usize) -> Self {
        let all = |of: Vec<Self>| of.into_iter().map(|node| node.after(others)).collect();
        match self {
            Self::Part(part) => Self::Part(part + others),
            Self::Sum(of) => Self::Sum(all(of)),
            Self::Same { pick, of } => Self::Same { pick, of: all(of) },
            Self::Rows(rows) => Self::Rows(rows.with(|node| node.after(others))),
            Self::Join(join) => {
                let after = |piece: Piece| Piece { node: piece.node.after(others), ..piece };
                Self::Join(Join { pieces: join.pieces.into_iter().map(after).collect(), ..join })
            }
        }
    }
}
