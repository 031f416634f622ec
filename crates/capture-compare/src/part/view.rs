//! Numbers in another order: a crop, a transposition, tiles taken apart.

use super::{Part, product};

/// The numbers of a part at `start + Σ index·stride`, in C order of the dims.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Strided {
    pub(crate) start: u64,
    /// Size and stride of each dim, in numbers.
    pub(crate) dims: Vec<(u64, u64)>,
}

/// A part seen through strides.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct View<'a> {
    pub(crate) of: Part<'a>,
    pub(crate) at: Strided,
}

impl Strided {
    /// A tensor of that shape as it lies in C order.
    pub(crate) fn of(shape: &[u64]) -> Self {
        let mut stride = 1u64;
        let mut dims: Vec<(u64, u64)> = shape
            .iter()
            .rev()
            .map(|size| {
                let dim = (*size, stride);
                // Dims beside one of 0 may be anything, and no number is looked for by their strides.
                stride = stride.saturating_mul((*size).max(1));
                dim
            })
            .collect();
        dims.reverse();
        Self { start: 0, dims }
    }

    /// The numbers as one stretch, where they are.
    pub(crate) fn stretch(&self) -> Option<(u64, u64)> {
        let sizes: Vec<u64> = self.dims.iter().map(|d| d.0).collect();
        let plain = Self::of(&sizes);
        let same = |(a, b): (&(u64, u64), &(u64, u64))| a.0 == 1 || a.1 == b.1;
        self.dims.iter().zip(&plain.dims).all(same).then(|| (self.start, self.start + self.len()))
    }

    /// How many numbers there are.
    pub(crate) fn len(&self) -> u64 {
        product(&self.dims.iter().map(|d| d.0).collect::<Vec<_>>())
    }

    /// Calls `visit(first, stride, n)` for each row of `n` numbers that makes up `from..from + len`, in order.
    pub(crate) fn rows(&self, mut from: u64, len: u64, visit: &mut dyn FnMut(u64, u64, u64)) {
        let (&(width, stride), outer) = self.dims.split_last().unwrap_or((&(1, 1), &[]));
        let end = from + len;
        while from < end {
            let (mut rest, column) = (from / width, from % width);
            let mut first = self.start + column * stride;
            for (size, stride) in outer.iter().rev() {
                first += rest % size * stride;
                rest /= size;
            }
            let n = (width - column).min(end - from);
            visit(first, stride, n);
            from += n;
        }
    }

    /// The numbers copied out of `bytes`, `item` bytes each.
    pub(crate) fn copy(&self, bytes: &[u8], item: usize) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.len() as usize * item);
        self.rows(0, self.len(), &mut |first, stride, n| {
            if stride == 1 {
                copy.extend_from_slice(&bytes[first as usize * item..(first + n) as usize * item]);
                return;
            }
            for i in 0..n {
                let at = (first + i * stride) as usize * item;
                copy.extend_from_slice(&bytes[at..at + item]);
            }
        });
        copy
    }
}

impl View<'_> {
    /// The numbers from `from` on, as many as `out` holds.
    pub(crate) fn read(&self, from: u64, out: &mut [f64]) {
        self.gather(from, out, |at, out| self.of.read(at, out));
    }

    /// The same of the part's terms.
    pub(crate) fn read_terms(&self, from: u64, out: &mut [f64]) {
        self.gather(from, out, |at, out| self.of.read_terms(at, out));
    }

    /// Reads through `read`, which takes a place in the part's own order.
    fn gather(&self, from: u64, out: &mut [f64], read: impl Fn(u64, &mut [f64])) {
        let mut done = 0;
        self.at.rows(from, out.len() as u64, &mut |first, stride, n| {
            let row = &mut out[done..done + n as usize];
            done += n as usize;
            if stride == 1 {
                read(first, row);
                return;
            }
            for (i, number) in row.iter_mut().enumerate() {
                read(first + i as u64 * stride, std::slice::from_mut(number));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_the_strides() {
        // Columns 1 and 2 of a 2 × 4 matrix, transposed.
        let view = Strided { start: 1, dims: vec![(2, 1), (2, 4)] };
        assert_eq!(view.copy(&[0, 1, 2, 3, 4, 5, 6, 7], 1), [1, 5, 2, 6]);
        assert_eq!(view.copy(&(0..16).collect::<Vec<u8>>(), 2), [2, 3, 10, 11, 4, 5, 12, 13]);
        let plain = Strided::of(&[2, 4]);
        assert_eq!(plain.dims, [(2, 4), (4, 1)]);
        assert_eq!(plain.copy(&[0, 1, 2, 3, 4, 5, 6, 7], 1), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Strided::of(&[]).copy(&[7], 1), [7]);
        assert_eq!(Strided::of(&[0, 3]).copy(&[], 1), [0; 0]);
        assert_eq!(Strided::of(&[0, u64::MAX, 2]).copy(&[], 1), [0; 0]);
        assert_eq!((view.stretch(), plain.stretch()), (None, Some((0, 8))));
        assert_eq!(Strided { start: 4, dims: vec![(1, 9), (4, 1)] }.stretch(), Some((4, 8)));
    }
}
