//! Memory that the processor cannot read when a tap fires: a GPU's. Who implements [`Device`] copies out of it later, in the
//! order of the model's stream, into a [`Room`] of the ring. This crate calls no driver.

use crate::ring::Patience;
use crate::strided::Items;
use safetensors::Dtype;
use std::fmt;

/// A device, and the stream on which a tensor of it was made.
pub trait Device: fmt::Debug {
    /// The most bytes that one [`begin`](Self::begin) copies.
    fn max_piece(&self) -> usize;

    /// Whether so many bytes can be begun at once.
    fn has_room(&self, n_bytes: usize) -> bool;

    /// Begins the work on the tensor's stream. When this returns, whatever the model has the stream do next may overwrite
    /// or free the items. The room is filled later, by any thread.
    ///
    /// # Errors
    /// Why it was not begun. The room is settled with that reason, and so the loss is counted.
    fn begin(&self, work: Work, items: &Items<'_>, room: Room, patience: Patience) -> Result<(), String>;
}

/// What is to come into a room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// The items in C order.
    Copy,
    /// Partial statistics of items of that dtype, as [`digest::partial`](crate::digest::partial) reads them.
    Stats {
        /// Their dtype.
        dtype: Dtype,
    },
    /// Partial hashes of their bytes.
    Hash,
}

/// What became of a room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// All of it is filled.
    Filled,
    /// It is not, for this reason; the device can capture other tensors.
    Lost(String),
    /// It is not, as the device can capture nothing any more.
    Failed(String),
    /// The same, and a copy may still run: the memory must neither be used again nor freed.
    Unknown(String),
}

/// Who is told what became of a room.
pub trait Slot: Send + fmt::Debug {
    /// The memory that the room is part of.
    fn memory(&self) -> (*mut u8, usize);

    /// Keeps something until just before that memory goes.
    fn keep(&self, guard: Box<dyn Send>);

    /// The room is not touched any more.
    fn settle(&mut self, outcome: Outcome);
}

/// A range of the ring that a device fills. One that is dropped unsettled has failed.
#[derive(Debug)]
pub struct Room {
    at: *mut u8,
    n_bytes: usize,
    slot: Option<Box<dyn Slot>>,
}

#[expect(unsafe_code, reason = "a raw address goes to another thread")]
// SAFETY: the range belongs to whoever holds the room, and lives as long as it is not settled.
unsafe impl Send for Room {}

impl Room {
    pub(crate) fn new(at: *mut u8, n_bytes: usize, slot: Box<dyn Slot>) -> Self {
        Self { at, n_bytes, slot: Some(slot) }
    }

    /// Address and length of the range.
    #[must_use]
    pub fn bytes(&mut self) -> (*mut u8, usize) {
        (self.at, self.n_bytes)
    }

    /// Address and length of the memory that the range is part of: to be pinned as a whole.
    #[must_use]
    pub fn memory(&self) -> (*mut u8, usize) {
        self.slot.as_ref().map_or((self.at, self.n_bytes), |slot| slot.memory())
    }

    /// Keeps something until just before that memory goes.
    pub fn keep(&self, guard: Box<dyn Send>) {
        if let Some(slot) = &self.slot {
            slot.keep(guard);
        }
    }

    /// The range is not touched any more.
    pub fn settle(mut self, outcome: Outcome) {
        if let Some(mut slot) = self.slot.take() {
            slot.settle(outcome);
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(mut slot) = self.slot.take() {
            slot.settle(Outcome::Unknown("a copy was given up".to_owned()));
        }
    }
}
