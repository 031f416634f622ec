//! The largest of a stream of magnitudes.

use crate::{
    real::Real,
    statistics::Tail,
    vectors::{LANES, Loop},
};

/// The 256 largest of a stream, and a few more.
#[derive(Debug, Default)]
pub(crate) struct Largest {
    kept: Vec<f64>,
    /// What is not above it is not among them.
    floor: f64,
}

impl Largest {
    const N: usize = 256;

    /// Adds those that are above the floor.
    pub(crate) fn add<T: Real>(&mut self, x: T) {
        let x = x.wide();
        if x > self.floor {
            self.kept.push(x);
            if self.kept.len() == 8 * Self::N {
                self.cut();
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        other.kept.iter().for_each(|x| self.add(*x));
    }

    /// The floor, or the number below it where the format does not have it.
    fn floor_in<T: Real>(&self) -> T {
        let floor = T::of(self.floor);
        if floor.wide() > self.floor { T::of(self.floor * (1.0 - 1e-7)) } else { floor }
    }

    fn cut(&mut self) {
        self.kept.select_nth_unstable_by(Self::N - 1, |a, b| b.total_cmp(a));
        self.kept.truncate(Self::N);
        self.floor = self.kept[Self::N - 1];
    }

    /// The tail of `n` of which these are the largest. Those not added, as they were zero, are the smallest of all.
    pub(crate) fn tail(&mut self, k: usize, n: usize) -> Tail {
        let len = n.min(4 * k);
        self.kept.sort_unstable_by(|a, b| b.total_cmp(a));
        let at = |i: usize| self.kept.get(i).copied().unwrap_or(0.0);
        Tail {
            k,
            kth: at(k.min(len).saturating_sub(1)),
            last: at(len.saturating_sub(1)),
            len,
            largest: at(0),
        }
    }
}

/// Adds all.
pub(crate) struct Add<'l, T> {
    pub(crate) to: &'l mut Largest,
    pub(crate) values: &'l [T],
}

impl<T: Real> Loop for Add<'_, T> {
    type Found = ();

    #[inline(always)]
    fn run(self) {
        let (vectors, rest) = self.values.as_chunks::<LANES>();
        rest.iter().for_each(|x| self.to.add(*x));
        let mut floor = self.to.floor_in();
        for values in vectors {
            if values.iter().fold(false, |any, x| any | (*x > floor)) {
                values.iter().filter(|x| **x > floor).for_each(|x| self.to.add(*x));
                floor = self.to.floor_in();
            }
        }
    }
}
