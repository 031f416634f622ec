//! A logical tensor, made of the parts of many ranks without copying them: a tree whose leaves are parts. It is read
//! by flat index in C order, a run of neighbouring numbers at a time, so that a comparison needs memory for a chunk
//! only.

mod joined;
mod rows;

pub use rows::Rows;

pub(crate) use crate::part::product;

use crate::part::Part;
use std::{borrow::Cow, sync::Arc};

/// How parts make a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// A part, by its index.
    Part(usize),
    /// Pieces laid one after the other along an axis.
    Join(Join),
    /// The sum of tensors of one shape.
    Sum(Vec<Node>),
    /// Tensors that ought to be equal, of which the picked one stands for all.
    Same {
        /// Index of the one that stands for all.
        pick: usize,
        /// All of them.
        of: Vec<Node>,
    },
    /// Some rows of a tensor, in any order.
    Rows(Rows),
}

/// Pieces along one axis of a tensor of shape `[…, length, …]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Join {
    /// The pieces in order; their lengths add up to `length`.
    pub pieces: Vec<Piece>,
    /// Length of the axis.
    pub length: u64,
    /// Numbers per step along the axis: the product of the dims after it.
    pub inner: u64,
}

/// The stretch `start..start + length` of a child's axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The child.
    pub node: Node,
    /// Where the stretch begins in the child.
    pub start: u64,
    /// How long it is.
    pub length: u64,
    /// Length of the child's axis.
    pub of: u64,
}

/// A logical tensor.
#[derive(Debug, Clone)]
pub struct Whole<'a> {
    /// The parts that the tree speaks of.
    pub parts: Arc<Vec<Part<'a>>>,
    /// The tree.
    pub root: Node,
    /// Shape in numbers: a complex tensor has a last dimension of 2 more.
    pub shape: Vec<u64>,
    /// How many slices of padding were left out.
    pub padded: u64,
}

impl Whole<'_> {
    /// How many numbers there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        product(&self.shape)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `rows` steps of dim 0, of which there are at least as many.
    #[must_use]
    pub fn first_rows(mut self, rows: u64) -> Self {
        if let Some(of) = self.shape.first().copied().filter(|of| *of > rows) {
            self.shape[0] = rows;
            let inner = product(&self.shape[1..]);
            let pieces = vec![Piece { node: self.root, start: 0, length: rows, of }];
            self.root = Node::Join(Join { pieces, length: rows, inner });
        }
        self
    }

    /// Whether some of it is a sum over ranks.
    #[must_use]
    pub fn has_sum(&self) -> bool {
        fn any(node: &Node) -> bool {
            match node {
                Node::Part(_) => false,
                Node::Sum(_) => true,
                Node::Join(join) => join.pieces.iter().any(|p| any(&p.node)),
                Node::Same { pick, of } => any(&of[*pick]),
                Node::Rows(rows) => any(&rows.node),
            }
        }
        any(&self.root)
    }

    /// Whether its numbers are computed where they are read, as sums, packed and quantised ones are, and so are compared
    /// as numbers and not by their bytes.
    #[must_use]
    pub fn is_computed(&self) -> bool {
        self.has_sum() || self.parts.iter().any(|p| !p.is_stored())
    }

    /// Whether its numbers are in memory or mapped, and not read where they are looked at.
    pub(crate) fn is_held(&self) -> bool {
        self.parts.iter().all(Part::is_held)
    }

    /// Whether both are made alike of parts that hold the same, which settles computed ones without computing.
    #[must_use]
    pub fn is_alike(&self, other: &Self) -> bool {
        let picked = self.picked();
        self.root == other.root && picked.into_iter().all(|p| self.parts.get(p) == other.parts.get(p))
    }

    /// The codes of which it was dequantised, without their scales; `None` where it was not.
    #[must_use]
    pub fn codes(&self) -> Option<Self> {
        let quantised = !self.has_sum() && self.parts.iter().any(Part::is_quantised);
        let parts = || Arc::new(self.parts.iter().map(Part::codes).collect());
        quantised.then(|| Self {
            parts: parts(),
            root: self.root.clone(),
            shape: self.shape.clone(),
            ..*self
        })
    }

    /// Calls `visit(leaf, from, to)` for each run of neighbouring numbers that make up `from..to`, in order. A leaf is
    /// a part or a sum, and the numbers are counted in it.
    pub fn runs<'n>(&'n self, from: u64, to: u64, visit: &mut dyn FnMut(&'n Node, u64, u64)) {
        walk(&self.root, from, to, visit);
    }

    /// The numbers from `from` on, as many as `out` holds. Sums are formed in f64.
    pub fn read(&self, from: u64, out: &mut [f64]) {
        let mut at = 0;
        self.runs(from, from + out.len() as u64, &mut |leaf, from, to| {
            let next = at + (to - from) as usize;
            self.read_leaf(leaf, from, &mut out[at..next], f64::from);
            at = next;
        });
    }

    /// Adds to `out` the integers from `from` on, as many as it holds, without rounding. Only for parts that
    /// [have integers](Part::has_integers).
    pub(crate) fn add_integers(&self, from: u64, out: &mut [i128]) {
        self.add_integers_of(&self.root, from, out);
    }

    fn add_integers_of(&self, node: &Node, from: u64, out: &mut [i128]) {
        let mut at = 0;
        walk(node, from, from + out.len() as u64, &mut |leaf, from, to| {
            let next = at + (to - from) as usize;
            let out = &mut out[at..next];
            match leaf {
                Node::Part(part) => self.parts[*part].add_integers(from, out),
                Node::Sum(terms) => terms.iter().for_each(|term| self.add_integers_of(term, from, out)),
                Node::Join(_) | Node::Same { .. } | Node::Rows(_) => unreachable!("walk resolves these"),
            }
            at = next;
        });
    }

    /// For each number what its error may be as large as beside its own size: the sum of the magnitudes it was added up
    /// from, over ranks, and the smallest step of quantised codes. Zero where there is neither.
    pub fn read_magnitudes(&self, from: u64, out: &mut [f64]) {
        let mut at = 0;
        self.runs(from, from + out.len() as u64, &mut |leaf, from, to| {
            let next = at + (to - from) as usize;
            match leaf {
                Node::Sum(_) => self.read_leaf(leaf, from, &mut out[at..next], f64::abs),
                Node::Part(part) => self.parts[*part].read_terms(from, &mut out[at..next]),
                Node::Join(_) | Node::Same { .. } | Node::Rows(_) => {}
            }
            at = next;
        });
    }

    fn read_leaf(&self, leaf: &Node, from: u64, out: &mut [f64], of: fn(f64) -> f64) {
        match leaf {
            Node::Part(part) => {
                self.parts[*part].read(from, out);
                out.iter_mut().for_each(|x| *x = of(*x));
            }
            Node::Sum(terms) => {
                out.fill(0.0);
                let mut term = vec![0.0; out.len()];
                for node in terms {
                    let mut at = 0;
                    walk(node, from, from + term.len() as u64, &mut |leaf, from, to| {
                        let next = at + (to - from) as usize;
                        self.read_leaf(leaf, from, &mut term[at..next], of);
                        at = next;
                    });
                    out.iter_mut().zip(&term).for_each(|(sum, x)| *sum += x);
                }
            }
            Node::Join(_) | Node::Same { .. } | Node::Rows(_) => unreachable!("walk resolves these"),
        }
    }

    /// The bytes of the numbers `from..to`, gathered into `buffer` where they do not lie in one piece. Only for a
    /// tensor without sums.
    pub fn bytes<'b>(&'b self, from: u64, to: u64, buffer: &'b mut Vec<u8>) -> &'b [u8] {
        let mut single: Option<&[u8]> = None;
        buffer.clear();
        self.runs(from, to, &mut |leaf, from, to| {
            let Node::Part(part) = leaf else { return };
            match (single.take(), self.parts[*part].bytes(from, to)) {
                (None, Cow::Borrowed(bytes)) if buffer.is_empty() => single = Some(bytes),
                (first, bytes) => {
                    buffer.extend_from_slice(first.unwrap_or_default());
                    buffer.extend_from_slice(&bytes);
                }
            }
        });
        single.unwrap_or(buffer)
    }

    /// The parts that number `index` is made of: one, or all the terms of a sum.
    #[must_use]
    pub fn owners(&self, index: u64) -> Vec<usize> {
        fn leaves(node: &Node, index: u64, all: &mut Vec<usize>) {
            walk(node, index, index + 1, &mut |leaf, from, _| match leaf {
                Node::Part(part) => all.push(*part),
                Node::Sum(terms) => terms.iter().for_each(|term| leaves(term, from, all)),
                Node::Join(_) | Node::Same { .. } | Node::Rows(_) => {}
            });
        }
        let mut all = Vec::new();
        leaves(&self.root, index, &mut all);
        all
    }

    /// Every part below `node`, whether or not it is picked.
    #[must_use]
    pub fn parts_of(node: &Node) -> Vec<usize> {
        match node {
            Node::Part(part) => vec![*part],
            Node::Sum(of) | Node::Same { of, .. } => of.iter().flat_map(Self::parts_of).collect(),
            Node::Join(join) => join.pieces.iter().flat_map(|p| Self::parts_of(&p.node)).collect(),
            Node::Rows(rows) => Self::parts_of(&rows.node),
        }
    }

    /// The parts that are read: of what ought to be equal, the picked ones.
    #[must_use]
    pub fn picked(&self) -> Vec<usize> {
        fn walk(node: &Node, all: &mut Vec<usize>) {
            match node {
                Node::Part(part) => all.push(*part),
                Node::Sum(of) => of.iter().for_each(|node| walk(node, all)),
                Node::Same { pick, of } => walk(&of[*pick], all),
                Node::Join(join) => join.pieces.iter().for_each(|piece| walk(&piece.node, all)),
                Node::Rows(rows) => walk(&rows.node, all),
            }
        }
        let mut all = Vec::new();
        walk(&self.root, &mut all);
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The parts that are read here where `other`, which has other replicas picked, reads others.
    #[must_use]
    pub fn picked_unlike(&self, other: &Self) -> Vec<usize> {
        fn walk(node: &Node, other: &Node, all: &mut Vec<usize>) {
            match (node, other) {
                (Node::Same { pick, of }, Node::Same { pick: unlike, .. }) if pick != unlike => {
                    all.extend(Whole::parts_of(&of[*pick]));
                }
                (Node::Same { pick, of }, Node::Same { of: others, .. }) => {
                    walk(&of[*pick], &others[*pick], all);
                }
                (Node::Sum(of), Node::Sum(others)) => {
                    of.iter().zip(others).for_each(|(node, other)| walk(node, other, all));
                }
                (Node::Join(join), Node::Join(other)) => {
                    let pieces = join.pieces.iter().zip(&other.pieces);
                    pieces.for_each(|(piece, other)| walk(&piece.node, &other.node, all));
                }
                (Node::Rows(rows), Node::Rows(other)) => walk(&rows.node, &other.node, all),
                _ => {}
            }
        }
        let mut all = Vec::new();
        walk(&self.root, &other.root, &mut all);
        all
    }

    /// The same tensor as its other replicas have it: one for each that is not picked, with all else as it is here.
    #[must_use]
    pub fn alternatives(&self) -> Vec<Self> {
        let of =
            |root| Self { parts: self.parts.clone(), root, shape: self.shape.clone(), padded: self.padded };
        alternatives(&self.root).into_iter().map(of).collect()
    }

    /// The global ranks of parts, in order, each once.
    #[must_use]
    pub fn ranks(&self, parts: &[usize]) -> Vec<u32> {
        let mut ranks: Vec<u32> = parts.iter().filter_map(|p| self.parts[*p].rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

fn alternatives(node: &Node) -> Vec<Node> {
    let within = |of: &[Node], make: &dyn Fn(usize, Vec<Node>) -> Node| -> Vec<Node> {
        let replace = |i: usize, alternative| {
            let mut of = of.to_vec();
            of[i] = alternative;
            make(i, of)
        };
        (0..of.len())
            .flat_map(|i| alternatives(&of[i]).into_iter().map(move |a| (i, a)))
            .map(|(i, a)| replace(i, a))
            .collect()
    };
    match node {
        Node::Part(_) => Vec::new(),
        Node::Rows(rows) => {
            let others = alternatives(&rows.node).into_iter();
            others.map(|node| Node::Rows(rows.clone().with(|_| node))).collect()
        }
        Node::Sum(of) => within(of, &|_, of| Node::Sum(of)),
        Node::Same { pick, of } => {
            let others = (0..of.len()).filter(|i| i != pick);
            let mut all: Vec<Node> = others.map(|pick| Node::Same { pick, of: of.clone() }).collect();
            all.extend(within(of, &|pick, of| Node::Same { pick, of }));
            all
        }
        Node::Join(join) => {
            let nodes: Vec<Node> = join.pieces.iter().map(|p| p.node.clone()).collect();
            within(&nodes, &|_, nodes| {
                let pieces = join.pieces.iter().zip(nodes).map(|(p, node)| Piece { node, ..p.clone() });
                Node::Join(Join { pieces: pieces.collect(), ..join.clone() })
            })
        }
    }
}

fn walk<'n>(node: &'n Node, mut from: u64, to: u64, visit: &mut dyn FnMut(&'n Node, u64, u64)) {
    match node {
        Node::Part(_) | Node::Sum(_) => {
            if from < to {
                visit(node, from, to);
            }
        }
        Node::Same { pick, of } => walk(&of[*pick], from, to, visit),
        Node::Rows(rows) => rows.walk(from, to, visit),
        Node::Join(join) => {
            let stride = join.length * join.inner;
            while from < to {
                let (outer, within) = (from / stride, from % stride);
                let mut end = 0;
                for piece in &join.pieces {
                    let begin = end;
                    end += piece.length * join.inner;
                    if within < end {
                        let run = (end - within).min(to - from);
                        let child = (outer * piece.of + piece.start) * join.inner + within - begin;
                        walk(&piece.node, child, child + run, visit);
                        from += run;
                        break;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
