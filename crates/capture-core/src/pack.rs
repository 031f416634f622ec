//! Copies a strided tensor into contiguous, C-ordered bytes, block by block, so that a tensor of any size passes
//! through a ring of limited size.
//!
//! Dimensions are first merged where they are contiguous with each other. What is then left is one of: a plain run of
//! bytes; rows that are runs; a transposition, where another dimension than the last has unit stride (copied in
//! square tiles through a buffer in the cache, see `transpose`); or items scattered one by one.
#![expect(unsafe_code, reason = "reads memory that only the view's maker vouches for")]

use crate::strided::{Dim, Items};
use crate::transpose::transpose;
use crate::view::{Element, TensorView};
use safetensors::Dtype;
use std::mem::MaybeUninit;

/// Copies a tensor's record, its logical, C-ordered bytes, to `to`.
///
/// # Panics
/// Where `to` is not exactly as long as the record, or the tensor is a device's.
pub fn pack(view: &TensorView<'_>, to: &mut [MaybeUninit<u8>]) {
    assert_eq!(to.len() as u64, view.n_bytes(), "the room is the record's");
    assert!(view.memory().is_none(), "only a device reads its memory");
    let source = Source::new(view);
    if !to.is_empty() {
        // SAFETY: the room is ours and exactly as long as the record; the view's maker vouches for its memory.
        unsafe { source.whole().copy_to(to.as_mut_ptr().cast()) };
    }
}

/// A non-empty tensor whose mergeable dimensions are merged and whose dimensions of size 1 are gone.
#[derive(Debug)]
pub(crate) struct Source {
    data: *const u8,
    item_bytes: usize,
    dims: Vec<Dim>,
    /// Holds the packed form of sub-byte elements, which `data` then points to.
    _packed: Option<Vec<u8>>,
}

impl Source {
    pub(crate) fn new(view: &TensorView<'_>) -> Self {
        let item_bytes = view.element().item_bytes();
        let mut dims: Vec<Dim> = Vec::new();
        if view.numel() > 0 {
            for (&size, &stride) in view.shape().iter().zip(view.strides()).filter(|(size, _)| **size > 1) {
                let dim = Dim { size: size as usize, stride: stride as isize * item_bytes as isize };
                match dims.last_mut() {
                    Some(outer) if outer.stride == dim.stride * dim.size as isize => {
                        *outer = Dim { size: outer.size * dim.size, stride: dim.stride };
                    }
                    _ => dims.push(dim),
                }
            }
        } else {
            dims.push(Dim { size: 0, stride: item_bytes as isize });
        }
        let source = Self { data: view.data(), item_bytes, dims, _packed: None };
        match view.element() {
            Element::OnePerByte(dtype) if view.memory().is_none() => source.squeezed(dtype),
            _ => source,
        }
    }

    /// The tensor with its elements' bits lying one behind the other, the first in the lowest bits.
    fn squeezed(self, dtype: Dtype) -> Self {
        let mut items = vec![0u8; self.n_bytes()];
        // SAFETY: `items` has room for all of it.
        unsafe { self.whole().copy_to(items.as_mut_ptr()) };
        let bits = dtype.bitsize();
        let mut packed = Vec::with_capacity(items.len() * bits / 8);
        let (mut held, mut n_held) = (0u32, 0);
        for item in items {
            held |= (u32::from(item) & ((1 << bits) - 1)) << n_held;
            n_held += bits;
            while n_held >= 8 {
                packed.push(held as u8);
                held >>= 8;
                n_held -= 8;
            }
        }
        let dims = vec![Dim { size: packed.len(), stride: 1 }];
        Self { data: packed.as_ptr(), item_bytes: 1, dims, _packed: Some(packed) }
    }

    /// Bytes of the packed tensor.
    pub(crate) fn n_bytes(&self) -> usize {
        self.dims.iter().map(|d| d.size).product::<usize>() * self.item_bytes
    }

    /// Cuts the tensor into blocks of at most `max_bytes` (at least one item), in the order of their bytes, and hands
    /// each to `take` until one fails.
    pub(crate) fn for_each_block<E>(
        &self,
        max_bytes: usize,
        take: &mut dyn FnMut(&Block<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        self.whole().split(max_bytes, take)
    }

    /// The tensor as one block.
    pub(crate) fn whole(&self) -> Block<'_> {
        Block { data: self.data, item_bytes: self.item_bytes, dims: &self.dims, first: None }
    }
}

/// A part of a source that is contiguous once packed: some indices of one dimension, and all of those behind it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Block<'a> {
    data: *const u8,
    item_bytes: usize,
    dims: &'a [Dim],
    /// How many indices of the first dimension; all where `None`.
    first: Option<usize>,
}

impl Block<'_> {
    fn size(&self, i: usize) -> usize {
        match self.first {
            Some(n) if i == 0 => n,
            _ => self.dims[i].size,
        }
    }

    /// The block's items, with room for its dimensions.
    pub(crate) fn items<'d>(&self, dims: &'d mut Vec<Dim>) -> Items<'d> {
        dims.clear();
        dims.extend((0..self.dims.len()).map(|i| Dim { size: self.size(i), ..self.dims[i] }));
        Items { first: self.data, item_bytes: self.item_bytes, dims }
    }

    /// Bytes of the packed block.
    pub(crate) fn n_bytes(&self) -> usize {
        (0..self.dims.len()).map(|i| self.size(i)).product::<usize>() * self.item_bytes
    }

    fn split<E>(&self, max_bytes: usize, take: &mut dyn FnMut(&Block<'_>) -> Result<(), E>) -> Result<(), E> {
        let n_bytes = self.n_bytes();
        if n_bytes <= max_bytes || self.dims.is_empty() {
            return if n_bytes == 0 { Ok(()) } else { take(self) };
        }
        let (rows, stride) = (self.size(0), self.dims[0].stride);
        let row_bytes = n_bytes / rows;
        let at_once = max_bytes / row_bytes;
        if at_once == 0 {
            // One row is too much: its inner dimensions are split.
            for i in 0..rows {
                let data = self.data.wrapping_offset(i as isize * stride);
                Block { data, dims: &self.dims[1..], first: None, ..*self }.split(max_bytes, take)?;
            }
            return Ok(());
        }
        let mut i = 0;
        while i < rows {
            let n = at_once.min(rows - i);
            let data = self.data.wrapping_offset(i as isize * stride);
            take(&Block { data, first: Some(n), ..*self })?;
            i += n;
        }
        Ok(())
    }

    /// Copies the block.
    ///
    /// # Safety
    /// `to` has room for [`Self::n_bytes`], and nobody else uses that room. The view the block came from is readable.
    pub(crate) unsafe fn copy_to(&self, to: *mut u8) {
        let Some(last) = self.dims.len().checked_sub(1) else {
            // SAFETY: a single item.
            unsafe { std::ptr::copy_nonoverlapping(self.data, to, self.item_bytes) };
            return;
        };
        let run = Dim { size: self.size(last), stride: self.dims[last].stride };
        let item = self.item_bytes as isize;
        if run.stride == item {
            let n_bytes = run.size * self.item_bytes;
            self.for_each_index(&[last], |from, offset| {
                // SAFETY: a row of the view, and its place in the room at `to`.
                unsafe { std::ptr::copy_nonoverlapping(from, to.add(offset), n_bytes) };
            });
        } else if let Some(unit) = (0..last).find(|&i| self.dims[i].stride == item && self.size(i) > 1) {
            let columns = self.size(unit);
            let row_bytes = (unit + 1..=last).map(|i| self.size(i)).product::<usize>() * self.item_bytes;
            self.for_each_index(&[unit, last], |from, offset| {
                // SAFETY: the plane of two dimensions of the view at this index, and its place in the room at `to`.
                unsafe {
                    transpose(
                        self.item_bytes,
                        from,
                        run.stride,
                        to.add(offset),
                        row_bytes,
                        columns,
                        run.size,
                    );
                }
            });
        } else {
            self.for_each_index(&[last], |from, offset| {
                // SAFETY: a row of the view whose items stand apart, and its place in the room at `to`.
                unsafe { gather(self.item_bytes, from, run, to.add(offset)) };
            });
        }
    }

    /// Calls `copy(source address, destination offset)` for every index of the dimensions that are not `inner`.
    fn for_each_index(&self, inner: &[usize], mut copy: impl FnMut(*const u8, usize)) {
        // Sizes, source and destination strides of the outer dimensions, innermost first.
        let mut outer = Vec::with_capacity(self.dims.len());
        let mut packed_stride = self.item_bytes;
        for i in (0..self.dims.len()).rev() {
            if !inner.contains(&i) {
                outer.push((self.size(i), self.dims[i].stride, packed_stride));
            }
            packed_stride *= self.size(i);
        }
        let mut index = vec![0usize; outer.len()];
        let (mut from, mut offset) = (self.data, 0usize);
        loop {
            copy(from, offset);
            let mut turned = 0;
            loop {
                let Some(&(size, stride, packed_stride)) = outer.get(turned) else { return };
                index[turned] += 1;
                from = from.wrapping_offset(stride);
                offset += packed_stride;
                if index[turned] < size {
                    break;
                }
                from = from.wrapping_offset(-(stride * size as isize));
                offset -= packed_stride * size;
                index[turned] = 0;
                turned += 1;
            }
        }
    }
}

/// Copies items that stand `run.stride` bytes apart.
///
/// # Safety
/// They are readable, and `to` has room for them all.
unsafe fn gather(item_bytes: usize, from: *const u8, run: Dim, to: *mut u8) {
    /// # Safety
    /// As for `gather`.
    unsafe fn items<T: Copy>(from: *const u8, run: Dim, to: *mut u8) {
        for i in 0..run.size {
            // SAFETY: the i-th item and its place; neither need be aligned.
            unsafe {
                let item = from.offset(i as isize * run.stride).cast::<T>().read_unaligned();
                to.cast::<T>().add(i).write_unaligned(item);
            }
        }
    }
    // SAFETY: the caller's condition, item by item.
    unsafe {
        match item_bytes {
            1 => items::<u8>(from, run, to),
            2 => items::<u16>(from, run, to),
            4 => items::<u32>(from, run, to),
            8 => items::<u64>(from, run, to),
            16 => items::<u128>(from, run, to),
            n => unreachable!("no element has {n} bytes"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The naive twin: every index in C order, item by item.
    fn naive(memory: &[u8], start: usize, item: usize, shape: &[u64], strides: &[i64]) -> Vec<u8> {
        let mut packed = Vec::new();
        let numel: u64 = shape.iter().product();
        for flat in 0..numel {
            let (mut rest, mut at) = (flat, start as i64);
            for (size, stride) in shape.iter().zip(strides).rev() {
                at += (rest % size) as i64 * stride * item as i64;
                rest /= size;
            }
            packed.extend_from_slice(&memory[at as usize..at as usize + item]);
        }
        packed
    }

    fn packed(
        memory: &[u8],
        start: usize,
        element: Element,
        shape: &[u64],
        strides: &[i64],
        block: usize,
    ) -> Vec<u8> {
        // SAFETY: every test gives a shape whose items lie in `memory`.
        let view =
            unsafe { TensorView::new(memory.as_ptr().add(start), element, shape, strides, "cpu") }.unwrap();
        let source = Source::new(&view);
        let mut out = Vec::new();
        source
            .for_each_block(block, &mut |part| {
                assert!(part.n_bytes() <= block.max(16), "{} bytes in a block of {block}", part.n_bytes());
                let mut room = vec![0xEE; part.n_bytes()];
                // SAFETY: the room is as large as the block.
                unsafe { part.copy_to(room.as_mut_ptr()) };
                out.extend(room);
                Ok::<(), ()>(())
            })
            .unwrap();
        assert_eq!(out.len() as u64, view.n_bytes());
        out
    }

    fn plain(item: usize) -> Element {
        match item {
            1 => Element::Plain(Dtype::U8),
            2 => Element::Plain(Dtype::BF16),
            4 => Element::Plain(Dtype::F32),
            8 => Element::Plain(Dtype::C64),
            _ => Element::Complex128,
        }
    }

    #[test]
    fn mergeable_dimensions_are_one_run() {
        let memory = [0u8; 48];
        // SAFETY: 2 × 1 × 3 × 8 bytes.
        let view = unsafe { TensorView::new(memory.as_ptr(), plain(8), &[2, 1, 3], &[3, 77, 1], "cpu") };
        assert_eq!(Source::new(&view.unwrap()).dims, [Dim { size: 6, stride: 8 }]);
    }

    #[test]
    fn sub_byte_elements_are_packed_low_bits_first() {
        // 1, 2, 15, 4 in four bits: 0x21, 0x4F. Bits above the element's are not its own.
        let nibbles = packed(&[1, 2, 0xFF, 0x34], 0, Element::OnePerByte(Dtype::F4), &[4], &[1], 64);
        assert_eq!(nibbles, [0x21, 0x4F]);
        // 1, 2, 3, 63 in six bits: 0b111111_000011_000010_000001.
        let sixes = packed(&[1, 2, 3, 63], 0, Element::OnePerByte(Dtype::F6_E2M3), &[4], &[1], 64);
        assert_eq!(sixes, [0b1000_0001, 0b0011_0000, 0b1111_1100]);
    }

    #[test]
    fn an_empty_tensor_has_no_blocks() {
        assert!(packed(&[], 0, plain(4), &[3, 0, 2], &[0, 2, 1], 64).is_empty());
    }

    #[test]
    fn a_scalar_is_one_item() {
        assert_eq!(packed(&[9, 1, 2], 1, plain(2), &[], &[], 64), [1, 2]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn any_layout_equals_its_naive_twin(
            dims in prop::collection::vec((1u64..40, -3i64..4, 0u8..4), 0..5),
            item in prop::sample::select(vec![1usize, 2, 4, 8, 16]),
            order in any::<u64>(),
            block in 16usize..3000,
            odd in 0usize..2,
        ) {
            // Strides: a permuted contiguous layout, some dimensions stretched, reversed or expanded.
            let shape: Vec<u64> = dims.iter().map(|d| d.0).scan(1u64, |n, d| { *n *= d; Some(if *n > 20_000 { 1 } else { d }) }).collect();
            let mut axes: Vec<usize> = (0..shape.len()).collect();
            axes.sort_by_key(|i| (order >> (i * 8)) & 0xFF);
            let (mut strides, mut step) = (vec![0i64; shape.len()], 1i64);
            for &axis in &axes {
                let (_, stretch, kind) = dims[axis];
                strides[axis] = match kind { 0 => 0, 1 => -step * stretch.max(1), _ => step * stretch.max(1) };
                step *= shape[axis] as i64 * stretch.max(1);
            }
            let reach = |sign: i64| -> i64 {
                shape.iter().zip(&strides).map(|(n, s)| (s * sign).max(0) * (*n as i64 - 1)).sum()
            };
            let start = reach(-1) as usize * item + odd;
            let len = start + (reach(1) as usize + 1) * item;
            let memory: Vec<u8> = (0..len).map(|i| (i * 31 + (i >> 8) * 7) as u8).collect();
            prop_assert_eq!(
                packed(&memory, start, plain(item), &shape, &strides, block),
                naive(&memory, start, item, &shape, &strides)
            );
        }
    }
}
