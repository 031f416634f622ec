//! The largest of a stream of magnitudes.

use crate::{
    real::Real,
    statistics::Tail,
    vectors::{LANES, Loop},
};

/// The 256 largest of a stream, and a few more.
#[derive(Debug)]
pub(crate) struct Largest {
    kept: Vec<f64>,
    /// What is not above it is not among them.
    floor: f64,
}

impl Largest {
    const N: usize = 256;

    /// Of a stream whose 256 largest are known to be no less.
    pub(crate) fn from(least: f64) -> Self {
        Self { kept: Vec::new(), floor: least.next_down().max(0.0) }
    }

    /// What the 256 largest of a stream that holds this one are no less than.
    pub(crate) fn least(&mut self) -> f64 {
        if self.kept.len() < Self::N {
            return 0.0;
        }
        self.cut();
        self.floor
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a stream, when that of a part of it says what may be left out.
    #[track_caller]
    fn check(stream: &[f64]) {
        let mut part = Largest::from(0.0);
        stream.iter().step_by(5).for_each(|x| part.add(*x));
        let mut found = Largest::from(part.least());
        stream.iter().for_each(|x| found.add(*x));
        let mut sorted = stream.to_vec();
        sorted.sort_unstable_by(|a, b| b.total_cmp(a));
        let expected = Tail { k: 64, kth: sorted[63], last: sorted[255], len: 256, largest: sorted[0] };
        assert_eq!(found.tail(64, stream.len()), expected);
    }

    #[test]
    fn what_a_part_leaves_out_is_not_among_the_largest() {
        let of = |modulus: u64| (1..9000u64).map(|i| (i * 7919 % modulus) as f64 / 7.0).collect::<Vec<_>>();
        check(&of(8999));
        check(&of(1200)[..1000]);
        // The 256th largest of the part is as large as many others, or as all.
        check(&of(10));
        check(&[0.3; 3000]);
    }
}
