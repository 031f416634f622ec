//! Some rows of a tensor, in any order.

use super::{Node, Whole, product, walk};
use std::sync::Arc;

/// The rows of a tensor, each a step of its dim 0, that stand one after the other in another.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    pub(super) node: Box<Node>,
    /// Which row of `node` each is.
    rows: Arc<[u64]>,
    /// Numbers of a row.
    inner: u64,
}

impl Rows {
    /// The same rows of another tree.
    pub(super) fn with(self, of: impl FnOnce(Node) -> Node) -> Self {
        Self { node: Box::new(of(*self.node)), ..self }
    }

    /// Visits the runs that make up the numbers `from..to`. Rows that are neighbours in `node`, too, are one run.
    pub(super) fn walk<'n>(&'n self, mut from: u64, to: u64, visit: &mut dyn FnMut(&'n Node, u64, u64)) {
        while from < to {
            let (row, within) = ((from / self.inner) as usize, from % self.inner);
            let next = self.rows[row..].iter().zip(self.rows[row]..).take_while(|(row, next)| *row == next);
            let wanted = (within + to - from).div_ceil(self.inner);
            let rows = next.take(wanted as usize).count() as u64;
            let run = (rows * self.inner - within).min(to - from);
            let start = self.rows[row] * self.inner + within;
            walk(&self.node, start, start + run, visit);
            from += run;
        }
    }
}

impl Whole<'_> {
    /// Those rows of dim 0, of which each is there. What is left out counts as padding.
    pub(crate) fn with_rows(mut self, rows: Arc<[u64]>) -> Self {
        let n = rows.len() as u64;
        self.padded += self.shape[0].saturating_sub(n);
        self.shape[0] = n;
        let inner = product(&self.shape[1..]);
        self.root = Node::Rows(Rows { node: Box::new(self.root), rows, inner });
        self
    }
}
