//! The byte ring between the model's threads and the writer.
//!
//! A producer reserves a contiguous range, copies into it without any lock, and publishes it by dropping the
//! reservation. The writer takes ranges in the order they were reserved, each as soon as it is published, and frees
//! them in that order. A range that does not fit before the ring's end skips to its beginning. When the ring has run
//! empty the next range starts at the beginning again, where the memory is still in the cache.
//!
//! One mutex guards the positions and the queue; it is held for a few loads and stores, never while bytes are copied
//! or written. Invariant: the writer sees a range only after its reservation was dropped, and its bytes are reserved
//! again only after [`Ring::free`]. tests/loom.rs explores every interleaving of it.

use crate::memory::Memory;
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Where ranges begin: a device's kernels write words of 8 bytes, and copy 16 at a time where they may.
const ALIGNMENT: u64 = 16;

/// The most ranges that may wait: bounds the queue where records are empty or tiny.
const MAX_SLOTS: usize = 16 * 1024;

/// The writer looks for ranges by itself, so that producers spare themselves the system call that would wake it, which
/// can take longer than all the rest of a record: they make it only once a quarter of the ring is used. It naps briefly
/// while it had work within [`LINGER`], and longer afterwards.
const LINGER: Duration = Duration::from_millis(50);
const SHORT_NAP: Duration = Duration::from_millis(2);
const LONG_NAP: Duration = Duration::from_millis(50);

/// A ring whose ranges carry a `T` to the writer.
pub struct Ring<T> {
    memory: Memory,
    state: Mutex<State<T>>,
    /// The writer waits here for ranges.
    work: Condvar,
    /// Producers wait here for room.
    room: Condvar,
}

struct State<T> {
    /// Where the next range starts, and where the oldest that is not freed does: bytes since the beginning of time.
    head: u64,
    tail: u64,
    slots: VecDeque<Slot<T>>,
    /// Number of the slot at the queue's front.
    front: u64,
    /// How many slots the writer has taken and not yet freed, from the front.
    taken: usize,
    writer: Writer,
    closed: bool,
}

#[derive(PartialEq)]
enum Writer {
    Busy,
    /// Looks again soon by itself.
    Napping,
    /// Waits to be woken: under loom, which knows no time.
    Asleep,
}

struct Slot<T> {
    at: usize,
    n_bytes: usize,
    /// Where `head` stood behind this range.
    end: u64,
    payload: Option<T>,
    published: bool,
}

/// How long a producer may wait for room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Not at all.
    None,
    /// So long from when there turned out to be none.
    For(Duration),
    /// For ever.
    Forever,
}

/// Why there is no range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// The ring stayed full as long as patience lasted.
    Full,
    /// The writer has gone.
    Closed,
    /// More than the ring will ever hold.
    TooLarge,
}

/// A range being filled. Dropping it publishes it.
#[must_use]
pub struct Reservation<'a, T> {
    ring: &'a Ring<T>,
    slot: u64,
    at: usize,
    n_bytes: usize,
}

/// A published range in the writer's hands, until it is given to [`Ring::free`].
#[derive(Debug)]
pub struct Range<T> {
    /// What the producer sent along.
    pub payload: T,
    at: usize,
    n_bytes: usize,
}

impl<T> Range<T> {
    /// Bytes of the range.
    #[must_use]
    pub fn n_bytes(&self) -> usize {
        self.n_bytes
    }
}

/// What [`Ring::next`] found.
#[derive(Debug)]
pub enum Next<T> {
    /// A published range.
    Range(Range<T>),
    /// Nothing until the deadline.
    Timeout,
    /// Closed, and everything published before has been taken.
    Closed,
}

impl<T> Ring<T> {
    /// A ring of `n_bytes`.
    ///
    /// # Errors
    /// Where the memory cannot be mapped.
    pub fn new(n_bytes: usize) -> std::io::Result<Self> {
        Ok(Self {
            memory: Memory::map(n_bytes)?,
            state: Mutex::new(State {
                head: 0,
                tail: 0,
                slots: VecDeque::new(),
                front: 0,
                taken: 0,
                writer: Writer::Busy,
                closed: false,
            }),
            work: Condvar::new(),
            room: Condvar::new(),
        })
    }

    /// Bytes of the ring.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.memory.n_bytes()
    }

    /// Has the kernel provide the memory now, unless the ring is closed meanwhile; `note` is called again and again.
    pub fn warm(&self, note: impl Fn()) {
        self.memory.warm(|| {
            note();
            !self.state.lock().closed
        });
    }

    /// Takes a range of `n_bytes` behind all earlier ones; its payload is made once there is room.
    ///
    /// # Errors
    /// Where there is no room within `patience`, or never will be.
    pub fn reserve(
        &self,
        n_bytes: usize,
        payload: impl FnOnce() -> T,
        patience: Patience,
    ) -> Result<Reservation<'_, T>, NoRoom> {
        if n_bytes > self.capacity() {
            return Err(NoRoom::TooLarge);
        }
        let mut state = self.state.lock();
        let mut deadline = None;
        let (start, end) = loop {
            if state.closed {
                return Err(NoRoom::Closed);
            }
            if let Some(range) = state.find(n_bytes as u64, self.capacity() as u64) {
                break range;
            }
            // The writer may be napping with less than a quarter used, where slots and not bytes have run out.
            self.work.notify_one();
            match patience {
                Patience::None => return Err(NoRoom::Full),
                Patience::Forever => state = self.room.wait(state),
                Patience::For(limit) => {
                    let now = Instant::now();
                    let deadline = *deadline.get_or_insert(now + limit);
                    if now >= deadline {
                        return Err(NoRoom::Full);
                    }
                    state = self.room.wait_for(state, deadline - now);
                }
            }
        };
        state.head = end;
        let at = (start % self.capacity() as u64) as usize;
        let slot = state.front + state.slots.len() as u64;
        state.slots.push_back(Slot { at, n_bytes, end, payload: Some(payload()), published: false });
        Ok(Reservation { ring: self, slot, at, n_bytes })
    }

    /// Puts a range of no bytes behind all earlier ones and wakes the writer for it, however full the ring is.
    /// False where the ring is closed.
    pub fn signal(&self, payload: T) -> bool {
        let mut state = self.state.lock();
        if state.closed {
            return false;
        }
        let (at, end) = (0, state.head);
        state.slots.push_back(Slot { at, n_bytes: 0, end, payload: Some(payload), published: true });
        self.wake(state, true);
        true
    }

    /// The writer's next range; waits for one until `deadline`.
    pub fn next(&self, deadline: Option<Instant>) -> Next<T> {
        let mut state = self.state.lock();
        // No clock is asked where there is work.
        let mut linger_until = None;
        loop {
            let taken = state.taken;
            if let Some(slot) = state.slots.get_mut(taken).filter(|slot| slot.published) {
                let (at, n_bytes) = (slot.at, slot.n_bytes);
                let payload = slot.payload.take().expect("a slot is taken once");
                state.taken += 1;
                state.writer = Writer::Busy;
                return Next::Range(Range { payload, at, n_bytes });
            }
            if state.closed && state.slots.len() == taken {
                return Next::Closed;
            }
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                state.writer = Writer::Busy;
                return Next::Timeout;
            }
            state.writer = if cfg!(loom) { Writer::Asleep } else { Writer::Napping };
            let lingers = now < *linger_until.get_or_insert(now + LINGER);
            let nap = if lingers { SHORT_NAP } else { LONG_NAP };
            let limit = deadline.map_or(nap, |deadline| nap.min(deadline - now));
            state = self.work.wait_for(state, limit);
        }
    }

    /// Gives the oldest taken range back to the producers.
    #[expect(clippy::needless_pass_by_value, reason = "whoever frees a range is done with it")]
    pub fn free<U>(&self, range: Range<U>) {
        let mut state = self.state.lock();
        let slot = state.slots.pop_front().expect("what was taken is queued until it is freed");
        debug_assert!(state.taken > 0 && slot.at == range.at, "ranges are freed in order");
        state.front += 1;
        state.taken -= 1;
        state.tail = slot.end;
        drop(state);
        self.room.notify_all();
    }

    /// Refuses every further range; those reserved before still reach the writer.
    pub fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        self.wake(state, true);
        self.room.notify_all();
    }

    /// Gives the memory back once the ring is closed and drained; it stays usable for nothing else.
    pub fn retire(&self) {
        let state = self.state.lock();
        if state.closed && state.slots.is_empty() {
            self.memory.cool();
        }
    }

    /// Address and length of all its memory.
    #[must_use]
    pub fn memory(&self) -> (*mut u8, usize) {
        (self.memory.at(0), self.capacity())
    }

    /// The address and length of a range that is being filled.
    #[must_use]
    pub fn bytes_at(&self, place: &Place) -> (*mut u8, usize) {
        (self.memory.at(place.at), place.n_bytes)
    }

    /// Publishes a range, with another payload where `replace` makes one of what it had.
    #[expect(clippy::needless_pass_by_value, reason = "a range is published once")]
    pub fn publish_place(&self, place: Place, replace: impl FnOnce(T) -> T) {
        {
            let mut state = self.state.lock();
            let index = (place.slot - state.front) as usize;
            let payload = state.slots[index].payload.take().expect("it is not taken before it is published");
            state.slots[index].payload = Some(replace(payload));
        }
        self.publish(place.slot);
    }

    /// The address and length of a taken range's bytes.
    #[must_use]
    pub fn bytes_of<U>(&self, range: &Range<U>) -> (*const u8, usize) {
        (self.memory.at(range.at), range.n_bytes)
    }

    fn publish(&self, slot: u64) {
        let mut state = self.state.lock();
        let index = (slot - state.front) as usize;
        state.slots[index].published = true;
        // The writer waits for the first that it has not taken; later ones it finds by itself.
        let first = index == state.taken;
        let urgent =
            (state.head - state.tail) * 4 >= self.capacity() as u64 || state.slots.len() * 4 >= MAX_SLOTS;
        if first || urgent {
            self.wake(state, urgent);
        }
    }

    fn wake(&self, mut state: MutexGuard<'_, State<T>>, urgent: bool) {
        let sleeps = match state.writer {
            Writer::Busy => false,
            Writer::Napping => urgent,
            Writer::Asleep => true,
        };
        if sleeps {
            state.writer = Writer::Busy;
            drop(state);
            self.work.notify_one();
        }
    }
}

impl<T> State<T> {
    /// Where a range of `n` bytes can start and end in a ring of `capacity`.
    fn find(&mut self, n: u64, capacity: u64) -> Option<(u64, u64)> {
        if self.slots.len() >= MAX_SLOTS {
            return None;
        }
        if self.slots.is_empty() {
            // Nobody holds any byte: start over where the memory is warm.
            self.head = self.head.next_multiple_of(capacity);
            self.tail = self.head;
        }
        let lap = self.head - self.head % capacity;
        let at = (self.head % capacity).next_multiple_of(ALIGNMENT);
        let start = if at + n > capacity { lap + capacity } else { lap + at };
        let end = start + n;
        (end - self.tail <= capacity).then_some((start, end))
    }
}

impl<T> Reservation<'_, T> {
    /// The range without the reference to its ring.
    #[must_use]
    pub fn into_place(self) -> Place {
        let place = Place { slot: self.slot, at: self.at, n_bytes: self.n_bytes };
        std::mem::forget(self);
        place
    }

    /// The range's address and length: its holder's alone until it is dropped.
    #[must_use]
    pub fn bytes(&mut self) -> (*mut u8, usize) {
        (self.ring.memory.at(self.at), self.n_bytes)
    }
}

/// A reserved range that is published by [`Ring::publish_place`], for who holds its ring otherwise than by a reference.
#[derive(Debug)]
pub struct Place {
    slot: u64,
    at: usize,
    n_bytes: usize,
}

impl<T> Drop for Reservation<'_, T> {
    fn drop(&mut self) {
        self.ring.publish(self.slot);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
