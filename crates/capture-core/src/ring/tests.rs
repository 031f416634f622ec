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
