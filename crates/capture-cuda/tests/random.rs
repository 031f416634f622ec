//! Ten thousand captures in random order over four streams, two devices and three threads, into rings that are too small for
//! them: no byte is wrong. `TEST_CUDA_SEED` repeats one; `TEST_CUDA_CAPTURES` says how many.

#![expect(clippy::unwrap_used, reason = "a test")]

mod sim;

use capture_core::{Dtype, Element};
use proptest::prelude::Rng;
use proptest::test_runner::{RngAlgorithm, TestRng};
use sim::{Capture, Tensor, call, enter, is_real, new_stream, overwrite, upload};
use std::collections::BTreeMap;

const THREADS: usize = 3;
const STREAMS: usize = 4;

fn from_env(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A tensor in the first `n_bytes` of a buffer.
struct Shape {
    item: usize,
    shape: Vec<u64>,
    strides: Vec<i64>,
    n_bytes: usize,
}

const BUFFER: usize = 1 << 15;

fn shape(random: &mut TestRng) -> Shape {
    std::iter::repeat_with(|| any_shape(random)).find(|tensor| tensor.n_bytes <= BUFFER).unwrap()
}

fn any_shape(random: &mut TestRng) -> Shape {
    let item = 1usize << (random.next_u32() % 4);
    let sizes: Vec<u64> = (0..random.next_u32() % 4).map(|_| u64::from(random.next_u32() % 24 + 1)).collect();
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_cached_key(|_| random.next_u32());
    // A permuted layout, some dimensions wider than need be, some repeated.
    let (mut strides, mut step) = (vec![0i64; sizes.len()], 1i64);
    for dim in order {
        let wide = i64::from(random.next_u32().is_multiple_of(3)) + 1;
        if !random.next_u32().is_multiple_of(8) {
            strides[dim] = step * wide;
            step *= sizes[dim] as i64 * wide;
        }
    }
    let last: i64 = sizes.iter().zip(&strides).map(|(size, stride)| (*size as i64 - 1) * stride).sum();
    Shape { item, n_bytes: (last as usize + 1) * item, shape: sizes, strides }
}

/// Every index in C order, item by item.
fn packed(memory: &[u8], tensor: &Shape) -> Vec<u8> {
    let mut out = Vec::new();
    for flat in 0..tensor.shape.iter().product::<u64>() {
        let (mut rest, mut at) = (flat, 0);
        for (size, stride) in tensor.shape.iter().zip(&tensor.strides).rev() {
            at += (rest % size) as i64 * stride;
            rest /= size;
        }
        let at = at as usize * tensor.item;
        out.extend_from_slice(&memory[at..at + tensor.item]);
    }
    out
}

fn element(item: usize) -> Element {
    Element::Plain([Dtype::U8, Dtype::BF16, Dtype::F32, Dtype::I64][item.trailing_zeros() as usize])
}

fn one_thread(
    thread: usize,
    seed: u64,
    n: usize,
    devices: usize,
    streams: &[Vec<usize>],
) -> BTreeMap<String, Vec<u8>> {
    let mut random =
        TestRng::from_seed(RngAlgorithm::ChaCha, &[(seed as u8).wrapping_add(thread as u8 * 31); 32]);
    let mut expected = BTreeMap::new();
    let mut fill = random.next_u64();
    // The model's buffers, overwritten again and again in the order of one stream each.
    let buffers: Vec<Vec<usize>> = (0..devices)
        .map(|device| {
            enter(device as i32);
            (0..STREAMS).map(|_| upload(&[0; BUFFER])).collect()
        })
        .collect();
    for i in 0..n {
        let device = random.next_u32() as usize % devices;
        let lane = random.next_u32() as usize % STREAMS;
        let (stream, at) = (streams[device][lane], buffers[device][lane]);
        let tensor = shape(&mut random);
        let memory: Vec<u8> = (0..tensor.n_bytes)
            .map(|_| {
                fill = fill.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (fill >> 33) as u8
            })
            .collect();
        enter(device as i32);
        // Pageable memory is copied at the call.
        call!(cuMemcpyHtoDAsync_v2(at, memory.as_ptr(), memory.len(), stream));
        let name = format!("t{thread}.{i}");
        let captured = Tensor {
            device: device as i32,
            stream,
            at,
            element: element(tensor.item),
            shape: &tensor.shape,
            strides: &tensor.strides,
            ring_bytes: 64 << 10,
        };
        captured.capture(&name).unwrap();
        overwrite(at, tensor.n_bytes, stream);
        expected.insert(name, packed(&memory, &tensor));
    }
    expected
}

/// One test, as switch and taps belong to the process.
#[test]
fn no_byte_is_wrong() {
    let seed = from_env("TEST_CUDA_SEED", std::process::id() as usize) as u64;
    let n = from_env("TEST_CUDA_CAPTURES", 10_000) / THREADS;
    println!("TEST_CUDA_SEED={seed}");
    let devices = if is_real() { 1 } else { 2 };
    let streams: Vec<Vec<usize>> = (0..devices)
        .map(|device| {
            enter(device as i32);
            (0..STREAMS).map(|_| new_stream()).collect()
        })
        .collect();
    if !is_real() {
        call!(cuda_sim_seed(seed as usize));
        call!(cuda_sim_delay_us(60));
    }
    let capture = Capture::begin("*", &[("TPCAPTURE_RING", "1MiB")]);
    let expected: BTreeMap<String, Vec<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let streams = &streams;
                scope.spawn(move || one_thread(t, seed, n, devices, streams))
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let run = capture.end();
    assert_eq!(run.manifest.counters.lost, 0, "{:?}", run.manifest.losses);
    assert_eq!(run.tensors.len(), expected.len());
    let wrong: Vec<_> =
        expected.iter().filter(|(name, bytes)| run.tensors[&format!("step0/{name}")] != **bytes).collect();
    assert!(wrong.is_empty(), "seed {seed}: {} wrong, first {}", wrong.len(), wrong[0].0);
}
