//! Rows that part at a tie: what follows in them is another computation, and is left out.

use crate::whole::{Whole, product};
use serde::{Deserialize, Serialize};

/// Rows that are left out of a pair.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Parted {
    /// How many rows there are.
    pub(crate) of: u64,
    /// Which of them parted, in order.
    pub(crate) rows: Vec<u64>,
    /// The tap where the first of them did, and its step.
    pub(crate) at: (String, u64),
}

impl Parted {
    /// What is said of a row that leaves them out; `step` is its own.
    pub(crate) fn text(&self, step: u64) -> String {
        let (tap, at) = &self.at;
        let when = if *at == step { String::new() } else { format!(" in step {at}") };
        let (n, of) = (self.rows.len(), self.of);
        format!("{n} of {of} rows left out: they follow other choices, first of {tap}{when}")
    }

    /// The tensor without these rows, its leading dims that make up the rows as one.
    pub(crate) fn left_out_of<'r>(&self, mut whole: Whole<'r>) -> Whole<'r> {
        let Some(dims) = leading(&whole.shape, self.of) else { return whole };
        whole.shape.splice(..dims, [self.of]);
        let left = |row: &u64| self.rows.binary_search(row).is_err();
        whole.with_rows((0..self.of).filter(left).collect())
    }
}

/// How many leading dims make up so many rows.
pub(crate) fn leading(shape: &[u64], rows: u64) -> Option<usize> {
    (1..=shape.len()).find(|dims| product(&shape[..*dims]) == rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{part::Part, whole::Node};
    use capture_core::Dtype;

    #[test]
    fn rows_are_left_out_of_leading_dims() {
        let shape = vec![2, 3, 2];
        let part = Part::new(Some(0), Dtype::U8, &shape, None, (0..12).collect::<Vec<u8>>().into()).unwrap();
        let whole = Whole { parts: vec![part].into(), root: Node::Part(0), shape, padded: 0 };
        let parted = |of, rows| Parted { of, rows, at: ("x".into(), 0) };
        let numbers = |whole: &Whole<'_>| {
            let mut numbers = vec![0.0; whole.len() as usize];
            whole.read(0, &mut numbers);
            numbers
        };
        let left = parted(6, vec![1, 4]).left_out_of(whole.clone());
        assert_eq!((left.shape.as_slice(), left.padded), (&[4, 2][..], 2));
        assert_eq!(numbers(&left), [0.0, 1.0, 4.0, 5.0, 6.0, 7.0, 10.0, 11.0]);
        let left = parted(2, vec![0]).left_out_of(whole.clone());
        assert_eq!((left.shape.as_slice(), numbers(&left)[0]), (&[1, 3, 2][..], 6.0));
        assert_eq!(parted(5, vec![0]).left_out_of(whole).shape, [2, 3, 2]);
        assert_eq!((leading(&[], 1), leading(&[1, 6], 6), leading(&[1, 6], 1)), (None, Some(2), Some(1)));
    }
}
