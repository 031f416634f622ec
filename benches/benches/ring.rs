//! The ring: what a range costs its producer and the writer together, without any bytes being copied.

use capture_core::ring::{Next, Patience, Ring};
use criterion::{Criterion, criterion_group, criterion_main};
use std::hint::black_box;

fn ring(c: &mut Criterion) {
    let ring: Ring<u64> = Ring::new(64 << 20).expect("memory");
    ring.warm(|| ());
    let mut group = c.benchmark_group("ring");
    for n_bytes in [0, 1024, 1 << 20] {
        group.bench_function(format!("reserve, publish, take, free {n_bytes} bytes"), |b| {
            b.iter(|| {
                let mut room = ring.reserve(n_bytes, || 7, Patience::None).expect("the ring is empty");
                if n_bytes > 0 {
                    black_box(room.bytes());
                }
                drop(room);
                match ring.next(None) {
                    Next::Range(range) => ring.free(range),
                    nothing => panic!("expected the range just published, found {nothing:?}"),
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, ring);
criterion_main!(benches);
