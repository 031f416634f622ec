//! A tap of Rust code: off, beside a bare relaxed load; on, the fixed cost of a record and its copy.
#![expect(unsafe_code, reason = "views of the bench's own memory")]

use capture_core::control::{self, Aim};
use capture_core::{Dtype, Element, Tap, TensorView};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

static TAP: Tap = Tap::new("layers.0.attn.q");
static WORD: AtomicU32 = AtomicU32::new(0);

#[cold]
#[inline(never)]
fn never() {
    panic!("the word is 0");
}

fn view(bytes: &[u8]) -> TensorView<'_> {
    // A shape and strides of one dimension, which live as long as the bytes: one per length.
    let shape: &'static [u64] = vec![bytes.len() as u64].leak();
    // SAFETY: exactly these bytes, borrowed as long as the view.
    unsafe { TensorView::new(bytes.as_ptr(), Element::Plain(Dtype::U8), shape, &[1], "cpu") }
        .expect("bytes are a tensor")
}

fn off(c: &mut Criterion) {
    let bytes = [0u8; 64];
    let view = view(&bytes);
    let mut group = c.benchmark_group("tap off");
    group.bench_function("a bare load and branch", |b| {
        b.iter(|| {
            if black_box(&WORD).load(Relaxed) != 0 {
                never();
            }
        });
    });
    group.bench_function("Tap::capture", |b| b.iter(|| black_box(&TAP).capture(black_box(&view))));
    group.finish();
}

fn on(c: &mut Criterion) {
    let dir = tempfile::tempdir().expect("a directory for runs");
    control::start(|name| (name == "TPCAPTURE_BUDGET").then(|| "1000GiB".into()));
    let aim = Aim { run: Some("bench".into()), ..Aim::everything(dir.path().to_owned()) };
    control::switch_on(aim).expect("nothing else is on");
    let mut group = c.benchmark_group("tap on");
    group.sample_size(10);
    for n_bytes in [1 << 10, 1 << 20] {
        let bytes = vec![1u8; n_bytes];
        let view = view(&bytes);
        group.throughput(Throughput::Bytes(n_bytes as u64));
        // The writer is let catch up between batches: this is the caller's time, not the disk's.
        group.bench_function(format!("{n_bytes} bytes"), |b| {
            b.iter_custom(|rounds| {
                let mut spent = std::time::Duration::ZERO;
                let batch = ((64 << 20) / n_bytes as u64).min(2048);
                for first in (0..rounds).step_by(batch as usize) {
                    let start = std::time::Instant::now();
                    for _ in first..rounds.min(first + batch) {
                        TAP.try_capture(black_box(&view)).expect("there is room");
                    }
                    spent += start.elapsed();
                    assert_eq!(control::flush(), None, "the disk takes it");
                }
                spent
            });
        });
    }
    group.finish();
    assert_eq!(control::switch_off("bench over"), None, "sealed");
}

criterion_group!(benches, off, on);
criterion_main!(benches);
