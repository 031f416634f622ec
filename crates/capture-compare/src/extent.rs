//! Where in a logical tensor each rank's part lies.

use crate::whole::{Node, Whole, product};

/// A stretch of an axis: `length` steps that begin at `global` in the logical tensor and at `local` in the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stretch {
    pub(crate) local: u64,
    pub(crate) global: u64,
    pub(crate) length: u64,
}

/// The stretches of one part by axis, in the order in which the part holds them.
pub(crate) type Extent = Vec<Vec<Stretch>>;

/// The extent of every part that has numbers.
pub(crate) fn extents(whole: &Whole<'_>) -> Vec<Extent> {
    let mut all = vec![vec![Vec::new(); whole.shape.len()]; whole.parts.len()];
    let window = |length: &u64| vec![Stretch { local: 0, global: 0, length: *length }];
    let windows: Extent = whole.shape.iter().map(window).collect();
    visit(&whole.root, &whole.shape, &windows, &mut all);
    for stretches in all.iter_mut().flatten() {
        stretches.sort_unstable();
        stretches.dedup();
        merge(stretches);
    }
    all
}

/// Goes down a node of that shape, of which the windows are in the tensor.
fn visit(node: &Node, shape: &[u64], windows: &Extent, all: &mut [Extent]) {
    match node {
        Node::Part(part) => {
            for (axis, stretches) in all[*part].iter_mut().zip(windows) {
                axis.extend_from_slice(stretches);
            }
        }
        Node::Sum(of) | Node::Same { of, .. } => of.iter().for_each(|node| visit(node, shape, windows, all)),
        // Rows that were picked one by one make no stretches.
        Node::Rows(_) => {}
        Node::Join(join) => {
            let is = |axis: &usize| shape[*axis] == join.length && product(&shape[axis + 1..]) == join.inner;
            // Two axes that both fit have length 1, as all between them: either will do, but for parts without numbers.
            let Some(axis) = (0..shape.len()).find(is) else { return };
            let mut begin = 0;
            for piece in &join.pieces {
                let (mut shape, mut windows) = (shape.to_vec(), windows.clone());
                shape[axis] = piece.of;
                let clipped = windows[axis].iter().filter_map(|w| {
                    let (from, to) = (w.local.max(begin), (w.local + w.length).min(begin + piece.length));
                    (from < to).then(|| Stretch {
                        local: from - begin + piece.start,
                        global: w.global + from - w.local,
                        length: to - from,
                    })
                });
                windows[axis] = clipped.collect();
                begin += piece.length;
                visit(&piece.node, &shape, &windows, all);
            }
        }
    }
}

/// Makes one stretch of those that go on in both the part and the tensor.
fn merge(stretches: &mut Vec<Stretch>) {
    let mut merged: Vec<Stretch> = Vec::with_capacity(stretches.len());
    for next in stretches.drain(..) {
        match merged.last_mut() {
            Some(last)
                if last.local + last.length == next.local && last.global + last.length == next.global =>
            {
                last.length += next.length;
            }
            _ => merged.push(next),
        }
    }
    *stretches = merged;
}
