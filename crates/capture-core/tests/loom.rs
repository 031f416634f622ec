//! The ring in every interleaving of its producers and its writer that loom can make.
//!
//! The ring's bytes are mirrored by cells that loom watches, one for each: two parties at one byte with nothing that
//! orders them are a data race, which fails the model, as does a party that nobody wakes.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p capture-core --release --target-dir target/loom --test loom`
#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "a test")]
#![expect(unsafe_code, reason = "loom's cells are read and written through pointers")]

use capture_core::ring::{Next, NoRoom, Patience, Range, Reservation, Ring};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use loom::thread;
use std::time::Duration;

/// A ring, and a cell for each of its bytes.
struct Model {
    ring: Ring<usize>,
    cells: Vec<UnsafeCell<u8>>,
    /// How many ranges were reserved: the next one's payload.
    reserved: AtomicUsize,
}

// SAFETY: what two threads do with a cell at a time is what the models find out.
unsafe impl Sync for Model {}

impl Model {
    fn new(n_bytes: usize) -> Arc<Self> {
        let cells = (0..n_bytes).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { ring: Ring::new(n_bytes).unwrap(), cells, reserved: AtomicUsize::new(0) })
    }

    /// The cells of a range. The ring's memory begins with a page.
    fn cells(&self, (address, n_bytes): (*const u8, usize)) -> &[UnsafeCell<u8>] {
        &self.cells[address as usize % 4096..][..n_bytes]
    }

    fn reserve(&self, n_bytes: usize, patience: Patience) -> Result<Reservation<'_, usize>, NoRoom> {
        self.ring.reserve(n_bytes, || self.reserved.fetch_add(1, Relaxed), patience)
    }

    /// Copies `byte` into a range of `n_bytes` and publishes it.
    fn produce(&self, n_bytes: usize, byte: u8) -> Result<(), NoRoom> {
        let mut range = self.reserve(n_bytes, Patience::Forever)?;
        let (address, n_bytes) = range.bytes();
        for cell in self.cells((address.cast_const(), n_bytes)) {
            // SAFETY: loom checks that nobody else is at it.
            cell.with_mut(|to| unsafe { *to = byte });
        }
        Ok(())
    }

    /// The next range: its number in the order of reservation, and the byte that fills it, if any.
    fn consume(&self) -> Option<(usize, Option<u8>)> {
        match self.ring.next(None) {
            Next::Range(range) => {
                let found = (range.payload, self.read(&range));
                self.ring.free(range);
                Some(found)
            }
            Next::Closed => None,
            Next::Timeout => unreachable!("there is no deadline"),
        }
    }

    fn read(&self, range: &Range<usize>) -> Option<u8> {
        let cells = self.cells(self.ring.bytes_of(range));
        // SAFETY: loom checks that nobody writes meanwhile.
        let bytes: Vec<u8> = cells.iter().map(|cell| cell.with(|from| unsafe { *from })).collect();
        assert!(bytes.windows(2).all(|pair| pair[0] == pair[1]), "a range of two producers: {bytes:?}");
        bytes.first().copied()
    }
}

#[track_caller]
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    // Faults of order show within two or three switches at unlucky places; all switches would take days.
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn two_producers_never_meet_and_the_writer_sees_whole_ranges_in_order() {
    check(|| {
        // Three bytes for two ranges of two: the second waits, and skips the ring's end.
        let model = Model::new(3);
        let producers: Vec<_> = [11, 22]
            .into_iter()
            .map(|byte| {
                let model = Arc::clone(&model);
                thread::spawn(move || model.produce(2, byte).unwrap())
            })
            .collect();
        let found = [model.consume().unwrap(), model.consume().unwrap()];
        assert_eq!(found.map(|(number, _)| number), [0, 1]);
        let mut bytes = found.map(|(_, byte)| byte.unwrap());
        bytes.sort_unstable();
        assert_eq!(bytes, [11, 22]);
        for producer in producers {
            producer.join().unwrap();
        }
    });
}

#[test]
fn ranges_published_out_of_order_reach_the_writer_in_the_order_of_reservation() {
    check(|| {
        let model = Model::new(4);
        let late = Arc::clone(&model);
        let first = thread::spawn(move || late.produce(1, 1).unwrap());
        let early = Arc::clone(&model);
        let second = thread::spawn(move || early.produce(1, 1).unwrap());
        for number in 0..2 {
            assert_eq!(model.consume(), Some((number, Some(1))));
        }
        first.join().unwrap();
        second.join().unwrap();
    });
}

#[test]
fn a_producer_that_finds_the_ring_full_goes_on_when_it_is_freed() {
    check(|| {
        let model = Model::new(2);
        let producer = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                for byte in [1, 2, 3] {
                    model.produce(2, byte).unwrap();
                }
            })
        };
        for i in 0..3 {
            assert_eq!(model.consume(), Some((i, Some(i as u8 + 1))));
        }
        producer.join().unwrap();
    });
}

#[test]
fn a_producer_with_limited_patience_goes_on_when_the_ring_is_freed() {
    check(|| {
        let model = Model::new(1);
        model.produce(1, 1).unwrap();
        let producer = {
            let model = Arc::clone(&model);
            thread::spawn(move || drop(model.reserve(1, Patience::For(Duration::from_secs(3600))).unwrap()))
        };
        assert_eq!(model.consume(), Some((0, Some(1))));
        assert_eq!(model.consume().map(|(number, _)| number), Some(1));
        producer.join().unwrap();
    });
}

#[test]
fn closing_wakes_a_producer_that_waits_and_what_was_published_is_still_read() {
    check(|| {
        let model = Model::new(1);
        model.produce(1, 1).unwrap();
        let producer = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.produce(1, 2))
        };
        model.ring.close();
        // Nothing was freed before the ring was closed.
        assert_eq!(producer.join().unwrap(), Err(NoRoom::Closed));
        assert_eq!(model.consume(), Some((0, Some(1))));
        assert_eq!(model.consume(), None);
    });
}

#[test]
fn closing_wakes_the_writer_and_a_range_reserved_before_reaches_it() {
    check(|| {
        let model = Model::new(2);
        let producer = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.produce(1, 7))
        };
        let closer = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.ring.close())
        };
        let found = model.consume();
        match producer.join().unwrap() {
            Ok(()) => {
                assert_eq!(found, Some((0, Some(7))));
                assert_eq!(model.consume(), None);
            }
            Err(error) => {
                assert_eq!(error, NoRoom::Closed);
                assert_eq!(found, None);
            }
        }
        closer.join().unwrap();
    });
}

#[test]
fn a_signal_passes_a_full_ring_behind_what_is_in_it() {
    check(|| {
        let model = Model::new(1);
        let producer = {
            let model = Arc::clone(&model);
            thread::spawn(move || {
                model.produce(1, 5).unwrap();
                assert!(model.ring.signal(99));
            })
        };
        assert_eq!(model.consume(), Some((0, Some(5))));
        assert_eq!(model.consume(), Some((99, None)));
        producer.join().unwrap();
    });
}
