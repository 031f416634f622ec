//! Where in the page what lies: docs/control-page.md is the same as a table.

use super::bell::Bell;
use super::block::{Block, SLOT_HEADER};
use super::tap::MAX_LAST_TAP;
use std::sync::atomic::AtomicU64;

/// Size and alignment of the page: the largest page size of the kernels we run on.
pub const PAGE_BYTES: usize = 64 * 1024;

/// `TPCAPTUR`, read as a little-endian word: the page is ours.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TPCAPTUR");

/// Version of this layout.
pub const VERSION: u32 = 2;

/// The process answers MEMBARRIER_CMD_GLOBAL_EXPEDITED.
pub(super) const TRAIT_EXPEDITED: u64 = 1;

const WORDS: usize = PAGE_BYTES / 8;

/// Words by their place in the page. The first line is what the process's taps and steps look at.
const MAGIC_AT: usize = 0;
const IDENTITY_AT: usize = 1;
const SWITCH_AT: usize = 2;
const STEPS_AT: usize = 3;
const DUE_AT: usize = 4;
const TRAITS_AT: usize = 5;
const HOLDER_AT: usize = 0x40 / 8;
const REQUEST_CURRENT_AT: usize = 0x80 / 8;
const ANSWER_CURRENT_AT: usize = 0xc0 / 8;
const TAP_CURRENT_AT: usize = 0x100 / 8;
const TAP_AT: usize = 0x1000 / 8;
const TAP_SLOT: usize = 0x800 / 8;
const REQUEST_AT: usize = 0x2000 / 8;
const ANSWER_AT: usize = 0x8000 / 8;
const TEXT_SLOT: usize = 0x3000 / 8;

const _: () = assert!(TAP_AT + 2 * TAP_SLOT <= REQUEST_AT && REQUEST_AT + 2 * TEXT_SLOT <= ANSWER_AT);
const _: () = assert!(ANSWER_AT + 2 * TEXT_SLOT <= WORDS && SLOT_HEADER * 8 + MAX_LAST_TAP <= TAP_SLOT * 8);

/// The page: 64-bit words, little-endian. What has no name is zero.
#[repr(C, align(65536))]
pub(super) struct Page([AtomicU64; WORDS]);

impl Page {
    /// A page on which nothing was written and nothing is due.
    pub(super) const fn new() -> Self {
        let mut words = [const { AtomicU64::new(0) }; WORDS];
        words[DUE_AT] = AtomicU64::new(u64::MAX);
        Self(words)
    }

    pub(super) const fn magic(&self) -> &AtomicU64 {
        &self.0[MAGIC_AT]
    }

    /// Version in the low half, pid in the high one.
    pub(super) const fn identity(&self) -> &AtomicU64 {
        &self.0[IDENTITY_AT]
    }

    #[inline(always)]
    pub(super) const fn switch(&self) -> &AtomicU64 {
        &self.0[SWITCH_AT]
    }

    #[inline(always)]
    pub(super) const fn bell(&self) -> Bell<'_, AtomicU64> {
        Bell { switch: &self.0[SWITCH_AT], steps: &self.0[STEPS_AT], due: &self.0[DUE_AT] }
    }

    pub(super) const fn traits(&self) -> &AtomicU64 {
        &self.0[TRAITS_AT]
    }

    /// Who holds the lock: pid in the low half of the first word, user id in the high one; then since when,
    /// nanoseconds since 1970.
    pub(super) const fn holder(&self) -> [&AtomicU64; 2] {
        [&self.0[HOLDER_AT], &self.0[HOLDER_AT + 1]]
    }

    /// From the command to the process.
    pub(super) fn request(&self) -> Block<'_, AtomicU64> {
        self.block(REQUEST_CURRENT_AT, REQUEST_AT, TEXT_SLOT)
    }

    /// From the process to the command.
    pub(super) fn answer(&self) -> Block<'_, AtomicU64> {
        self.block(ANSWER_CURRENT_AT, ANSWER_AT, TEXT_SLOT)
    }

    /// The tap that fired last.
    pub(super) fn last_tap(&self) -> Block<'_, AtomicU64> {
        self.block(TAP_CURRENT_AT, TAP_AT, TAP_SLOT)
    }

    fn block(&self, current: usize, first: usize, slot: usize) -> Block<'_, AtomicU64> {
        let (first, second) = self.0[first..first + 2 * slot].split_at(slot);
        Block::new(&self.0[current], [first, second])
    }

    /// The first words of a page of this process, whose taps find the switch at `switch`.
    pub(super) fn first_words(switch: u64, steps: u64) -> [u64; 6] {
        let identity = u64::from(VERSION) | u64::from(std::process::id()) << 32;
        let due = if switch == 0 { u64::MAX } else { 0 };
        [MAGIC, identity, switch, steps, due, 0]
    }
}
