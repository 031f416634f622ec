//! Numbers that begin at a cache line, so that no vector of them lies across two.

use std::ops::{Deref, DerefMut};

/// Bytes of a cache line, and of the widest vector.
const LINE: usize = 64;

/// A slice of its own, whose length stays.
#[derive(Debug)]
pub(crate) struct Aligned<T> {
    /// Up to a line more than is asked for.
    all: Vec<T>,
    begin: usize,
    len: usize,
}

impl<T: Copy + Default> Aligned<T> {
    /// So many zeros.
    pub(crate) fn new(len: usize) -> Self {
        let spare = LINE / size_of::<T>();
        let all = vec![T::default(); len + spare];
        // Where it cannot be aligned it is slower and no more.
        let begin = all.as_ptr().align_offset(LINE).min(spare);
        Self { all, begin, len }
    }

    /// These numbers.
    pub(crate) fn of(numbers: impl ExactSizeIterator<Item = T>) -> Self {
        let mut aligned = Self::new(numbers.len());
        aligned.iter_mut().zip(numbers).for_each(|(own, x)| *own = x);
        aligned
    }
}

impl<T> Deref for Aligned<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.all[self.begin..self.begin + self.len]
    }
}

impl<T> DerefMut for Aligned<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.all[self.begin..self.begin + self.len]
    }
}

impl<'n, T> IntoIterator for &'n Aligned<T> {
    type Item = &'n T;
    type IntoIter = std::slice::Iter<'n, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_begin_at_a_line_whatever_their_length() {
        for len in [0, 1, 15, 16, 4096] {
            let numbers = Aligned::of((0..len).map(|i| i as f32));
            assert_eq!((numbers.len(), numbers.as_ptr() as usize % LINE), (len, 0));
            assert!(numbers.into_iter().copied().eq((0..len).map(|i| i as f32)));
        }
    }
}
