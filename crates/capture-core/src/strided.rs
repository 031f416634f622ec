//! Where the items of a tensor lie, once dimensions that are contiguous with each other are merged.

/// A dimension of more than one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dim {
    /// How many indices.
    pub size: usize,
    /// Bytes from one index to the next; may be 0 or negative.
    pub stride: isize,
}

/// Items of a tensor, in memory that need not be the processor's.
#[derive(Debug, Clone, Copy)]
pub struct Items<'a> {
    /// Address of the first.
    pub first: *const u8,
    /// Bytes of one.
    pub item_bytes: usize,
    /// Dimensions, the outermost first; none where there is a single item.
    pub dims: &'a [Dim],
}

impl Items<'_> {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.dims.iter().map(|dim| dim.size).product()
    }

    /// Bytes of them all.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        self.count() * self.item_bytes
    }

    /// Whether they lie one behind the other.
    #[must_use]
    pub fn is_run(&self) -> bool {
        match self.dims {
            [] => true,
            [dim] => dim.size <= 1 || dim.stride == self.item_bytes as isize,
            _ => false,
        }
    }
}
