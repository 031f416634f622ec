//! Choices made by a fuzzer's bytes. Where these have ended every choice is the first one, so that short inputs make
//! small things.

use arbitrary::Unstructured;

pub(crate) struct Choices<'a>(Unstructured<'a>);

/// Numbers at which something changes.
const EDGES: [u64; 12] = [
    5,
    127,
    255,
    1 << 31,
    u32::MAX as u64,
    1 << 44,
    (1 << 44) + 1,
    1 << 53,
    1 << 60,
    1 << 63,
    u64::MAX - 7,
    u64::MAX,
];

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(Unstructured::new(bytes))
    }

    /// True so many times of a hundred.
    pub(crate) fn is(&mut self, percent: u8) -> bool {
        self.below(100) >= 100 - u64::from(percent)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0.int_in_range(0..=n.saturating_sub(1)).unwrap_or(0)
    }

    pub(crate) fn of<'o, T>(&mut self, all: &'o [T]) -> &'o T {
        &all[self.below(all.len() as u64) as usize]
    }

    /// Mostly a few, now and then an edge or anything.
    pub(crate) fn number(&mut self) -> u64 {
        match self.below(20) {
            0..14 => self.below(5),
            14..17 => *self.of(&[8, 16, 32, 128]),
            17..19 => *self.of(&EDGES),
            _ => self.0.arbitrary().unwrap_or(0),
        }
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.arbitrary().unwrap_or(0)
    }
}
