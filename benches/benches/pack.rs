//! Packing a tensor into C order, beside memcpy of as many bytes.
#![expect(unsafe_code, reason = "views of the bench's own memory")]

use capture_core::pack::pack;
use capture_core::{Dtype, Element, TensorView};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::mem::MaybeUninit;

/// A layout of 16-bit items, and what it is.
struct Layout {
    name: &'static str,
    shape: &'static [u64],
    strides: &'static [i64],
}

const LAYOUTS: [Layout; 5] = [
    Layout { name: "contiguous", shape: &[2048, 1024], strides: &[1024, 1] },
    Layout { name: "rows of a wider matrix", shape: &[2048, 1024], strides: &[3072, 1] },
    Layout { name: "transposed", shape: &[2048, 1024], strides: &[1, 2048] },
    Layout { name: "transposed, odd sizes", shape: &[1999, 1049], strides: &[1, 2001] },
    Layout { name: "every third item", shape: &[2048, 1024], strides: &[3072, 3] },
];

fn layouts(c: &mut Criterion) {
    let items = vec![1u16; 2048 * 3072];
    let mut room = vec![MaybeUninit::<u8>::new(0); 4 << 20];
    let mut group = c.benchmark_group("pack 4 MiB of 16-bit items");
    group.throughput(Throughput::Bytes(4 << 20));
    let bytes: Vec<u8> = vec![1; 4 << 20];
    group.bench_function("memcpy", |b| {
        b.iter(|| {
            let (from, to) = (black_box(&bytes), black_box(&mut room));
            // SAFETY: as many bytes in both.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr().cast(), from.len()) };
        });
    });
    for Layout { name, shape, strides } in LAYOUTS {
        // SAFETY: every layout reaches at most 2048 × 3072 items.
        let view = unsafe {
            TensorView::new(items.as_ptr().cast(), Element::Plain(Dtype::BF16), shape, strides, "cpu")
        };
        let view = view.expect("a layout of the items");
        let n_bytes = view.n_bytes();
        let room = &mut room[..n_bytes as usize];
        group.throughput(Throughput::Bytes(n_bytes));
        group.bench_function(name, |b| b.iter(|| pack(black_box(&view), black_box(room))));
    }
    group.finish();
}

criterion_group!(benches, layouts);
criterion_main!(benches);
