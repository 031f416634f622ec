//! What one rank recorded, as numbers: the leaf of every logical tensor.

mod packed;
mod scaled;
mod view;

pub(crate) use self::{
    packed::{Along, Nibbles, Packed},
    scaled::{Blocks, Global, Scaled, Zero},
    view::Strided,
};

use self::view::View;
use crate::{
    data::Data,
    decode::{decode_into, integer},
    float::Float,
};
use capture_core::{Dtype, notation::LARGEST};
use rayon::prelude::*;
use std::{borrow::Cow, sync::Arc};

/// Bytes that are worth a task of their own.
const SHARED: usize = 1 << 22;

/// One record's numbers. A complex tensor is one of real numbers with a last dimension of 2 more.
#[derive(Debug, Clone)]
pub struct Part<'a> {
    /// Global rank it comes from.
    pub rank: Option<u32>,
    /// Dtype as recorded; `F32` of what was dequantised.
    pub dtype: Dtype,
    /// Whether the last dimension of `shape` is real and imaginary part.
    pub complex: bool,
    /// Shape in numbers.
    pub shape: Vec<u64>,
    numbers: Numbers<'a>,
}

/// Where the numbers are. Whatever is not stored number by number is decoded where it is read, so that a packed or
/// quantised tensor takes no more memory than its record.
#[derive(Debug, Clone, PartialEq)]
enum Numbers<'a> {
    /// Of whole bytes, one after the other in C order.
    Stored { dtype: Dtype, data: Data<'a> },
    /// Several in a byte or word.
    Packed(Packed<'a>),
    /// Codes with scales.
    Scaled(Arc<Scaled<'a>>),
    /// Those of a part that is not stored number by number, in another order.
    View(Arc<View<'a>>),
}

/// Whether both hold the same numbers, bit by bit and made alike, on whatever ranks.
impl PartialEq for Part<'_> {
    fn eq(&self, other: &Self) -> bool {
        let is = |part: &Self| (part.dtype, part.complex);
        let alike = is(self) == is(other) && self.shape == other.shape;
        alike && (self.shares(other) || self.numbers == other.numbers)
    }
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
        found: u64,
    },
    /// A dim that no tensor has. One beside a dim of 0 needs no bytes, and could overflow every sum over ranks.
    #[error("expected dims of at most 17592186044416, found {0:?}")]
    Dims(Vec<u64>),
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
        Self::of(rank, dtype, shape, encoding, bytes.into())
    }

    /// The same of bytes that may lie in a file.
    pub(crate) fn of(
        rank: Option<u32>,
        dtype: Dtype,
        shape: &[u64],
        encoding: Option<&str>,
        data: Data<'a>,
    ) -> Result<Self, PartError> {
        let numel = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d));
        let expected = numel.and_then(|n| n.checked_mul(dtype.bitsize() as u64)).map(|bits| bits.div_ceil(8));
        if expected != Some(data.len()) {
            return Err(PartError::Length { dtype, shape: shape.to_vec(), expected, found: data.len() });
        }
        if shape.iter().any(|d| *d > LARGEST) {
            return Err(PartError::Dims(shape.to_vec()));
        }
        let (mut complex, mut stored, mut shape) = (false, dtype, shape.to_vec());
        match encoding {
            None => {}
            Some("complex128") if dtype == Dtype::F64 && shape.last() == Some(&2) => complex = true,
            Some(other) => return Err(PartError::Encoding(other.to_owned())),
        }
        if dtype == Dtype::C64 {
            (complex, stored) = (true, Dtype::F32);
            shape.push(2);
        }
        let numbers = match dtype.bitsize().is_multiple_of(8) {
            true => Numbers::Stored { dtype: stored, data },
            false => Numbers::Packed(Packed::Floats { dtype, data }),
        };
        Ok(Self { rank, dtype, complex, shape, numbers })
    }

    /// 4-bit integers of that shape.
    pub(crate) fn nibbles(rank: Option<u32>, shape: Vec<u64>, nibbles: Nibbles<'a>) -> Self {
        let numbers = Numbers::Packed(Packed::Nibbles(nibbles));
        Self { rank, dtype: Dtype::U8, complex: false, shape, numbers }
    }

    /// Dequantised numbers, of the shape of their codes.
    pub(crate) fn scaled(scaled: Scaled<'a>) -> Self {
        let (rank, shape) = (scaled.codes.rank, scaled.codes.shape.clone());
        Self { rank, dtype: Dtype::F32, complex: false, shape, numbers: Numbers::Scaled(Arc::new(scaled)) }
    }

    /// The numbers at those places, which exist, in C order of that shape. Stored ones are copied, as only then their
    /// bytes can be compared; others are read through the view.
    pub(crate) fn rearranged(self, at: Strided, shape: Vec<u64>) -> Self {
        let Numbers::Stored { dtype, data } = self.numbers else {
            return Self { shape, ..self.viewed(at) };
        };
        let item = dtype.bitsize() / 8;
        let bytes = item as u64;
        let stretch = at.stretch().and_then(|(from, to)| data.stretch(from * bytes, to * bytes));
        let data = stretch.unwrap_or_else(|| at.copy(&data.all(), item).into());
        Self { shape, numbers: Numbers::Stored { dtype, data }, ..self }
    }

    /// The same numbers in C order under a shape that holds as many.
    pub(crate) fn reshaped(self, shape: Vec<u64>) -> Self {
        Self { shape, ..self }
    }

    fn viewed(self, at: Strided) -> Self {
        let (rank, dtype, complex, shape) = (self.rank, self.dtype, self.complex, self.shape.clone());
        Self { rank, dtype, complex, shape, numbers: Numbers::View(Arc::new(View { of: self, at })) }
    }

    /// The bytes of the record taken for numbers of another dtype and shape that fills them; `None` where it is not
    /// stored number by number.
    pub(crate) fn reinterpreted(self, dtype: Dtype, shape: &[u64]) -> Option<Self> {
        match self.numbers {
            Numbers::Stored { data, .. } | Numbers::Packed(Packed::Floats { data, .. }) => {
                Self::of(self.rank, dtype, shape, None, data).ok()
            }
            _ => None,
        }
    }

    /// The record's bytes, where it is as it was recorded or rearranged.
    pub(crate) fn into_data(self) -> Option<Data<'a>> {
        match self.numbers {
            Numbers::Stored { data, .. } => Some(data),
            _ => None,
        }
    }

    /// The codes of quantised numbers, without their scales; the part itself where there are none.
    #[must_use]
    pub fn codes(&self) -> Self {
        match &self.numbers {
            Numbers::Scaled(scaled) => scaled.codes.clone(),
            Numbers::View(view) if view.of.is_quantised() => {
                Self { shape: self.shape.clone(), ..view.of.codes().viewed(view.at.clone()) }
            }
            _ => self.clone(),
        }
    }

    /// Whether they are codes with scales.
    #[must_use]
    pub fn is_quantised(&self) -> bool {
        match &self.numbers {
            Numbers::Scaled(_) => true,
            Numbers::View(view) => view.of.is_quantised(),
            Numbers::Stored { .. } | Numbers::Packed(_) => false,
        }
    }

    /// The format of the scales of quantised numbers.
    #[must_use]
    pub fn scale_float(&self) -> Option<Float> {
        match &self.numbers {
            Numbers::Scaled(scaled) => scaled.scale.float(),
            Numbers::View(view) => view.of.scale_float(),
            Numbers::Stored { .. } | Numbers::Packed(_) => None,
        }
    }

    /// Whether the numbers are stored one by one, so that they have [`bytes`](Self::bytes).
    #[must_use]
    pub fn is_stored(&self) -> bool {
        matches!(self.numbers, Numbers::Stored { .. })
    }

    /// The floating-point format whose roundoff the numbers have: as recorded, or that of quantised codes. `None` for
    /// integers and booleans.
    #[must_use]
    pub fn float(&self) -> Option<Float> {
        match &self.numbers {
            Numbers::Scaled(scaled) => Some(scaled.float()),
            Numbers::View(view) => view.of.float(),
            Numbers::Stored { .. } | Numbers::Packed(Packed::Floats { .. }) => Float::of(self.dtype),
            Numbers::Packed(Packed::Nibbles(_)) => None,
        }
    }

    /// Whether its numbers are in memory or mapped, and not read where they are looked at.
    pub(crate) fn is_held(&self) -> bool {
        match &self.numbers {
            Numbers::Stored { data, .. } => data.is_held(),
            _ => true,
        }
    }

    /// Whether both read the same bytes of memory.
    fn shares(&self, other: &Self) -> bool {
        match (&self.numbers, &other.numbers) {
            (
                Numbers::Stored { dtype, data: Data::Held(bytes) },
                Numbers::Stored { dtype: other, data: Data::Held(others) },
            ) => dtype == other && std::ptr::eq::<[u8]>(&**bytes, &**others),
            _ => false,
        }
    }

    /// Reads from now on the mapped bytes of another part, where its own are the same: what looks again whether they are
    /// need not read them.
    pub(crate) fn share(&mut self, other: &Self) {
        if let (
            Numbers::Stored { data: Data::Held(Cow::Borrowed(own)), .. },
            Numbers::Stored { data: Data::Held(Cow::Borrowed(bytes)), .. },
        ) = (&mut self.numbers, &other.numbers)
            && own.len() == bytes.len()
            && own.par_chunks(SHARED).zip(bytes.par_chunks(SHARED)).all(|(own, bytes)| own == bytes)
        {
            *own = *bytes;
        }
    }

    /// How many numbers there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        product(&self.shape)
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of one number that is [stored](Self::is_stored).
    #[must_use]
    pub fn item(&self) -> usize {
        match &self.numbers {
            Numbers::Stored { dtype, .. } => dtype.bitsize() / 8,
            _ => 1,
        }
    }

    /// The bytes of the numbers `from..to`, in C order; none where they are not [stored](Self::is_stored).
    #[must_use]
    pub fn bytes(&self, from: u64, to: u64) -> Cow<'_, [u8]> {
        let item = self.item() as u64;
        match &self.numbers {
            Numbers::Stored { data, .. } => data.get(from * item, to * item),
            _ => Cow::Borrowed(&[]),
        }
    }

    /// The dtype and bytes of the numbers `from..to`, where they are stored one by one.
    pub(crate) fn stored(&self, from: u64, to: u64) -> Option<(Dtype, Cow<'_, [u8]>)> {
        match &self.numbers {
            Numbers::Stored { dtype, .. } => Some((*dtype, self.bytes(from, to))),
            _ => None,
        }
    }

    /// The numbers from `from` on, as many as `out` holds.
    pub fn read(&self, from: u64, out: &mut [f64]) {
        match &self.numbers {
            Numbers::Stored { dtype, .. } => {
                decode_into(*dtype, &self.bytes(from, from + out.len() as u64), out);
            }
            Numbers::Packed(packed) => packed.read(from, out),
            Numbers::Scaled(scaled) => scaled.read(from, out),
            Numbers::View(view) => view.read(from, out),
        }
    }

    /// Whether the numbers are integers or booleans that are stored one by one.
    pub(crate) fn has_integers(&self) -> bool {
        self.is_stored() && self.float().is_none()
    }

    /// Adds to `out` the integers from `from` on, as many as it holds, without rounding.
    pub(crate) fn add_integers(&self, from: u64, out: &mut [i128]) {
        let bytes = self.bytes(from, from + out.len() as u64);
        out.iter_mut()
            .zip(bytes.chunks_exact(self.item()))
            .for_each(|(sum, b)| *sum += integer(self.dtype, b));
    }

    /// For each number the smallest step of its quantisation, in its own roundings; zero where it is not quantised.
    pub fn read_terms(&self, from: u64, out: &mut [f64]) {
        match &self.numbers {
            Numbers::Scaled(scaled) => scaled.read_terms(from, out),
            Numbers::View(view) => view.read_terms(from, out),
            Numbers::Stored { .. } | Numbers::Packed(_) => out.fill(0.0),
        }
    }
}

/// How many numbers these dims make. Those of a tensor with numbers, which are all stored, fit; those beside a dim of 0
/// may be anything, and nothing is read by their product.
pub(crate) fn product(dims: &[u64]) -> u64 {
    if dims.contains(&0) { 0 } else { dims.iter().fold(1, |n, d| n.saturating_mul(*d)) }
}

#[cfg(test)]
mod tests;
