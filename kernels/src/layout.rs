//! `Layout` of cu/layout.cuh.

/// The most dimensions that are left once those that are contiguous with each other are merged.
pub const MAX_RANK: usize = 8;

/// Where a tensor's items, or units of them, lie; passed by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Layout {
    /// Dimensions, at most [`MAX_RANK`].
    pub rank: u32,
    /// Room.
    pub unused: u32,
    /// Indices of each, the outermost first.
    pub size: [u64; MAX_RANK],
    /// Bytes from one index to the next.
    pub stride: [i64; MAX_RANK],
}

impl Layout {
    /// Of dimensions from the outermost to the innermost; `None` where they are too many.
    #[must_use]
    pub fn new(dims: impl Iterator<Item = (u64, i64)>) -> Option<Self> {
        let mut layout = Self::default();
        for (size, stride) in dims {
            let at = layout.rank as usize;
            *layout.size.get_mut(at)? = size;
            layout.stride[at] = stride;
            layout.rank += 1;
        }
        Some(layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_the_kernels_layout() {
        assert_eq!(size_of::<Layout>(), 8 + 8 * 8 + 8 * 8);
        assert_eq!(std::mem::offset_of!(Layout, stride), 72);
    }

    #[test]
    fn a_ninth_dimension_is_too_many() {
        let layout = Layout::new([(2, 12), (3, -4)].into_iter()).unwrap();
        assert_eq!((layout.rank, layout.size[1], layout.stride[1]), (2, 3, -4));
        assert_eq!(Layout::new((0..9).map(|_| (2, 1))), None);
    }
}
