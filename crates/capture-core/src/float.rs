//! The floating-point formats of the file format: how finely each resolves, and where a value stands on its line.

use safetensors::Dtype;
use serde::{Deserialize, Serialize};

/// A binary floating-point format, by what a comparison needs of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Float {
    /// Bits of the significand, the implied one included.
    pub precision: u32,
    /// Exponent of the smallest normal number.
    pub min_exponent: i32,
}

/// bfloat16.
pub const BF16: Float = Float { precision: 8, min_exponent: -126 };
/// IEEE binary16.
pub const F16: Float = Float { precision: 11, min_exponent: -14 };
/// IEEE binary32.
pub const F32: Float = Float { precision: 24, min_exponent: -126 };
/// IEEE binary64.
pub const F64: Float = Float { precision: 53, min_exponent: -1022 };

impl Float {
    /// The format of a dtype, of the parts where it is complex; `None` for integers and booleans.
    #[must_use]
    pub fn of(dtype: Dtype) -> Option<Self> {
        let (precision, min_exponent) = match dtype {
            Dtype::F64 => return Some(F64),
            Dtype::F32 | Dtype::C64 => return Some(F32),
            Dtype::F16 => return Some(F16),
            Dtype::BF16 => return Some(BF16),
            Dtype::F8_E4M3 => (4, -6),
            Dtype::F8_E4M3FNUZ => (4, -7),
            Dtype::F8_E5M2 => (3, -14),
            Dtype::F8_E5M2FNUZ => (3, -15),
            Dtype::F8_E8M0 => (1, -127),
            Dtype::F6_E2M3 => (4, 0),
            Dtype::F6_E3M2 => (3, -2),
            Dtype::F4 => (2, 0),
            _ => return None,
        };
        Some(Self { precision, min_exponent })
    }

    /// The format that a name of a layouts file means, as in `precision = "bf16"`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::of(match name {
            "fp64" | "f64" | "float64" => Dtype::F64,
            "fp32" | "f32" | "float32" => Dtype::F32,
            "fp16" | "f16" | "float16" => Dtype::F16,
            "bf16" | "bfloat16" => Dtype::BF16,
            "e4m3" | "fp8" | "float8_e4m3fn" => Dtype::F8_E4M3,
            "e5m2" | "float8_e5m2" => Dtype::F8_E5M2,
            _ => return None,
        })
    }

    /// Unit roundoff u: the largest relative error of rounding to nearest.
    #[must_use]
    pub fn roundoff(self) -> f64 {
        power(-i64::from(self.precision))
    }

    /// Half the smallest subnormal, η: the largest absolute error of rounding where numbers run out. It is zero for
    /// binary64, whose own is not representable.
    #[must_use]
    pub fn underflow(self) -> f64 {
        power(i64::from(self.min_exponent) - i64::from(self.precision))
    }

    /// The coarser of two formats: the one with the shorter significand.
    #[must_use]
    pub fn coarser(self, other: Self) -> Self {
        if other.precision < self.precision { other } else { self }
    }

    /// Where `x` stands among the finite numbers of this format, counted from zero outwards; +0 and -0 are the same
    /// place. A value between two numbers is taken to the nearest.
    #[must_use]
    pub fn place(self, x: f64) -> i64 {
        let magnitude = x.abs();
        let steps = if self == F64 {
            magnitude.to_bits() as i64
        } else {
            let fraction = i64::from(self.precision) - 1;
            // A binary64 subnormal is far below the smallest number of every other format and counts as -1023.
            let exponent = (magnitude.to_bits() >> 52) as i64 - 1023;
            let lowest = i64::from(self.min_exponent);
            let above = (exponent - lowest).max(0);
            // Numbers per unit; its exponent lies within ±1023 for every format but binary64.
            let density = f64::from_bits(((fraction - exponent.max(lowest) + 1023) as u64) << 52);
            (above << fraction) + (magnitude * density).round_ties_even() as i64
        };
        if x < 0.0 { -steps } else { steps }
    }
}

/// 2 to the power `n`, zero or infinite where binary64 has no such number.
fn power(n: i64) -> f64 {
    f64::from(n.clamp(-2000, 2000) as i32).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roundoff_and_underflow_are_those_of_the_formats() {
        for (dtype, roundoff, underflow) in [
            (Dtype::BF16, 2f64.powi(-8), 2f64.powi(-134)),
            (Dtype::F16, 2f64.powi(-11), 2f64.powi(-25)),
            (Dtype::F32, 2f64.powi(-24), 2f64.powi(-150)),
            (Dtype::F8_E4M3, 2f64.powi(-4), 2f64.powi(-10)),
            (Dtype::F4, 0.25, 0.25),
            (Dtype::F64, 2f64.powi(-53), 0.0),
        ] {
            let float = Float::of(dtype).unwrap();
            assert_eq!((float.roundoff(), float.underflow()), (roundoff, underflow), "{dtype:?}");
        }
        assert_eq!(Float::of(Dtype::I32), None);
    }

    /// The bit patterns of each format count its numbers: the oracle is the format's own integer line.
    #[test]
    fn places_count_the_numbers_of_the_format() {
        for bits in [0u16, 1, 0x7f, 0x80, 0x3f80, 0x3f81, 0x7f7f] {
            let x = half::bf16::from_bits(bits).to_f64();
            assert_eq!(BF16.place(x), i64::from(bits));
            assert_eq!(BF16.place(-x), -i64::from(bits));
        }
        for bits in [0u16, 1, 0x3ff, 0x400, 0x3c00, 0x7bff] {
            assert_eq!(F16.place(half::f16::from_bits(bits).to_f64()), i64::from(bits));
        }
        for bits in [1u32, 0x7f_ffff, 0x80_0000, 0x3f80_0001, 0x7f7f_ffff] {
            assert_eq!(F32.place(f64::from(f32::from_bits(bits))), i64::from(bits));
        }
        assert_eq!(F64.place(5e-324), 1);
        assert_eq!(F64.place(-1.0), -(1f64.to_bits() as i64));
        // e4m3: 0x01 is 2^-9, 0x08 is 2^-6, 0x7e is 448.
        let e4m3 = Float::of(Dtype::F8_E4M3).unwrap();
        assert_eq!([2f64.powi(-9), 2f64.powi(-6), 448.0].map(|x| e4m3.place(x)), [1, 8, 0x7e]);
    }

    #[test]
    fn zeros_share_a_place_and_the_smallest_two_are_two_apart() {
        assert_eq!(BF16.place(0.0), BF16.place(-0.0));
        let smallest = half::bf16::from_bits(1).to_f64();
        assert_eq!(BF16.place(smallest) - BF16.place(-smallest), 2);
    }

    #[test]
    fn a_value_between_numbers_goes_to_the_nearest() {
        assert_eq!(BF16.place(1.0 + 2f64.powi(-9)), BF16.place(1.0));
        assert_eq!(BF16.place(1.0 + 3.0 * 2f64.powi(-9)), BF16.place(1.0) + 1);
        assert_eq!(BF16.place(2.0 - 2f64.powi(-20)), BF16.place(2.0));
    }
}
