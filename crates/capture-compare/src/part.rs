//! What one rank recorded, as numbers: the leaf of every logical tensor.

use crate::{decode::decode_into, float::Float};
use capture_core::Dtype;
use std::borrow::Cow;

/// One record's numbers. A complex tensor is one of real numbers with a last dimension of 2 more. The packed dtypes
/// (`F4`, `F6_*`) are widened to `F32`, which holds them exactly, so that every element has an address.
#[derive(Debug, Clone)]
pub struct Part<'a> {
    /// Global rank it comes from.
    pub rank: Option<u32>,
    /// Dtype as recorded.
    pub dtype: Dtype,
    /// Whether the last dimension of `shape` is real and imaginary part.
    pub complex: bool,
    /// Shape in numbers.
    pub shape: Vec<u64>,
    /// Dtype of `bytes`.
    stored: Dtype,
    bytes: Cow<'a, [u8]>,
}

/// A record whose bytes do not fit its shape, or an encoding this version does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PartError {
    /// Bytes and shape disagree.
    #[error("a tensor of {dtype:?} {shape:?} needs {} bytes, found {found}", expected.map_or("countless".to_owned(), |n| n.to_string()))]
    Length {
        /// Dtype.
        dtype: Dtype,
        /// Shape.
        shape: Vec<u64>,
        /// Bytes needed; `None` where they are more than can be counted.
        expected: Option<u64>,
        /// Bytes there.
        found: usize,
    },
    /// An unknown encoding.
    #[error("expected no encoding or \"complex128\" with a last dimension of 2, found {0:?}")]
    Encoding(String),
}

impl<'a> Part<'a> {
    /// The numbers of a record of that dtype, shape and encoding.
    pub fn new(
        rank: Option<u32>,
        dtype: Dtype,
        shape: &[u64],
        encoding: Option<&str>,
        bytes: Cow<'a, [u8]>,
    ) -> Result<Self, PartError> {
        let numel = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
        let expected = numel.and_then(|n| n.checked_mul(dtype.bitsize() as u64)).map(|bits| bits.div_ceil(8));
        if expected != Some(bytes.len() as u64) {
            return Err(PartError::Length { dtype, shape: shape.to_vec(), expected, found: bytes.len() });
        }
        let mut part = Self { rank, dtype, complex: false, shape: shape.to_vec(), stored: dtype, bytes };
        match encoding {
            None => {}
            Some("complex128") if dtype == Dtype::F64 && shape.last() == Some(&2) => part.complex = true,
            Some(other) => return Err(PartError::Encoding(other.to_owned())),
        }
        if dtype == Dtype::C64 {
            (part.complex, part.stored) = (true, Dtype::F32);
            part.shape.push(2);
        }
        if !dtype.bitsize().is_multiple_of(8) {
            let mut numbers = vec![0.0; numel.map_or(0, |n| n as usize)];
            decode_into(dtype, &part.bytes, &mut numbers);
            part.bytes = numbers.iter().flat_map(|x| (*x as f32).to_le_bytes()).collect::<Vec<u8>>().into();
            part.stored = Dtype::F32;
        }
        Ok(part)
    }

    /// The floating-point format of the numbers as recorded; `None` for integers and booleans.
    #[must_use]
    pub fn float(&self) -> Option<Float> {
        Float::of(self.dtype)
    }

    /// How many numbers there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        (self.bytes.len() / self.item()) as u64
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes of one number.
    #[must_use]
    pub fn item(&self) -> usize {
        self.stored.bitsize() / 8
    }

    /// The bytes of the numbers `from..to`, in C order.
    #[must_use]
    pub fn bytes(&self, from: u64, to: u64) -> &[u8] {
        &self.bytes[from as usize * self.item()..to as usize * self.item()]
    }

    /// The dtype and bytes of the numbers `from..to`, where they are stored one by one.
    pub(crate) fn stored(&self, from: u64, to: u64) -> Option<(Dtype, &[u8])> {
        Some((self.stored, self.bytes(from, to)))
    }

    /// How many of the numbers `from..to` are NaN.
    #[must_use]
    pub fn count_nan(&self, from: u64, to: u64) -> u64 {
        let bytes = self.bytes(from, to);
        // The formats of most captures by their bits, as this runs over every identical tensor.
        let halves = |infinity: u16| {
            let halves = bytes.as_chunks().0.iter();
            halves.filter(|b| u16::from_le_bytes(**b) & 0x7fff > infinity).count() as u64
        };
        match self.stored {
            Dtype::BF16 => halves(0x7f80),
            Dtype::F16 => halves(0x7c00),
            Dtype::F32 => {
                let words = bytes.as_chunks().0.iter();
                words.filter(|b| u32::from_le_bytes(**b) & 0x7fff_ffff > 0x7f80_0000).count() as u64
            }
            _ => {
                let mut numbers = vec![0.0; (to - from) as usize];
                self.read(from, &mut numbers);
                numbers.iter().filter(|x| x.is_nan()).count() as u64
            }
        }
    }

    /// The numbers from `from` on, as many as `out` holds.
    pub fn read(&self, from: u64, out: &mut [f64]) {
        decode_into(self.stored, self.bytes(from, from + out.len() as u64), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(
        dtype: Dtype,
        shape: &[u64],
        encoding: Option<&str>,
        bytes: &[u8],
    ) -> Result<Part<'static>, PartError> {
        Part::new(Some(0), dtype, shape, encoding, bytes.to_vec().into())
    }

    #[test]
    fn complex_numbers_are_two_numbers() {
        let bytes: Vec<u8> = [1.0f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let part = part(Dtype::C64, &[1], None, &bytes).unwrap();
        let mut out = [0.0; 2];
        part.read(0, &mut out);
        assert_eq!((out, part.shape.as_slice(), part.complex), ([1.0, -2.0], [1, 2].as_slice(), true));
    }

    #[test]
    fn packed_numbers_have_an_address_each() {
        // Two elements share a byte, the first in the low half: 0x2 is 1.0, 0x9 is -0.5.
        let part = part(Dtype::F4, &[2], None, &[0x92]).unwrap();
        let mut out = [0.0; 1];
        part.read(1, &mut out);
        assert_eq!((out, part.item()), ([-0.5], 4));
        assert_eq!(part.float().unwrap().precision, 2);
    }

    #[test]
    fn bytes_must_fit_the_shape() {
        let error = part(Dtype::BF16, &[5, 128], None, &[0; 640]).unwrap_err();
        assert_eq!(error.to_string(), "a tensor of BF16 [5, 128] needs 1280 bytes, found 640");
        assert!(matches!(
            part(Dtype::U8, &[u64::MAX, 2], None, &[]).unwrap_err(),
            PartError::Length { expected: None, .. }
        ));
        assert_eq!(
            part(Dtype::F32, &[1], Some("odd"), &[0; 4]).unwrap_err(),
            PartError::Encoding("odd".into())
        );
    }
}
