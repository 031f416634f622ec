//! The four dtypes: rounding to them, and their bytes.

use capture_compare::float::Float;
use capture_core::Dtype;
use half::{bf16, f16};

/// A dtype of activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Bf16,
    Fp16,
    Fp32,
    E4m3,
}

impl Format {
    pub(crate) const ALL: [Self; 4] = [Self::Bf16, Self::Fp16, Self::Fp32, Self::E4m3];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp32 => "fp32",
            Self::E4m3 => "e4m3",
        }
    }

    pub(crate) fn dtype(self) -> Dtype {
        match self {
            Self::Bf16 => Dtype::BF16,
            Self::Fp16 => Dtype::F16,
            Self::Fp32 => Dtype::F32,
            Self::E4m3 => Dtype::F8_E4M3,
        }
    }

    pub(crate) fn roundoff(self) -> f64 {
        Float::of(self.dtype()).map_or(0.0, Float::roundoff)
    }

    /// The relative noise of the taps before, from none to much.
    pub(crate) fn settings(self) -> [f32; 4] {
        match self {
            Self::Bf16 => [0.0, 0.003, 0.01, 0.03],
            Self::Fp16 => [0.0, 0.0005, 0.003, 0.01],
            Self::Fp32 => [0.0, 1e-6, 1e-5, 0.01],
            Self::E4m3 => [0.0, 0.01, 0.03, 0.06],
        }
    }

    /// What a kernel puts where an attention or vocabulary mask is: −∞, NaN in e4m3, which has no infinity.
    pub(crate) fn masked(self) -> f32 {
        if self == Self::E4m3 { f32::NAN } else { f32::NEG_INFINITY }
    }

    /// Rounds to the nearest, to the largest finite number where that is nearer than infinity would be. Infinity stays.
    pub(crate) fn round(self, x: f32) -> f32 {
        if !x.is_finite() {
            return x;
        }
        match self {
            Self::Bf16 => bf16::from_f32(x).to_f32(),
            Self::Fp16 => f16::from_f32(x.clamp(-65504.0, 65504.0)).to_f32(),
            Self::Fp32 => x,
            Self::E4m3 => {
                let exponent = ((x.to_bits() >> 23 & 0xff) as i32 - 127).max(-6);
                // Three bits after the leading one: a step is a power of two.
                let step = f32::from_bits(((exponent - 3 + 127) as u32) << 23);
                ((x / step).round_ties_even() * step).clamp(-448.0, 448.0)
            }
        }
    }

    /// The bytes of numbers that are rounded already.
    pub(crate) fn bytes(self, numbers: &[f32]) -> Vec<u8> {
        match self {
            Self::Bf16 => numbers.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
            Self::Fp16 => numbers.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
            Self::Fp32 => numbers.iter().flat_map(|x| x.to_le_bytes()).collect(),
            Self::E4m3 => numbers.iter().map(|x| e4m3_bits(*x)).collect(),
        }
    }
}

/// The bits of a number count the numbers below it; the last of them, 0x7f, is NaN.
fn e4m3_bits(x: f32) -> u8 {
    let place = || Float::of(Dtype::F8_E4M3).map_or(0, |float| float.place(f64::from(x.abs())) as u8);
    let magnitude = if x.is_finite() { place() } else { 0x7f };
    magnitude | u8::from(x.is_sign_negative()) << 7
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values are ml_dtypes.float8_e4m3fn's.
    #[test]
    fn e4m3_rounds_to_nearest_even_and_saturates() {
        for (x, rounded, bits) in [
            (1.0, 1.0, 0x38),
            (-1.07, -1.125, 0xb9),
            (1.0625, 1.0, 0x38),
            (1.1875, 1.25, 0x3a),
            (0.001, 2f32.powi(-9), 0x01),
            (0.0009, 0.0, 0x00),
            (500.0, 448.0, 0x7e),
        ] {
            assert_eq!(Format::E4m3.round(x), rounded, "{x}");
            assert_eq!(Format::E4m3.bytes(&[rounded]), [bits], "{x}");
        }
        assert_eq!(Format::E4m3.bytes(&[f32::NAN]), [0x7f]);
    }
}
