//! A record together with where its bytes lie in a segment.

use crate::record::Record;
use safetensors::Dtype;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// The `encoding` of complex128, stored as `F64` with a trailing dimension of 2.
pub const COMPLEX128: &str = "complex128";

/// A record, its dtype and shape, and where its bytes lie: what a journal line says of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stored {
    /// What is known of the record.
    #[serde(flatten)]
    pub record: Record,
    /// How the elements are stored.
    pub dtype: Dtype,
    /// Stored shape.
    pub shape: Vec<u64>,
    /// First byte, counted from the beginning of the segment's data.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// What a stored record says that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoredError {
    /// The element count does not fit 64 bits, or the elements do not fill whole bytes.
    #[error("{dtype} {shape:?} is no whole number of bytes that fits 64 bits")]
    Bits {
        /// Dtype.
        dtype: Dtype,
        /// Shape.
        shape: Vec<u64>,
    },
    /// Shape and bytes disagree.
    #[error("{dtype} {shape:?} needs {needed} bytes, found {found}")]
    Length {
        /// Dtype.
        dtype: Dtype,
        /// Shape.
        shape: Vec<u64>,
        /// Bytes that dtype and shape need.
        needed: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// The bytes end past the 64-bit range.
    #[error("offset {offset} and length {length} overflow")]
    Overflow {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// More valid rows than rows, or fewer full rows than kept ones.
    #[error("{key} is {rows}, which a tensor of shape {shape:?} cannot have")]
    Rows {
        /// `rows` or `full_rows`.
        key: &'static str,
        /// Its value.
        rows: u64,
        /// Shape.
        shape: Vec<u64>,
    },
    /// complex128 is not stored as it has to be.
    #[error("complex128 is stored as F64 with a trailing dimension of 2, found {dtype} {shape:?}")]
    Complex {
        /// Dtype.
        dtype: Dtype,
        /// Shape.
        shape: Vec<u64>,
    },
}

/// Bytes of a tensor; `None` where they do not fit 64 bits or are no whole number.
#[must_use]
pub fn byte_length(dtype: Dtype, shape: &[u64]) -> Option<u64> {
    // A zero makes the product 0 wherever it stands, but a product before it may overflow: refused, as safetensors does.
    let numel = shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d))?;
    let bits = numel.checked_mul(u64::try_from(dtype.bitsize()).ok()?)?;
    bits.is_multiple_of(8).then_some(bits / 8)
}

impl Stored {
    /// The bytes, counted from the beginning of the segment's data. Call after [`check`](Self::check).
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.length)
    }

    /// Whether all this can be: a file is hostile until here.
    pub fn check(&self) -> Result<(), StoredError> {
        let (dtype, shape) = (self.dtype, || self.shape.clone());
        let needed =
            byte_length(dtype, &self.shape).ok_or_else(|| StoredError::Bits { dtype, shape: shape() })?;
        if needed != self.length {
            return Err(StoredError::Length { dtype, shape: shape(), needed, found: self.length });
        }
        if self.offset.checked_add(self.length).is_none() {
            return Err(StoredError::Overflow { offset: self.offset, length: self.length });
        }
        let first = self.shape.first();
        if let Some(rows) = self.record.rows
            && first.is_none_or(|n| rows > *n)
        {
            return Err(StoredError::Rows { key: "rows", rows, shape: shape() });
        }
        if let Some(rows) = self.record.full_rows
            && first.is_none_or(|n| rows < *n)
        {
            return Err(StoredError::Rows { key: "full_rows", rows, shape: shape() });
        }
        let complex = self.record.encoding.as_deref() == Some(COMPLEX128);
        if complex && (dtype != Dtype::F64 || self.shape.last() != Some(&2)) {
            return Err(StoredError::Complex { dtype, shape: shape() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_whole_and_do_not_overflow() {
        assert_eq!(byte_length(Dtype::BF16, &[5, 128]), Some(1280));
        assert_eq!(byte_length(Dtype::F32, &[]), Some(4));
        assert_eq!(byte_length(Dtype::F32, &[0, 7]), Some(0));
        assert_eq!(byte_length(Dtype::F4, &[2, 8]), Some(8));
        assert_eq!(byte_length(Dtype::F4, &[3]), None);
        assert_eq!(byte_length(Dtype::F6_E2M3, &[4]), Some(3));
        assert_eq!(byte_length(Dtype::U8, &[1 << 32, 1 << 32]), None);
        assert_eq!(byte_length(Dtype::F64, &[1 << 61]), None);
    }

    fn stored(dtype: Dtype, shape: &[u64], length: u64) -> Stored {
        let record = Record {
            tap: "q".into(),
            step: 0,
            abs_step: 0,
            call: 0,
            seq: 0,
            time_ns: 0,
            placement: None,
            rows: None,
            full_rows: None,
            strides: vec![],
            device: "cpu".into(),
            encoding: None,
            crc32: 0,
        };
        Stored { record, dtype, shape: shape.to_vec(), offset: 0, length }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let shape = vec![2u64, 2];
        let good = stored(Dtype::F32, &shape, 16);
        assert_eq!(good.check(), Ok(()));

        let short = Stored { length: 15, ..good.clone() };
        let (dtype, needed, found) = (Dtype::F32, 16, 15);
        assert_eq!(short.check(), Err(StoredError::Length { dtype, shape: shape.clone(), needed, found }));
        let far = Stored { offset: u64::MAX - 15, ..good.clone() };
        assert_eq!(far.check(), Err(StoredError::Overflow { offset: u64::MAX - 15, length: 16 }));

        let mut padded = good.clone();
        padded.record.rows = Some(3);
        assert_eq!(padded.check(), Err(StoredError::Rows { key: "rows", rows: 3, shape: shape.clone() }));
        padded.record.rows = Some(2);
        assert_eq!(padded.check(), Ok(()));
        padded.record.full_rows = Some(1);
        assert_eq!(
            padded.check(),
            Err(StoredError::Rows { key: "full_rows", rows: 1, shape: shape.clone() })
        );

        let mut complex = good;
        complex.record.encoding = Some(COMPLEX128.into());
        assert_eq!(complex.check(), Err(StoredError::Complex { dtype: Dtype::F32, shape }));
        let mut scalar = stored(Dtype::F32, &[], 4);
        scalar.record.rows = Some(0);
        assert_eq!(scalar.check(), Err(StoredError::Rows { key: "rows", rows: 0, shape: vec![] }));
    }
}
