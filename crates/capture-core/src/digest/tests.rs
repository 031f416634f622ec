use super::*;
use crate::view::Element;
use safetensors::Dtype;

/// Fifteen lines that know nothing of chunks and lanes.
fn naive_hash(bytes: &[u8]) -> u64 {
    let mix = |mut z: u64| {
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d049bb133111eb);
        z ^ (z >> 31)
    };
    let mut sum = 0u64;
    for (i, word) in bytes.chunks(8).enumerate() {
        let mut padded = [0; 8];
        padded[..word.len()].copy_from_slice(word);
        sum = sum.wrapping_add(mix(u64::from_le_bytes(padded) ^ mix(i as u64)));
    }
    mix(sum ^ bytes.len() as u64)
}

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

fn view<'a>(memory: &'a [u8], element: Element, shape: &'a [u64], strides: &'a [i64]) -> TensorView<'a> {
    // SAFETY: every test gives a shape whose items lie in `memory`.
    unsafe { TensorView::new(memory.as_ptr(), element, shape, strides, "cpu") }.unwrap()
}

#[test]
fn a_hash_is_that_of_its_naive_twin_at_any_length() {
    for n in [0, 1, 7, 8, 9, 63, 64, 65, 1000, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 77] {
        let memory = bytes(n);
        let found = hash(&view(&memory, Element::Plain(Dtype::U8), &[n as u64], &[1]));
        assert_eq!(found, Hash(naive_hash(&memory)), "{n} bytes");
    }
}

/// By the formula in Python, of `b""` and `b"\x01\x00\x02"`.
#[test]
fn hashes_are_as_documented() {
    assert_eq!(hash(&view(&[], Element::Plain(Dtype::F32), &[0], &[1])), Hash(0));
    assert_eq!(hash(&view(&[1, 0, 2], Element::Plain(Dtype::U8), &[3], &[1])), Hash(0x4638e8a693b63b13));
}

/// A transposed, reversed or expanded tensor has the figures of its C-ordered copy.
#[test]
fn strides_do_not_show() {
    let memory = bytes(2 * 300 * 500);
    let element = Element::Plain(Dtype::I16);
    let strided = view(&memory, element, &[500, 300], &[1, 500]);
    let mut packed = vec![std::mem::MaybeUninit::new(0u8); memory.len()];
    crate::pack::pack(&strided, &mut packed);
    // SAFETY: all of it is initialised.
    let packed: Vec<u8> = packed.into_iter().map(|b| unsafe { b.assume_init() }).collect();
    assert_eq!(hash(&strided), Hash(naive_hash(&packed)));
    assert_eq!(stats(&strided), stats_of_bytes(Dtype::I16, &packed));
    let ones = view(&[3, 0], element, &[70_000], &[0]);
    let finite = Finite { min: 3.0, max: 3.0, mean: 3.0, rms: 3.0, absmax: 3.0 };
    assert_eq!(
        stats(&ones),
        Stats { n: 70_000, nan: 0, pos_inf: 0, neg_inf: 0, zero: 0, finite: Some(finite) }
    );
}

#[test]
fn classes_are_counted_and_left_out() {
    let numbers =
        [f32::NAN, f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, 3.0, -4.0, f32::NAN, 1.0];
    let memory: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let found = stats(&view(&memory, Element::Plain(Dtype::F32), &[10], &[1]));
    // Five of them are finite: their sum is 0, that of their squares 26.
    let finite = Finite { min: -4.0, max: 3.0, mean: 0.0, rms: 5.2f64.sqrt(), absmax: 4.0 };
    assert_eq!(found, Stats { n: 10, nan: 2, pos_inf: 2, neg_inf: 1, zero: 2, finite: Some(finite) });
    let none = stats(&view(&memory, Element::Plain(Dtype::F32), &[4], &[1]));
    assert_eq!(none, Stats { n: 4, nan: 1, pos_inf: 2, neg_inf: 1, zero: 0, finite: None });
    assert!(none.is_of(4) && !none.is_of(5) && !Stats { nan: 5, ..none }.is_of(4));
}

#[test]
fn squares_neither_overflow_nor_vanish() {
    for magnitude in [1e300, 1e-300, f64::MAX, 5e-324] {
        let memory: Vec<u8> = [magnitude, magnitude].iter().flat_map(|x| x.to_le_bytes()).collect();
        let finite = stats(&view(&memory, Element::Plain(Dtype::F64), &[2], &[1])).finite.unwrap();
        assert_eq!((finite.mean, finite.rms), (magnitude, magnitude));
    }
}

/// One after the other the error of the sum is 1e-5, and that of the mean 2e-12.
#[test]
fn sums_are_pairwise() {
    let tenth = 0.1f64.to_le_bytes();
    let found = stats(&view(&tenth, Element::Plain(Dtype::F64), &[1 << 22], &[0])).finite.unwrap();
    assert!((found.mean - 0.1).abs() < 1e-15 && (found.rms - 0.1).abs() < 1e-15, "{found:?}");
}
