//! Tensors in a device's memory: they take their places in the ring like others, and the device fills these later.

use super::{Draft, Engine, NotStaged, OnFull, Piece};
use crate::device::{Device, Outcome, Room, Slot, Work};
use crate::digest::partial;
use crate::pack::Source;
use crate::ring::Place;
use crate::select::Mode;
use crate::sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

/// What an engine knows of devices.
#[derive(Default)]
pub(super) struct Devices {
    /// What they hold of the ring's memory until it goes.
    guards: Mutex<Vec<Box<dyn Send>>>,
    /// Those that can capture nothing any more, and why.
    failed: Mutex<BTreeMap<String, String>>,
    /// Whether one may still write to that memory: it must never go.
    is_haunted: AtomicBool,
}

/// Why a device did not fill a range.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) device: String,
    pub(crate) reason: String,
    pub(crate) reach: Reach,
}

/// What a device's failure is the end of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The record.
    Record,
    /// All records of tensors on the device.
    Device,
    /// The capture, as a copy into the ring may still run.
    Capture,
}

impl Engine {
    /// A tensor in a device's memory: its places are reserved in a row, and the device fills them.
    pub(super) fn stage_on(
        self: &Arc<Self>,
        device: &dyn Device,
        draft: Box<Draft>,
        source: &Source,
        on_full: OnFull,
        mut turn: MutexGuard<'_, u64>,
    ) -> Result<(), NotStaged> {
        let dtype = draft.dtype;
        let blocks = partial::blocks(draft.n_bytes as usize);
        let (work, in_place_of, max_piece) = match draft.mode {
            Mode::Stats => (Work::Stats { dtype }, Some(blocks * partial::STATS_BYTES), usize::MAX),
            Mode::Hash => (Work::Hash, Some(blocks * partial::HASH_BYTES), usize::MAX),
            _ => (Work::Copy, None, self.max_piece().min(device.max_piece())),
        };
        match on_full {
            // Room for the first piece is no promise of room for all.
            OnFull::Busy if draft.n_bytes as usize > max_piece => return Err(NotStaged::Busy(draft)),
            OnFull::Busy if !device.has_room(in_place_of.unwrap_or(draft.n_bytes as usize)) => {
                return Err(NotStaged::Busy(draft));
            }
            _ => {}
        }
        let name = draft.record.device.clone();
        if let Some(reason) = self.devices.failed.lock().get(&name) {
            return Err(NotStaged::Lost(format!("{name}: {reason}")));
        }
        let (mut draft, mut dims) = (Some(draft), Vec::new());
        let staged = source.for_each_block(max_piece, &mut |block| {
            let piece = || match draft.take() {
                Some(draft) if in_place_of.is_some() => Piece::Digest(draft),
                Some(draft) => Piece::First(draft),
                None => Piece::More,
            };
            let n_bytes = in_place_of.unwrap_or(block.n_bytes());
            let place = match self.ring.reserve(n_bytes, piece, on_full.patience()) {
                Ok(reservation) => reservation.into_place(),
                Err(no_room) => {
                    if draft.is_none() {
                        self.ring.signal(Piece::Abandon);
                    }
                    return Err(on_full.refusal(no_room, draft.take()));
                }
            };
            let (at, n_bytes) = self.ring.bytes_at(&place);
            let filling = Filling { engine: Arc::clone(self), place: Some(place), device: name.clone() };
            let room = Room::new(at, n_bytes, Box::new(filling));
            let begun = device.begin(work, &block.items(&mut dims), room, on_full.patience());
            begun.map_err(NotStaged::Counted)
        });
        if staged.is_ok() {
            *turn += 1;
        }
        staged
    }

    /// Lets go of what devices hold of the ring's memory, once nothing of it is used; whether it may go.
    pub(crate) fn release(&self) -> bool {
        let guards = std::mem::take(&mut *self.devices.guards.lock());
        let is_haunted = self.devices.is_haunted.load(Acquire);
        if is_haunted {
            // The memory stays, and stays pinned.
            std::mem::forget(guards);
        }
        !is_haunted
    }
}

/// A range that a device fills, as the device sees it.
struct Filling {
    engine: Arc<Engine>,
    place: Option<Place>,
    device: String,
}

impl std::fmt::Debug for Filling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filling").field("place", &self.place).field("device", &self.device).finish()
    }
}

impl Slot for Filling {
    fn memory(&self) -> (*mut u8, usize) {
        self.engine.ring.memory()
    }

    fn keep(&self, guard: Box<dyn Send>) {
        self.engine.devices.guards.lock().push(guard);
    }

    fn settle(&mut self, outcome: Outcome) {
        let Some(place) = self.place.take() else { return };
        let failure = match outcome {
            Outcome::Filled => None,
            Outcome::Lost(reason) => Some((reason, Reach::Record)),
            Outcome::Failed(reason) => {
                // At once, and not when the writer comes to it: nothing more is asked of the device.
                self.engine
                    .devices
                    .failed
                    .lock()
                    .entry(self.device.clone())
                    .or_insert_with(|| reason.clone());
                Some((reason, Reach::Device))
            }
            Outcome::Unknown(reason) => {
                if !self.engine.devices.is_haunted.swap(true, Release) {
                    // For ever: a copy may still write to its memory.
                    std::mem::forget(Arc::clone(&self.engine));
                }
                self.engine.ring.close();
                Some((reason, Reach::Capture))
            }
        };
        self.engine.ring.publish_place(place, |piece| match failure {
            None => piece,
            Some((reason, reach)) => {
                let failure = Failure { device: self.device.clone(), reason, reach };
                let draft = match piece {
                    Piece::First(draft) | Piece::Digest(draft) => Some(draft),
                    _ => None,
                };
                Piece::Failed { draft, failure }
            }
        });
    }
}
