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

    /// Has the kernel provide the memory now.
    pub fn warm(&self) {
        self.memory.warm();
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
        let at = self.head % capacity;
        let start = if at + n > capacity { self.head + (capacity - at) } else { self.head };
        let end = start + n;
        (end - self.tail <= capacity).then_some((start, end))
    }
}

impl<T> Reservation<'_, T> {
    /// The range's address and length: its holder's alone until it is dropped.
    #[must_use]
    pub fn bytes(&mut self) -> (*mut u8, usize) {
        (self.ring.memory.at(self.at), self.n_bytes)
    }
}

impl<T> Drop for Reservation<'_, T> {
    fn drop(&mut self) {
        self.ring.publish(self.slot);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fill(reservation: &mut Reservation<'_, u8>, byte: u8) {
        let (to, n) = reservation.bytes();
        #[expect(unsafe_code, reason = "fills its own range")]
        // SAFETY: the reservation's own bytes.
        unsafe {
            to.write_bytes(byte, n);
        };
    }

    fn bytes<'a>(ring: &'a Ring<u8>, range: &Range<u8>) -> &'a [u8] {
        let (from, n) = ring.bytes_of(range);
        #[expect(unsafe_code, reason = "reads a taken range")]
        // SAFETY: taken and not yet freed by the caller.
        unsafe {
            std::slice::from_raw_parts(from, n)
        }
    }

    fn now() -> Option<Instant> {
        Some(Instant::now())
    }

    #[test]
    fn ranges_come_in_the_order_of_reservation_not_of_publication() {
        let ring = Ring::new(4096).unwrap();
        let first = ring.reserve(10, || 1u8, Patience::None).unwrap();
        drop(ring.reserve(10, || 2, Patience::None).unwrap());
        assert!(matches!(ring.next(now()), Next::Timeout), "the first is not published");
        drop(first);
        let Next::Range(a) = ring.next(now()) else { panic!("published") };
        let Next::Range(b) = ring.next(now()) else { panic!("published") };
        assert_eq!((a.payload, b.payload), (1, 2));
    }

    #[test]
    fn a_range_that_does_not_fit_the_end_starts_at_the_beginning() {
        let ring = Ring::new(4096).unwrap();
        drop(ring.reserve(1000, || 1u8, Patience::None).unwrap());
        drop(ring.reserve(3000, || 2, Patience::None).unwrap());
        let Next::Range(first) = ring.next(now()) else { panic!() };
        ring.free(first);
        assert_eq!(
            ring.reserve(1001, || 3, Patience::None).err(),
            Some(NoRoom::Full),
            "96 at the end, 1000 in front"
        );
        assert_eq!(ring.reserve(1000, || 3, Patience::None).unwrap().at, 0);
        assert_eq!(ring.reserve(1, || 4, Patience::None).err(), Some(NoRoom::Full));
    }

    #[test]
    fn only_a_quarter_of_the_ring_wakes_a_napping_writer() {
        let ring = Ring::new(4096).unwrap();
        ring.state.lock().writer = Writer::Napping;
        drop(ring.reserve(1023, || 1u8, Patience::None).unwrap());
        assert!(ring.state.lock().writer == Writer::Napping, "it will look by itself");
        drop(ring.reserve(1, || 2, Patience::None).unwrap());
        assert!(ring.state.lock().writer == Writer::Busy, "1024 of 4096 bytes");
    }

    #[test]
    fn a_napping_writer_finds_what_nobody_woke_it_for() {
        let ring = Ring::new(4096).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| ring.next(None));
            while ring.state.lock().writer != Writer::Napping {
                std::thread::yield_now();
            }
            drop(ring.reserve(1, || 7u8, Patience::None).unwrap());
            assert!(matches!(writer.join().unwrap(), Next::Range(range) if range.payload == 7));
        });
    }

    #[test]
    fn an_empty_ring_starts_over() {
        let ring = Ring::new(4096).unwrap();
        drop(ring.reserve(1000, || 1u8, Patience::None).unwrap());
        let Next::Range(first) = ring.next(now()) else { panic!() };
        ring.free(first);
        assert_eq!(ring.reserve(4096, || 2, Patience::None).unwrap().at, 0);
    }

    #[test]
    fn what_can_never_fit_is_told_from_what_does_not_now() {
        let ring = Ring::<u8>::new(4096).unwrap();
        assert_eq!(ring.reserve(4097, || 1, Patience::Forever).err(), Some(NoRoom::TooLarge));
        ring.close();
        assert_eq!(ring.reserve(1, || 1, Patience::Forever).err(), Some(NoRoom::Closed));
        assert!(matches!(ring.next(None), Next::Closed));
    }

    #[test]
    fn patience_ends_at_its_deadline() {
        let ring = Ring::new(4096).unwrap();
        drop(ring.reserve(4096, || 1u8, Patience::None).unwrap());
        let start = Instant::now();
        let patience = Patience::For(Duration::from_millis(30));
        assert_eq!(ring.reserve(1, || 2, patience).err(), Some(NoRoom::Full));
        assert!(start.elapsed() >= Duration::from_millis(30));
    }

    #[test]
    fn the_queue_is_bounded_where_ranges_are_empty() {
        let ring = Ring::new(4096).unwrap();
        for _ in 0..MAX_SLOTS {
            drop(ring.reserve(0, || 1u8, Patience::None).unwrap());
        }
        assert_eq!(ring.reserve(0, || 1, Patience::None).err(), Some(NoRoom::Full));
        assert!(ring.signal(2), "a signal always passes");
    }

    #[test]
    fn bytes_pass_unharmed_between_threads() {
        let ring = Ring::new(4096).unwrap();
        std::thread::scope(|scope| {
            for worker in 0..3u8 {
                let ring = &ring;
                scope.spawn(move || {
                    for i in 0..2000usize {
                        let mut range = ring.reserve(i % 1300, move || worker, Patience::Forever).unwrap();
                        fill(&mut range, worker);
                    }
                });
            }
            let mut seen = [0usize; 3];
            while seen != [2000; 3] {
                let Next::Range(range) = ring.next(None) else { panic!("nobody closes it") };
                let worker = range.payload;
                assert_eq!(range.n_bytes, seen[worker as usize] % 1300, "each thread's ranges stay in order");
                assert!(bytes(&ring, &range).iter().all(|b| *b == worker));
                seen[worker as usize] += 1;
                ring.free(range);
            }
        });
    }

    proptest! {
        /// Against a model: a list of ranges, none of which may overlap.
        #[test]
        fn live_ranges_never_overlap(moves in prop::collection::vec((0usize..5000, any::<bool>()), 1..200)) {
            let ring = Ring::new(4096).unwrap();
            let mut live: VecDeque<(usize, usize)> = VecDeque::new();
            for (n, produce) in moves {
                if produce {
                    if let Ok(range) = ring.reserve(n, || 0u8, Patience::None) {
                        prop_assert!(range.at + n <= 4096);
                        for (at, len) in &live {
                            prop_assert!(range.at + n <= *at || at + len <= range.at || n == 0 || *len == 0);
                        }
                        live.push_back((range.at, n));
                    } else {
                        prop_assert!(n > 4096 || !live.is_empty(), "an empty ring takes what fits");
                    }
                } else if let Some((at, n)) = live.pop_front() {
                    let Next::Range(range) = ring.next(now()) else { panic!("published") };
                    prop_assert_eq!((range.at, range.n_bytes), (at, n));
                    ring.free(range);
                }
            }
        }
    }
}
