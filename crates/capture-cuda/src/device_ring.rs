//! The device's ring: where tensors wait, packed, until they are copied to the host. Ranges are freed in the order they were
//! reserved, as one stream copies them.

use std::collections::VecDeque;

/// Where every range begins: kernels write 16 bytes at once, and copies like whole lines.
const ALIGNMENT: u64 = 256;

pub(crate) struct DeviceRing {
    base: u64,
    n_bytes: u64,
    /// Where the next range starts, and where the oldest does that is not freed: bytes since the beginning.
    head: u64,
    tail: u64,
    /// Where each range that is not freed ends.
    ends: VecDeque<u64>,
}

/// A range that was reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// Its address.
    pub(crate) at: u64,
    /// Where the ring stood before.
    before: u64,
}

impl DeviceRing {
    /// Of so many bytes at an address that is a multiple of 256, as those of the driver are.
    pub(crate) fn new(base: u64, n_bytes: u64) -> Self {
        Self { base, n_bytes, head: 0, tail: 0, ends: VecDeque::new() }
    }

    fn find(&self, n_bytes: u64) -> Option<(u64, u64)> {
        let n_bytes = n_bytes.max(1).next_multiple_of(ALIGNMENT);
        let (head, tail) = match self.ends.is_empty() {
            // Nobody holds any byte: start over.
            true => (self.head.next_multiple_of(self.n_bytes), self.head.next_multiple_of(self.n_bytes)),
            false => (self.head, self.tail),
        };
        let left = self.n_bytes - head % self.n_bytes;
        let start = if n_bytes > left { head + left } else { head };
        (start + n_bytes - tail <= self.n_bytes).then_some((start, start + n_bytes))
    }

    /// Whether so many bytes fit an empty ring.
    pub(crate) fn can_ever_hold(&self, n_bytes: u64) -> bool {
        n_bytes.max(1).next_multiple_of(ALIGNMENT) <= self.n_bytes
    }

    pub(crate) fn has_room(&self, n_bytes: u64) -> bool {
        self.find(n_bytes).is_some()
    }

    pub(crate) fn reserve(&mut self, n_bytes: u64) -> Option<Range> {
        let (start, end) = self.find(n_bytes)?;
        if self.ends.is_empty() {
            self.tail = start;
        }
        let before = std::mem::replace(&mut self.head, end);
        self.ends.push_back(end);
        Some(Range { at: self.base + start % self.n_bytes, before })
    }

    /// The last range that was reserved is not needed.
    pub(crate) fn take_back(&mut self, range: Range) {
        self.ends.pop_back();
        self.head = range.before;
    }

    /// Nothing reads the oldest range any more.
    pub(crate) fn free(&mut self) {
        if let Some(end) = self.ends.pop_front() {
            self.tail = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ring: &mut DeviceRing, n_bytes: u64) -> Option<u64> {
        ring.reserve(n_bytes).map(|range| range.at)
    }

    /// Four lines of 256 bytes, by hand.
    #[test]
    fn ranges_follow_each_other_and_skip_an_end_that_is_too_short() {
        let mut ring = DeviceRing::new(0x1000, 1024);
        assert_eq!(at(&mut ring, 300), Some(0x1000), "takes two lines");
        assert_eq!(at(&mut ring, 1), Some(0x1200));
        assert_eq!(at(&mut ring, 512), None, "one line is left");
        ring.free();
        assert_eq!(at(&mut ring, 512), Some(0x1000), "the last line is skipped");
        assert!(!ring.has_room(1));
        ring.free();
        assert_eq!(at(&mut ring, 1), Some(0x1200));
        assert!(!ring.has_room(1), "the skipped line belongs to the range behind it");
        ring.free();
        ring.free();
        assert_eq!(at(&mut ring, 1024), Some(0x1000), "an empty ring starts over");
    }

    #[test]
    fn what_is_taken_back_can_be_reserved_again() {
        let mut ring = DeviceRing::new(0, 512);
        ring.reserve(256).unwrap();
        let last = ring.reserve(256).unwrap();
        ring.take_back(last);
        assert_eq!(ring.reserve(10).unwrap().at, last.at);
        assert!(ring.reserve(600).is_none());
    }

    #[test]
    fn more_than_the_ring_never_fits() {
        let ring = DeviceRing::new(0, 512);
        assert!(ring.can_ever_hold(512) && !ring.can_ever_hold(513) && !ring.has_room(513));
    }
}
