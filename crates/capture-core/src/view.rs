//! A tensor as the model hands it over: borrowed, described, not yet copied.
#![expect(unsafe_code, reason = "only the caller knows what memory a tensor has")]

use crate::device::Device;
use safetensors::Dtype;

/// How one item in memory becomes elements of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// One item is one element of a dtype that safetensors names, of whole bytes.
    Plain(Dtype),
    /// torch's `float4_e2m1fn_x2`: one byte is two `F4` elements along the last dimension, the first in the low half.
    F4Pairs,
    /// ml_dtypes' sub-byte floats: one byte in memory is one `F4` or `F6_*` element, in its low bits.
    OnePerByte(Dtype),
    /// complex128, recorded as `F64` with a trailing dimension of 2.
    Complex128,
}

impl Element {
    /// Bytes of one item in memory.
    #[must_use]
    pub fn item_bytes(self) -> usize {
        match self {
            Self::Plain(dtype) => dtype.bitsize() / 8,
            Self::F4Pairs | Self::OnePerByte(_) => 1,
            Self::Complex128 => 16,
        }
    }

    /// The dtype the record declares.
    #[must_use]
    pub fn recorded_dtype(self) -> Dtype {
        match self {
            Self::Plain(dtype) | Self::OnePerByte(dtype) => dtype,
            Self::F4Pairs => Dtype::F4,
            Self::Complex128 => Dtype::F64,
        }
    }

    /// The shape the record declares for a tensor of `shape` items.
    #[must_use]
    pub fn recorded_shape(self, shape: &[u64]) -> Vec<u64> {
        let mut recorded = shape.to_vec();
        match self {
            Self::Plain(_) | Self::OnePerByte(_) => {}
            Self::F4Pairs => {
                if let Some(last) = recorded.last_mut() {
                    *last = last.saturating_mul(2);
                } else {
                    recorded.push(2);
                }
            }
            Self::Complex128 => recorded.push(2),
        }
        recorded
    }

    /// As many leading rows of a tensor of `shape` items, in the record's rows; `None` where a scalar has none.
    #[must_use]
    pub fn recorded_rows(self, shape: &[u64], rows: u64) -> Option<u64> {
        match (self, shape.len()) {
            (_, 0) => None,
            (Self::F4Pairs, 1) => Some(rows.saturating_mul(2)),
            _ => Some(rows),
        }
    }

    /// The record's `encoding` key.
    #[must_use]
    pub fn encoding(self) -> Option<&'static str> {
        matches!(self, Self::Complex128).then_some("complex128")
    }
}

/// A borrowed tensor.
#[derive(Debug, Clone, Copy)]
pub struct TensorView<'a> {
    data: *const u8,
    element: Element,
    shape: &'a [u64],
    strides: &'a [i64],
    device: &'a str,
    on: Option<&'a dyn Device>,
}

/// Why something cannot be captured. The words go to the log and into the manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ViewError {
    /// The strides do not belong to the shape.
    #[error("expected {ndim} strides, one per dimension, found {found}")]
    Strides {
        /// Dimensions of the shape.
        ndim: usize,
        /// Strides given.
        found: usize,
    },
    /// More dimensions than anything supports.
    #[error("expected at most {max} dimensions, found {0}", max = TensorView::MAX_DIMS)]
    Dims(usize),
    /// The shape is beyond any memory.
    #[error("shape {0:?} does not fit in memory")]
    TooLarge(Vec<u64>),
    /// A null pointer with elements behind it: a FakeTensor, or freed storage.
    #[error("it has {0} elements but no memory (a FakeTensor, or freed storage)")]
    Null(u64),
    /// Bits that do not fill whole bytes.
    #[error("its {numel} elements of {bits} bits do not fill whole bytes")]
    Bits {
        /// Elements.
        numel: u64,
        /// Bits of one.
        bits: usize,
    },
    /// A dtype of less than a byte given as if its items stood in bytes of their own.
    #[error("dtype {0} has no whole-byte items")]
    SubByte(Dtype),
}

impl<'a> TensorView<'a> {
    /// The most dimensions a tensor may have, NumPy's limit.
    pub const MAX_DIMS: usize = 64;

    /// A tensor of `shape` items at `data`, item `[i, j, …]` standing `i·strides[0] + j·strides[1] + …` items behind it.
    /// Strides may be 0 or negative, the address need not be aligned.
    ///
    /// # Errors
    /// Where shape, strides, address and dtype do not describe memory that can be copied.
    ///
    /// # Safety
    /// Every item that shape and strides reach is readable until the view is dropped. Another thread that writes there
    /// meanwhile tears the bytes of the record; one that frees it makes the copy undefined.
    pub unsafe fn new(
        data: *const u8,
        element: Element,
        shape: &'a [u64],
        strides: &'a [i64],
        device: &'a str,
    ) -> Result<Self, ViewError> {
        if shape.len() != strides.len() {
            return Err(ViewError::Strides { ndim: shape.len(), found: strides.len() });
        }
        if shape.len() > Self::MAX_DIMS {
            return Err(ViewError::Dims(shape.len()));
        }
        if let Element::Plain(dtype) = element
            && !dtype.bitsize().is_multiple_of(8)
        {
            return Err(ViewError::SubByte(dtype));
        }
        // A dimension of 0 makes the tensor empty, however large the others are.
        let numel = if shape.contains(&0) {
            0
        } else {
            shape
                .iter()
                .try_fold(1u64, |n, d| n.checked_mul(*d))
                .filter(|n| n.checked_mul(16).is_some_and(|b| b <= isize::MAX as u64))
                .ok_or_else(|| ViewError::TooLarge(shape.to_vec()))?
        };
        if data.is_null() && numel > 0 {
            return Err(ViewError::Null(numel));
        }
        let view = Self { data, element, shape, strides, device, on: None };
        if let Element::OnePerByte(dtype) = element
            && !(numel as usize * dtype.bitsize()).is_multiple_of(8)
        {
            return Err(ViewError::Bits { numel, bits: dtype.bitsize() });
        }
        Ok(view)
    }

    /// The same tensor in a device's memory. Only the device looks at it, in the order of its stream: every item has to be
    /// readable there when what the stream was given before is done.
    #[must_use]
    pub fn on(self, device: &'a dyn Device) -> Self {
        Self { on: Some(device), ..self }
    }

    /// The device whose memory it lies in; `None` for the processor's.
    #[must_use]
    pub fn memory(&self) -> Option<&'a dyn Device> {
        self.on
    }

    /// The same tensor cut to `shape`, which has as many dimensions, none of them larger.
    ///
    /// # Panics
    /// Where it has not: what lies beyond this tensor's shape is nobody's promise.
    #[must_use]
    pub fn head(self, shape: &'a [u64]) -> Self {
        let is_within = shape.len() == self.shape.len() && shape.iter().zip(self.shape).all(|(a, b)| a <= b);
        assert!(is_within, "expected a shape within {:?}, found {shape:?}", self.shape);
        Self { shape, ..self }
    }

    /// Address of item `[0, 0, …]`.
    #[must_use]
    pub fn data(&self) -> *const u8 {
        self.data
    }

    /// What an item is.
    #[must_use]
    pub fn element(&self) -> Element {
        self.element
    }

    /// Items per dimension, in memory.
    #[must_use]
    pub fn shape(&self) -> &'a [u64] {
        self.shape
    }

    /// Items from one index to the next, per dimension.
    #[must_use]
    pub fn strides(&self) -> &'a [i64] {
        self.strides
    }

    /// `cpu`, `cuda:0`, …
    #[must_use]
    pub fn device(&self) -> &'a str {
        self.device
    }

    /// Number of items in memory.
    #[must_use]
    pub fn numel(&self) -> u64 {
        if self.shape.contains(&0) { 0 } else { self.shape.iter().product() }
    }

    /// Bytes of the record: the logical tensor, never the whole storage.
    #[must_use]
    pub fn n_bytes(&self) -> u64 {
        match self.element {
            Element::OnePerByte(dtype) => self.numel() * dtype.bitsize() as u64 / 8,
            element => self.numel() * element.item_bytes() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_error(element: Element, shape: &[u64], strides: &[i64], expected: &ViewError) {
        // SAFETY: a view that is refused is never read.
        let found = unsafe { TensorView::new(std::ptr::null(), element, shape, strides, "cpu") };
        assert_eq!(&found.unwrap_err(), expected);
    }

    #[test]
    fn what_cannot_be_copied_is_refused() {
        let f32s = Element::Plain(Dtype::F32);
        check_error(f32s, &[2, 3], &[3], &ViewError::Strides { ndim: 2, found: 1 });
        check_error(f32s, &[2, 3], &[3, 1], &ViewError::Null(6));
        check_error(f32s, &[1 << 40, 1 << 40], &[1, 1], &ViewError::TooLarge(vec![1 << 40, 1 << 40]));
        check_error(Element::Plain(Dtype::F4), &[2], &[1], &ViewError::SubByte(Dtype::F4));
        check_error(f32s, &[1; 65], &[1; 65], &ViewError::Dims(65));
    }

    #[test]
    fn sub_byte_items_must_fill_bytes() {
        let bytes = [0u8; 4];
        // SAFETY: three and four bytes of a four-byte array.
        let view = |n: &'static [u64]| unsafe {
            TensorView::new(bytes.as_ptr(), Element::OnePerByte(Dtype::F4), n, &[1], "cpu")
        };
        assert_eq!(view(&[3]).unwrap_err(), ViewError::Bits { numel: 3, bits: 4 });
        assert_eq!(view(&[4]).unwrap().n_bytes(), 2);
    }

    #[test]
    fn an_empty_tensor_has_no_bytes_whatever_else_its_shape_says() {
        let strides = [1, 1, 1];
        // SAFETY: there is nothing to read.
        let view = unsafe {
            TensorView::new(std::ptr::null(), Element::Plain(Dtype::F64), &[0, u64::MAX, 7], &strides, "cpu")
        };
        assert_eq!(view.unwrap().n_bytes(), 0);
    }

    /// Safe code must not reach memory that the view's maker did not vouch for.
    #[test]
    #[should_panic(expected = "expected a shape within [2, 2], found [3, 2]")]
    fn a_head_cannot_be_larger_than_its_tensor() {
        let items = [0u8; 4];
        // SAFETY: two by two bytes of a four-byte array.
        let view = unsafe {
            TensorView::new(items.as_ptr(), Element::Plain(Dtype::U8), &[2, 2], &[2, 1], "cpu").unwrap()
        };
        let _ = view.head(&[3, 2]);
    }

    #[test]
    fn pairs_and_complex_numbers_record_their_logical_shape() {
        assert_eq!(Element::F4Pairs.recorded_shape(&[2, 4]), [2, 8]);
        assert_eq!(Element::Complex128.recorded_shape(&[3]), [3, 2]);
        assert_eq!(Element::F4Pairs.recorded_rows(&[4], 3), Some(6), "along with the only dimension");
        assert_eq!(Element::F4Pairs.recorded_rows(&[4, 2], 3), Some(3));
        assert_eq!(Element::Complex128.recorded_rows(&[], 3), None, "the trailing 2 is no row");
    }
}
