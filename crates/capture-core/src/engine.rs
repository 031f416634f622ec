//! Between the model's threads and the writer: brings a tensor's bytes into the ring and tells the writer what they are.
//!
//! A record enters the ring as one piece or several, in order. Producers take turns at reserving, so that the pieces
//! of one record are not mixed with another's; only a record of several pieces keeps the turn while it copies. A tensor in
//! a device's memory takes its place in the same order, and the device fills it later. Nothing here touches a file: that is
//! the writer's, at the other end of the ring.

use crate::digest::{self, Digest};
use crate::leavings::Leavings;
use crate::pack::{Block, Source};
use crate::record::Record;
use crate::ring::{NoRoom, Patience, Reservation, Ring};
use crate::select::Mode;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::view::{Element, TensorView};
use safetensors::Dtype;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::{Duration, Instant};

mod on_device;

use on_device::Devices;
pub(crate) use on_device::{Failure, Reach};

/// The largest piece: few of them for a large tensor, and the writer begins while the rest is still being copied.
const MAX_PIECE: usize = 32 << 20;

/// What a tensor is, as far as known before its bytes are copied.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) record: Record,
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<u64>,
    /// Bytes of the tensor.
    pub(crate) n_bytes: u64,
    /// The selection's rule that wants it.
    pub(crate) rule: usize,
    /// What the rule keeps: the bytes, or one of the two digests.
    pub(crate) mode: Mode,
    /// The digest, once it is computed.
    pub(crate) digest: Option<Digest>,
}

impl Draft {
    /// Bytes that the record takes of what may be written: those of the tensor or, of a digest, what its line has at most
    /// but for names that JSON makes longer.
    pub(crate) fn charge(&self) -> u64 {
        const LINE: usize = 640;
        const NUMBER: usize = 21;
        let Record { tap, strides, placement, .. } = &self.record;
        let names = tap.len() + placement.as_ref().map_or(0, String::len);
        match self.mode {
            Mode::Full => self.n_bytes,
            _ => (LINE + names + NUMBER * (self.shape.len() + strides.len())) as u64,
        }
    }
}

/// What comes through the ring.
#[derive(Debug)]
pub(crate) enum Piece {
    /// The first bytes of a record.
    First(Box<Draft>),
    /// The next bytes of the record begun before.
    More,
    /// The record begun before will not be completed.
    Abandon,
    /// A record without bytes: its digest is in the draft, or its parts in the range.
    Digest(Box<Draft>),
    /// A device could not fill the range. The draft is that of the record that begins here, if one does.
    Failed { draft: Option<Box<Draft>>, failure: Failure },

    /// Seal the open segment, for whoever waits in [`Engine::flush`].
    Seal,
}

/// What the model's thread does where the ring is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFull {
    /// Comes back later, with more patience: the caller holds something that others need.
    Busy,
    /// Waits at most so long, once; `None` is for ever.
    Wait(Option<Duration>),
    /// Gives the record up.
    Drop,
}

/// Why a draft did not become a record.
#[derive(Debug)]
pub(crate) enum NotStaged {
    /// There would have been a wait: the draft is given back.
    Busy(Box<Draft>),
    /// The record is lost, for this reason; the capture goes on.
    Lost(String),
    /// The device did not take it: the writer counts the loss.
    Counted(String),
    /// The ring stayed full for so long: the capture is to end.
    Full(Duration),
    /// The capture has ended.
    Ended,
}

pub(crate) struct Engine {
    pub(crate) ring: Ring<Piece>,
    /// The next record's number in capture order; held by the producer whose turn it is.
    turn: Mutex<u64>,
    progress: Mutex<Progress>,
    advanced: Condvar,
    /// Bytes that the writer has got out of the way: a writer that stands still does not move it.
    moved: AtomicU64,
    /// Bytes on the disk beside those of the records.
    overhead: AtomicU64,
    after: Mutex<After>,
    /// Producers that have been promised a place and may still have a loss to count.
    promised: AtomicU64,
    devices: Devices,
}

/// An engine in the hands of a producer, until its record is staged or counted as lost.
pub(crate) struct Promise(Arc<Engine>);

impl Promise {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        engine.promised.fetch_add(1, Relaxed);
        Self(engine)
    }
}

impl std::ops::Deref for Promise {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        &self.0
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        // The ledger is behind a lock of its own: whoever sees the promise kept sees what was counted before.
        self.0.promised.fetch_sub(1, Release);
    }
}

/// What becomes of the files.
#[derive(Debug, Default)]
struct After {
    is_discarded: bool,
    leavings: Option<Leavings>,
}

#[derive(Debug, Default)]
struct Progress {
    seals_asked: u64,
    seals_done: u64,
    finished: bool,
}

/// The writer has moved nothing for so long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the writer has moved nothing for {0:?}: the disk may hang")]
pub(crate) struct Stalled(Duration);

pub(crate) const LARGER_THAN_RING: &str = "larger than the ring (TPCAPTURE_RING)";
const SUB_BYTE: &str = "a device keeps its elements, of less than a byte, in bytes of their own";
pub(crate) const RING_FULL: &str = "the ring was full (TPCAPTURE_ON_FULL=drop)";

impl Engine {
    pub(crate) fn new(ring_bytes: usize) -> std::io::Result<Self> {
        Ok(Self {
            ring: Ring::new(ring_bytes)?,
            turn: Mutex::new(0),
            progress: Mutex::default(),
            advanced: Condvar::new(),
            moved: AtomicU64::new(0),
            overhead: AtomicU64::new(0),
            after: Mutex::default(),
            promised: AtomicU64::new(0),
            devices: Devices::default(),
        })
    }

    /// Copies a tensor into the ring, or its digest. When this returns the tensor may be overwritten or freed.
    pub(crate) fn stage(
        self: &Arc<Self>,
        mut draft: Box<Draft>,
        view: &TensorView<'_>,
        on_full: OnFull,
    ) -> Result<(), NotStaged> {
        // An empty tensor lies nowhere.
        let device = view.memory().filter(|_| draft.n_bytes > 0);
        if device.is_some() && matches!(view.element(), Element::OnePerByte(_)) {
            return Err(NotStaged::Lost(SUB_BYTE.to_owned()));
        }
        if draft.mode != Mode::Full && draft.digest.is_none() && device.is_none() {
            if on_full == OnFull::Busy && draft.n_bytes as usize > self.max_piece() {
                // This takes a while, as copying it would.
                return Err(NotStaged::Busy(draft));
            }
            // Before its turn: nobody else need wait for it.
            draft.digest = Some(match draft.mode {
                Mode::Hash => Digest::Hash { hash: digest::hash(view) },
                _ => Digest::Stats { stats: digest::stats(view) },
            });
        }
        let turn = match on_full {
            OnFull::Busy => match self.turn.try_lock() {
                Some(turn) => turn,
                None => return Err(NotStaged::Busy(draft)),
            },
            OnFull::Wait(_) | OnFull::Drop => self.turn.lock(),
        };
        draft.record.seq = *turn;
        if let Some(device) = device {
            return self.stage_on(device, draft, &Source::new(view), on_full, turn);
        }
        if draft.digest.is_some() {
            return self.stage_digest(draft, on_full, turn);
        }
        let source = Source::new(view);
        if draft.n_bytes as usize <= self.max_piece() {
            self.stage_whole(draft, &source, on_full, turn)
        } else {
            self.stage_pieces(draft, &source, on_full, turn)
        }
    }

    fn max_piece(&self) -> usize {
        (self.ring.capacity() / 4).min(MAX_PIECE)
    }

    /// A place in the queue and no bytes.
    fn stage_digest(
        &self,
        draft: Box<Draft>,
        on_full: OnFull,
        mut turn: MutexGuard<'_, u64>,
    ) -> Result<(), NotStaged> {
        let mut draft = Some(draft);
        let piece = || Piece::Digest(draft.take().expect("a piece is made once"));
        match self.ring.reserve(0, piece, on_full.patience()) {
            Ok(_) => {
                *turn += 1;
                Ok(())
            }
            Err(no_room) => Err(on_full.refusal(no_room, draft)),
        }
    }

    /// One piece: other producers reserve theirs while it is copied.
    fn stage_whole(
        &self,
        draft: Box<Draft>,
        source: &Source,
        on_full: OnFull,
        mut turn: MutexGuard<'_, u64>,
    ) -> Result<(), NotStaged> {
        let n_bytes = draft.n_bytes as usize;
        let mut draft = Some(draft);
        let piece = || Piece::First(draft.take().expect("a piece is made once"));
        match self.ring.reserve(n_bytes, piece, on_full.patience()) {
            Ok(mut room) => {
                *turn += 1;
                drop(turn);
                if n_bytes > 0 {
                    fill(&mut room, &source.whole());
                }
                Ok(())
            }
            Err(no_room) => Err(on_full.refusal(no_room, draft)),
        }
    }

    /// Several pieces, in a row.
    fn stage_pieces(
        &self,
        draft: Box<Draft>,
        source: &Source,
        on_full: OnFull,
        mut turn: MutexGuard<'_, u64>,
    ) -> Result<(), NotStaged> {
        match on_full {
            // Room for the first piece is no promise of room for all.
            OnFull::Busy => return Err(NotStaged::Busy(draft)),
            OnFull::Drop if draft.n_bytes > self.ring.capacity() as u64 => {
                return Err(NotStaged::Lost(LARGER_THAN_RING.to_owned()));
            }
            OnFull::Wait(_) | OnFull::Drop => {}
        }
        let mut draft = Some(draft);
        let staged = source.for_each_block(self.max_piece(), &mut |block| {
            let piece = || draft.take().map_or(Piece::More, Piece::First);
            let mut room = self.ring.reserve(block.n_bytes(), piece, on_full.patience())?;
            fill(&mut room, block);
            Ok(())
        });
        match staged {
            Ok(()) => {
                *turn += 1;
                Ok(())
            }
            Err(no_room) => {
                if draft.is_none() {
                    self.ring.signal(Piece::Abandon);
                }
                Err(on_full.refusal(no_room, draft))
            }
        }
    }

    /// Returns once the writer has sealed everything staged before, as far as it could, or has moved nothing for
    /// `stall` (`None`: waits for ever).
    pub(crate) fn flush(&self, stall: Option<Duration>) -> Result<(), Stalled> {
        let ticket = {
            let mut progress = self.progress.lock();
            progress.seals_asked += 1;
            progress.seals_asked
        };
        // A closed ring is sealed by the writer's end.
        self.ring.signal(Piece::Seal);
        self.wait_for(stall, |progress| progress.seals_done >= ticket || progress.finished)
    }

    /// Refuses further records and returns once the writer is through with those before, or stands still.
    pub(crate) fn finish(&self, stall: Option<Duration>) -> Result<(), Stalled> {
        self.ring.close();
        self.wait_for(stall, |progress| progress.finished)
    }

    fn wait_for(&self, stall: Option<Duration>, done: impl Fn(&Progress) -> bool) -> Result<(), Stalled> {
        let mut progress = self.progress.lock();
        let (mut moved, mut since) = (self.moved.load(Relaxed), Instant::now());
        while !done(&progress) {
            progress = self.advanced.wait_for(progress, Duration::from_millis(100));
            let now = self.moved.load(Relaxed);
            if now != moved {
                (moved, since) = (now, Instant::now());
            }
            if let Some(stall) = stall.filter(|stall| since.elapsed() > *stall) {
                return Err(Stalled(stall));
            }
        }
        Ok(())
    }

    /// Returns once no producer has anything left to count, or after `limit`. For a closed ring, which keeps none of
    /// them waiting.
    pub(crate) fn await_producers(&self, limit: Duration) {
        let since = Instant::now();
        while self.promised.load(Acquire) > 0 && since.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The files hold so many bytes beside those of the records.
    pub(crate) fn note_overhead(&self, n_bytes: u64) {
        self.overhead.store(n_bytes, Relaxed);
    }

    /// Bytes of the files beside those of the records, as far as they are written.
    pub(crate) fn overhead(&self) -> u64 {
        self.overhead.load(Relaxed)
    }

    /// The writer got `n_bytes` out of the way.
    pub(crate) fn note_moved(&self, n_bytes: u64) {
        self.moved.fetch_add(n_bytes.max(1), Relaxed);
    }

    /// The writer sealed what an asker waits for.
    pub(crate) fn note_sealed(&self) {
        self.progress.lock().seals_done += 1;
        self.advanced.notify_all();
    }

    /// Whether the writer is through.
    pub(crate) fn is_finished(&self) -> bool {
        self.progress.lock().finished
    }

    /// Has all that was written deleted: by the writer when it is through, or by a thread where it is already.
    pub(crate) fn discard(&self) {
        let mut after = self.after.lock();
        after.is_discarded = true;
        if let Some(leavings) = after.leavings.take() {
            drop(after);
            leavings.delete_aside();
        }
    }

    /// The writer leaves these files behind. True where they were not wanted and are deleted.
    pub(crate) fn leave(&self, leavings: Leavings) -> bool {
        let mut after = self.after.lock();
        if !after.is_discarded {
            after.leavings = Some(leavings);
            return false;
        }
        drop(after);
        leavings.delete();
        true
    }

    /// The writer is through.
    pub(crate) fn note_finished(&self) {
        self.progress.lock().finished = true;
        self.advanced.notify_all();
    }
}

impl OnFull {
    fn patience(self) -> Patience {
        match self {
            Self::Busy | Self::Drop => Patience::None,
            Self::Wait(None) => Patience::Forever,
            Self::Wait(Some(limit)) => Patience::For(limit),
        }
    }

    fn refusal(self, no_room: NoRoom, draft: Option<Box<Draft>>) -> NotStaged {
        match (no_room, self, draft) {
            (NoRoom::Closed, ..) => NotStaged::Ended,
            (NoRoom::TooLarge, ..) => NotStaged::Lost(LARGER_THAN_RING.to_owned()),
            (NoRoom::Full, Self::Busy, Some(draft)) => NotStaged::Busy(draft),
            (NoRoom::Full, Self::Wait(Some(limit)), _) => NotStaged::Full(limit),
            (NoRoom::Full, ..) => NotStaged::Lost(RING_FULL.to_owned()),
        }
    }
}

#[expect(unsafe_code, reason = "copies into the ring")]
fn fill(room: &mut Reservation<'_, Piece>, block: &Block<'_>) {
    let (to, n_bytes) = room.bytes();
    assert_eq!(n_bytes, block.n_bytes(), "a block's room is made for it");
    // SAFETY: the room is exactly the block's, and ours until it is dropped. The view is readable as long as its maker
    // promised, which is longer than this call.
    unsafe { block.copy_to(to) };
}
