//! A text in the page that another process reads while it is replaced: two slots and a word that says which is current.
//!
//! A writer fills the slot that is not current, then makes it the current one. It may die at any instruction and has
//! changed nothing until the last. A reader copies the current slot and believes it only where its checksum, which
//! covers its generation and length, is right; a slot that was overwritten meanwhile, or by a stranger, fails. It then
//! tries once more and never spins.
//!
//! ```text
//! current  u64      generation of the current slot, which is slot generation % 2; 0: nothing was written yet
//! slot     u64      its generation
//!          u32 u32  length in bytes; CRC-32 of generation (8 bytes), length (4 bytes) and the bytes, little-endian
//!          bytes
//! ```
//!
//! One writes at a time; whoever writes sees to that.

use super::word::Word;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Words in front of a slot's bytes.
pub(super) const SLOT_HEADER: usize = 2;

/// The current word and the two slots.
#[derive(Debug)]
pub struct Block<'a, W> {
    current: &'a W,
    slots: [&'a [W]; 2],
}

/// More bytes than a slot has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected at most {limit} bytes, found {found}")]
pub struct TooLong {
    /// Bytes a slot holds.
    pub limit: usize,
    /// Bytes that were to be written.
    pub found: usize,
}

/// Twice the current slot was not whole: it is being overwritten faster than it can be read, or holds what nobody
/// wrote by the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no whole text is there")]
pub struct Torn;

/// A text and which it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Counts what was written, from 1.
    pub generation: u64,
    /// The text.
    pub bytes: Vec<u8>,
}

impl<'a, W: Word> Block<'a, W> {
    /// Both slots are equally long, and longer than their header.
    #[must_use]
    pub fn new(current: &'a W, slots: [&'a [W]; 2]) -> Self {
        debug_assert!(slots[0].len() == slots[1].len() && slots[0].len() > SLOT_HEADER);
        Self { current, slots }
    }

    /// Bytes that a text may have.
    #[must_use]
    pub fn capacity(&self) -> usize {
        (self.slots[0].len() - SLOT_HEADER) * 8
    }

    /// Which text is the current one; 0: none was written.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.current.load(Acquire)
    }

    /// Replaces the text; returns its generation.
    ///
    /// # Errors
    /// Where it does not fit.
    pub fn write(&self, bytes: &[u8]) -> Result<u64, TooLong> {
        if bytes.len() > self.capacity() {
            return Err(TooLong { limit: self.capacity(), found: bytes.len() });
        }
        // 2 after the last, as 0 is nothing and 1 would be the slot that is current.
        let generation = self.current.load(Relaxed).checked_add(1).unwrap_or(2);
        // Pairs with the fence in `read`: whoever reads a word of what follows sees that the slot is not current.
        W::fence(Release);
        let slot = self.slots[(generation % 2) as usize];
        let length = bytes.len() as u32;
        slot[0].store(generation, Relaxed);
        slot[1].store(u64::from(length) | u64::from(checksum(generation, bytes)) << 32, Relaxed);
        for (word, chunk) in slot[SLOT_HEADER..].iter().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            word.store(u64::from_le_bytes(padded), Relaxed);
        }
        // Release: whoever sees the generation sees the slot.
        self.current.store(generation, Release);
        Ok(generation)
    }

    /// The current text; `None` where none was written.
    ///
    /// # Errors
    /// Where none is whole.
    pub fn read(&self) -> Result<Option<Text>, Torn> {
        for _ in 0..2 {
            let generation = self.current.load(Acquire);
            if generation == 0 {
                return Ok(None);
            }
            if let Some(bytes) = self.copy(generation) {
                return Ok(Some(Text { generation, bytes }));
            }
            // The next look at the current word is not older than what has just been seen of the slot.
            W::fence(Acquire);
        }
        Err(Torn)
    }

    fn copy(&self, generation: u64) -> Option<Vec<u8>> {
        let slot = self.slots[(generation % 2) as usize];
        let sizes = slot[1].load(Relaxed);
        let (length, crc32) = (sizes as u32 as usize, (sizes >> 32) as u32);
        if slot[0].load(Relaxed) != generation || length > self.capacity() {
            return None;
        }
        let words = slot[SLOT_HEADER..].iter().take(length.div_ceil(8));
        let mut bytes: Vec<u8> = words.flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        bytes.truncate(length);
        (checksum(generation, &bytes) == crc32).then_some(bytes)
    }
}

fn checksum(generation: u64, bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&generation.to_le_bytes());
    crc.update(&(bytes.len() as u32).to_le_bytes());
    crc.update(bytes);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    /// A current word and two slots of 24 bytes.
    #[derive(Default)]
    struct Fake {
        current: AtomicU64,
        slots: [[AtomicU64; 5]; 2],
    }

    impl Fake {
        fn block(&self) -> Block<'_, AtomicU64> {
            Block::new(&self.current, [&self.slots[0], &self.slots[1]])
        }
    }

    fn text(generation: u64, bytes: &[u8]) -> Result<Option<Text>, Torn> {
        Ok(Some(Text { generation, bytes: bytes.to_vec() }))
    }

    #[test]
    fn what_is_written_is_read() {
        let fake = Fake::default();
        assert_eq!((fake.block().read(), fake.block().generation()), (Ok(None), 0));
        for (generation, bytes) in
            [&b"eleven byte"[..], b"", b"just twenty-four bytes!!", b"x"].iter().enumerate()
        {
            assert_eq!(fake.block().write(bytes), Ok(generation as u64 + 1));
            assert_eq!(fake.block().read(), text(generation as u64 + 1, bytes));
        }
        assert_eq!(fake.block().write(&[0; 25]), Err(TooLong { limit: 24, found: 25 }));
        assert_eq!(fake.block().read(), text(4, b"x"), "what is too long changes nothing");
    }

    /// By hand: the slot's words, and zlib.crc32(struct.pack("<QI", 1, 3) + b"abc") of Python.
    #[test]
    fn a_slot_is_laid_out_as_documented() {
        let fake = Fake::default();
        fake.block().write(b"abc").unwrap();
        let words = fake.slots[1].each_ref().map(|word| word.load(Relaxed));
        assert_eq!(words, [1, 3 | 0x95a5_5a42 << 32, 0x63_6261, 0, 0]);
        assert_eq!(fake.current.load(Relaxed), 1);
    }

    /// A writer that dies may leave anything in the slot that is not current.
    #[test]
    fn a_writer_that_dies_has_changed_nothing() {
        let fake = Fake::default();
        fake.block().write(b"whole").unwrap();
        for word in &fake.slots[0] {
            word.store(0xdead_dead_dead_dead, Relaxed);
            assert_eq!(fake.block().read(), text(1, b"whole"));
        }
        assert_eq!(fake.block().write(b"next"), Ok(2));
        assert_eq!(fake.block().read(), text(2, b"next"));
    }

    #[test]
    fn any_word_that_is_wrong_is_found() {
        let write = || {
            let fake = Fake::default();
            fake.block().write(b"before").unwrap();
            fake.block().write(b"seventeen bytes..").unwrap();
            fake
        };
        for (i, bit) in [(0, 0), (1, 0), (1, 31), (1, 32), (1, 63), (2, 0), (2, 63), (3, 17), (4, 7)] {
            let fake = write();
            fake.slots[0][i].fetch_xor(1 << bit, Relaxed);
            assert_eq!(fake.block().read(), Err(Torn), "word {i}, bit {bit}");
        }
        // A generation that the slot is not of, in both its places.
        for generation in [1 << 40, 3, u64::MAX] {
            let fake = write();
            fake.current.store(generation, Relaxed);
            assert_eq!(fake.block().read(), Err(Torn), "{generation}");
            fake.slots[(generation % 2) as usize][0].store(generation, Relaxed);
            assert_eq!(fake.block().read(), Err(Torn), "{generation}");
            // The next writer sets it right.
            let next = fake.block().write(b"healed").unwrap();
            assert_eq!(fake.block().read(), text(next, b"healed"));
        }
    }
}
