//! The two formats that comparisons compute in: f32 where the numbers allow it, as twice as many fit a vector, else f64.

use crate::{decode::Number, float::Float, vectors::LANES};
use std::ops::{Add, BitOr, Div, Mul, Sub};

/// f32 or f64.
pub(crate) trait Real:
    Number
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Send
    + Sync
{
    /// Its bits, and distances on the number line.
    type Bits: Copy + Default + Ord + BitOr<Output = Self::Bits> + Into<u64>;

    /// As stored.
    fn bits(self) -> Self::Bits;
    /// The bits of the significand, as they stand in an f64.
    fn significand(bits: Self::Bits) -> u64;
    /// How many numbers of a format lie between two.
    fn distance(self, other: Self, line: &Line) -> Self::Bits;
    /// |x|.
    fn abs(self) -> Self;
    /// x·by + plus, rounded once.
    fn times(self, by: Self, plus: Self) -> Self;
    /// The larger of two that are not NaN: one instruction, unlike that of the standard library.
    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if self > other { self } else { other }
    }
    /// The smaller.
    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        if self < other { self } else { other }
    }
}

impl Real for f32 {
    type Bits = u32;

    #[inline(always)]
    fn bits(self) -> u32 {
        self.to_bits()
    }

    fn significand(bits: u32) -> u64 {
        u64::from(bits & ((1 << 23) - 1)) << 29
    }

    #[inline(always)]
    fn distance(self, other: Self, line: &Line) -> u32 {
        let (a, b) = (line.place(self), line.place(other));
        // From −2^31 to 2^31 it may be more than an i32 holds.
        a.max(b).wrapping_sub(a.min(b)) as u32
    }

    #[inline(always)]
    fn abs(self) -> Self {
        self.abs()
    }

    #[inline(always)]
    fn times(self, by: Self, plus: Self) -> Self {
        self.mul_add(by, plus)
    }
}

impl Real for f64 {
    type Bits = u64;

    #[inline(always)]
    fn bits(self) -> u64 {
        self.to_bits()
    }

    fn significand(bits: u64) -> u64 {
        bits & ((1 << 52) - 1)
    }

    #[inline(always)]
    fn distance(self, other: Self, line: &Line) -> u64 {
        if self == other || !(self.is_finite() && other.is_finite()) {
            0
        } else {
            line.float.place(self).abs_diff(line.float.place(other))
        }
    }

    #[inline(always)]
    fn abs(self) -> Self {
        self.abs()
    }

    #[inline(always)]
    fn times(self, by: Self, plus: Self) -> Self {
        self.mul_add(by, plus)
    }
}

/// The number line of a format, as [`Float::place`] has it, made ready for f32.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    float: Float,
    /// Bits of an f32 below those of the format.
    shift: u32,
    /// Half of what `shift` drops, less one.
    half: u32,
    /// 1 where `shift` drops anything.
    odd: u32,
    /// Numbers of the format's own place below those of f32.
    offset: i32,
    /// Its smallest normal number, where that is one of f32 as well, and how many numbers lie below 1 at its density.
    subnormal: Option<(f32, f32)>,
}

impl Line {
    pub(crate) fn of(float: Float) -> Self {
        let fraction = float.precision.min(24) - 1;
        let shift = 23 - fraction;
        let above = i64::from(float.min_exponent).max(-127) + 126;
        let power = |n: i64| f64::from(n as i32).exp2() as f32;
        Self {
            float,
            shift,
            half: (1u32 << shift) / 2 - u32::from(shift > 0),
            odd: u32::from(shift > 0),
            offset: (above << fraction) as i32,
            subnormal: (above > 0).then(|| {
                let lowest = i64::from(float.min_exponent);
                (power(lowest), power(i64::from(fraction) - lowest))
            }),
        }
    }

    #[inline(always)]
    fn place(&self, x: f32) -> i32 {
        const TWO_23: f32 = 8_388_608.0;
        let magnitude = x.to_bits() & 0x7fff_ffff;
        let rounded = magnitude + self.half + (magnitude >> self.shift & self.odd);
        let mut place = (rounded >> self.shift) as i32 - self.offset;
        if let Some((normal, density)) = self.subnormal {
            // Added to 2^23 a number is rounded to an integer, which is in the low bits.
            let below = (x.abs() * density + TWO_23).to_bits().wrapping_sub(TWO_23.to_bits()) as i32;
            place = if x.abs() < normal { below } else { place };
        }
        if x < 0.0 { -place } else { place }
    }
}

/// The sum of all lanes. Not inlined: seen together with the loop that fills them, lanes are not kept in one vector.
#[inline(never)]
pub(crate) fn total<T: Real>(lanes: &[T; LANES]) -> f64 {
    let mut sums = *lanes;
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            sums[i] = sums[i] + sums[i + half];
        }
        half /= 2;
    }
    sums[0].wide()
}

/// The largest of all lanes.
#[inline(never)]
pub(crate) fn largest<T: Real>(lanes: &[T; LANES]) -> T {
    lanes.iter().copied().fold(T::default(), T::larger)
}

/// Takes each place of two slices into sums or maxima in lanes. A loop for each sum, as several in one are not kept in
/// vectors.
#[inline(always)]
pub(crate) fn fold<T: Real>(lanes: &mut [T; LANES], a: &[T], b: &[T], of: impl Fn(T, T, T) -> T) {
    let mut own = *lanes;
    let (a, b) = (a.as_chunks::<LANES>().0, b.as_chunks::<LANES>().0);
    for at in 0..a.len().min(b.len()) {
        for i in 0..LANES {
            own[i] = of(own[i], a[at][i], b[at][i]);
        }
    }
    *lanes = own;
}

/// Adds products.
#[inline(always)]
pub(crate) fn add_products<T: Real>(sums: &mut [T; LANES], a: &[T], b: &[T]) {
    fold(sums, a, b, |sum, a, b| a.times(b, sum));
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture_core::Dtype;

    /// Against the place that is computed in f64.
    #[test]
    fn distances_in_f32_are_those_of_the_format() {
        let dtypes = [Dtype::BF16, Dtype::F16, Dtype::F32, Dtype::F8_E4M3, Dtype::F8_E5M2, Dtype::F4];
        for dtype in dtypes {
            let float = Float::of(dtype).unwrap();
            let line = Line::of(float);
            let mut bits = 1u32;
            for _ in 0..10_000 {
                bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let (x, y) = (f32::from_bits(bits), f32::from_bits(bits.rotate_left(9)));
                let coarse = |x: f32| f32::from_bits(x.to_bits() & (u32::MAX << line.shift)) % 400.0;
                for (x, y) in [(x, y), (coarse(x), coarse(y)), (coarse(x), -coarse(x)), (0.0, -0.0)] {
                    if x.is_finite() && y.is_finite() {
                        let expected = float.place(x.into()).abs_diff(float.place(y.into()));
                        assert_eq!(u64::from(x.distance(y, &line)), expected, "{dtype:?} {x:e} {y:e}");
                    }
                }
            }
        }
    }
}
