//! Stored bytes as numbers: every dtype of the format to `f64`.
//!
//! All but I64 and U64 fit an `f64` exactly; those are rounded above 2^53, so integers are compared by their bytes.
//! The small floats come from tables that are computed here from the formats' definitions:
//! FP8 <https://arxiv.org/abs/2209.05433>, the FNUZ forms <https://arxiv.org/abs/2206.02915>, and E8M0, FP6 and FP4 of the
//! OCP Microscaling Formats v1.0.

use crate::{
    float::Float,
    vectors::{self, Loop},
};
use half::{f16, slice::HalfFloatSliceExt as _};
use safetensors::Dtype;

/// Numbers per element: 2 for complex, real part first, else 1.
#[must_use]
pub fn numbers_per_element(dtype: Dtype) -> usize {
    if dtype == Dtype::C64 { 2 } else { 1 }
}

/// The smallest run of elements that fills whole bytes: so many elements, so many bytes. Data may be cut into chunks at
/// its multiples.
#[must_use]
pub fn granule(dtype: Dtype) -> (usize, usize) {
    match dtype {
        Dtype::F4 => (2, 1),
        Dtype::F6_E2M3 | Dtype::F6_E3M2 => (4, 3),
        _ => (1, dtype.bitsize() / 8),
    }
}

/// What numbers are decoded to. All floats but F64 fit an f32 exactly.
pub trait Number: Copy + Default + 'static {
    /// From an f32, which fits.
    fn narrow(x: f32) -> Self;
    /// The nearest to an f64.
    fn of(x: f64) -> Self;
    /// As an f64, which fits.
    fn wide(self) -> f64;
}

impl Number for f64 {
    #[inline(always)]
    fn narrow(x: f32) -> Self {
        Self::from(x)
    }

    #[inline(always)]
    fn of(x: f64) -> Self {
        x
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }
}

impl Number for f32 {
    #[inline(always)]
    fn narrow(x: f32) -> Self {
        x
    }

    #[inline(always)]
    fn of(x: f64) -> Self {
        x as Self
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }
}

/// Whether every number of the dtype fits an f32.
#[must_use]
pub fn fits_f32(dtype: Dtype) -> bool {
    Float::of(dtype).is_some_and(|float| float.precision <= 24 && float.min_exponent >= -127)
}

/// A stored integer or boolean, of at most 8 little-endian bytes.
#[must_use]
pub fn integer(dtype: Dtype, bytes: &[u8]) -> i128 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let shift = 64 - 8 * bytes.len();
    match dtype {
        Dtype::I8 | Dtype::I16 | Dtype::I32 | Dtype::I64 => {
            i128::from(i64::from_le_bytes(wide) << shift >> shift)
        }
        _ => i128::from(u64::from_le_bytes(wide)),
    }
}

/// Appends the numbers of all whole elements.
pub fn decode(dtype: Dtype, bytes: &[u8], out: &mut Vec<f64>) {
    let (elements, n_bytes) = granule(dtype);
    let (start, count) = (out.len(), bytes.len() / n_bytes * elements * numbers_per_element(dtype));
    out.resize(start + count, 0.0);
    let written = decode_into(dtype, bytes, &mut out[start..]);
    out.truncate(start + written);
}

/// Writes the numbers of as many whole [granules](granule) as both `bytes` and `out` hold, and says how many numbers
/// that were. Bytes may begin at any address.
pub fn decode_into<T: Number>(dtype: Dtype, bytes: &[u8], out: &mut [T]) -> usize {
    vectors::run(Decode { dtype, bytes, out })
}

struct Decode<'d, T> {
    dtype: Dtype,
    bytes: &'d [u8],
    out: &'d mut [T],
}

impl<T: Number> Loop for Decode<'_, T> {
    type Found = usize;

    #[inline(always)]
    fn run(self) -> usize {
        let Self { dtype, bytes, out } = self;
        match dtype {
            Dtype::BOOL => each(bytes, out, |[b]| T::of(f64::from(u8::from(b != 0)))),
            Dtype::U8 => each(bytes, out, |[b]| T::of(f64::from(b))),
            Dtype::I8 => each(bytes, out, |b| T::of(f64::from(i8::from_le_bytes(b)))),
            Dtype::U16 => each(bytes, out, |b| T::of(f64::from(u16::from_le_bytes(b)))),
            Dtype::I16 => each(bytes, out, |b| T::of(f64::from(i16::from_le_bytes(b)))),
            Dtype::U32 => each(bytes, out, |b| T::of(f64::from(u32::from_le_bytes(b)))),
            Dtype::I32 => each(bytes, out, |b| T::of(f64::from(i32::from_le_bytes(b)))),
            Dtype::U64 => each(bytes, out, |b| T::of(u64::from_le_bytes(b) as f64)),
            Dtype::I64 => each(bytes, out, |b| T::of(i64::from_le_bytes(b) as f64)),
            Dtype::F16 => halves(bytes, out),
            // The upper half of an f32.
            Dtype::BF16 => each(bytes, out, |[a, b]| T::narrow(f32::from_le_bytes([0, 0, a, b]))),
            Dtype::F32 => each(bytes, out, |b| T::narrow(f32::from_le_bytes(b))),
            Dtype::F64 => each(bytes, out, |b| T::of(f64::from_le_bytes(b))),
            Dtype::C64 => {
                let whole = bytes.len() / 8 * 8;
                let even = out.len() / 2 * 2;
                each(&bytes[..whole], &mut out[..even], |b| T::narrow(f32::from_le_bytes(b)))
            }
            Dtype::F8_E4M3 => each(bytes, out, |[b]| T::narrow(E4M3[b as usize])),
            Dtype::F8_E5M2 => each(bytes, out, |[b]| T::narrow(E5M2[b as usize])),
            Dtype::F8_E4M3FNUZ => each(bytes, out, |[b]| T::narrow(E4M3FNUZ[b as usize])),
            Dtype::F8_E5M2FNUZ => each(bytes, out, |[b]| T::narrow(E5M2FNUZ[b as usize])),
            Dtype::F8_E8M0 => each(bytes, out, |[b]| T::narrow(E8M0[b as usize])),
            Dtype::F4 => {
                packed(bytes, out, |[b]: [u8; 1]| [b & 15, b >> 4].map(|i| T::narrow(E2M1[i as usize])))
            }
            Dtype::F6_E2M3 => packed(bytes, out, |b| sixes(b).map(|i| T::narrow(E2M3[i]))),
            Dtype::F6_E3M2 => packed(bytes, out, |b| sixes(b).map(|i| T::narrow(E3M2[i]))),
            // The enum is not exhaustive: what a newer safetensors crate adds to it decodes to nothing until it stands here.
            _ => 0,
        }
    }
}

#[inline(always)]
fn each<const N: usize, T: Number>(bytes: &[u8], out: &mut [T], number: impl Fn([u8; N]) -> T) -> usize {
    packed(bytes, out, |b| [number(b)])
}

#[inline(always)]
fn packed<const N: usize, const M: usize, T: Number>(
    bytes: &[u8],
    out: &mut [T],
    numbers: impl Fn([u8; N]) -> [T; M],
) -> usize {
    let (from, to) = (bytes.as_chunks().0, out.as_chunks_mut().0);
    for (from, to) in from.iter().zip(&mut *to) {
        *to = numbers(*from);
    }
    from.len().min(to.len()) * M
}

/// f16 in blocks, since the conversion instruction takes several.
fn halves<T: Number>(bytes: &[u8], out: &mut [T]) -> usize {
    const BLOCK: usize = 64;
    let (mut half, mut single) = ([f16::ZERO; BLOCK], [0f32; BLOCK]);
    let pairs = bytes.as_chunks::<2>().0;
    for (from, to) in pairs.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
        for (h, pair) in half.iter_mut().zip(from) {
            *h = f16::from_le_bytes(*pair);
        }
        half[..from.len()].convert_to_f32_slice(&mut single[..from.len()]);
        for (number, s) in to.iter_mut().zip(&single[..from.len()]) {
            *number = T::narrow(*s);
        }
    }
    pairs.len().min(out.len())
}

/// Four six-bit elements of three bytes: a little-endian stream of bits, the first element lowest.
fn sixes([a, b, c]: [u8; 3]) -> [usize; 4] {
    let bits = u32::from_le_bytes([a, b, c, 0]) as usize;
    [0, 6, 12, 18].map(|shift| bits >> shift & 63)
}

static E4M3: [f32; 256] = table(4, 3, 7, Special::NanOnly);
static E5M2: [f32; 256] = table(5, 2, 15, Special::Ieee);
static E4M3FNUZ: [f32; 256] = table(4, 3, 8, Special::NegativeZero);
static E5M2FNUZ: [f32; 256] = table(5, 2, 16, Special::NegativeZero);
static E2M3: [f32; 64] = table(2, 3, 1, Special::None);
static E3M2: [f32; 64] = table(3, 2, 3, Special::None);
static E2M1: [f32; 16] = table(2, 1, 1, Special::None);
static E8M0: [f32; 256] = powers();

/// Which codes are no numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Special {
    /// Every code is a number.
    None,
    /// The largest exponent: infinity where the mantissa is 0, else NaN.
    Ieee,
    /// All bits set but the sign is NaN; there is no infinity.
    NanOnly,
    /// What would be -0 is the only NaN.
    NegativeZero,
}

/// The values of a float of one sign bit, `exponent` and `mantissa` bits, by code.
const fn table<const N: usize>(exponent: u32, mantissa: u32, bias: i32, special: Special) -> [f32; N] {
    let mut values = [0.0; N];
    let mut code = 0;
    while code < N {
        let sign = if code >> (exponent + mantissa) & 1 == 1 { -1.0 } else { 1.0 };
        let e = (code >> mantissa & ((1 << exponent) - 1)) as i32;
        let m = code & ((1 << mantissa) - 1);
        let (top, full) = (e == (1 << exponent) - 1, m == (1 << mantissa) - 1);
        values[code] = match special {
            Special::Ieee if top && m == 0 => sign * f32::INFINITY,
            Special::Ieee if top => f32::NAN,
            Special::NanOnly if top && full => f32::NAN,
            Special::NegativeZero if code == N / 2 => f32::NAN,
            // Subnormal: no implicit one, and the exponent of the smallest normal number.
            _ if e == 0 => sign * m as f32 * power(1 - bias - mantissa as i32),
            _ => sign * ((1 << mantissa) + m) as f32 * power(e - bias - mantissa as i32),
        };
        code += 1;
    }
    values
}

/// E8M0: 2^(code - 127), and NaN last. No sign, no zero.
const fn powers() -> [f32; 256] {
    let mut values = [f32::NAN; 256];
    let mut code = 0;
    while code < 255 {
        values[code] = power(code as i32 - 127);
        code += 1;
    }
    values
}

/// 2^n, from the subnormal 2^-127 up.
const fn power(n: i32) -> f32 {
    f32::from_bits(if n < -126 { 1 << (n + 149) } else { ((127 + n) as u32) << 23 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dtype: Dtype, bytes: &[u8], expected: &[f64]) {
        let mut found = vec![9.0];
        decode(dtype, bytes, &mut found);
        let bits = |x: &f64| if x.is_nan() { u64::MAX } else { x.to_bits() };
        let bits = |xs: &[f64]| xs.iter().map(bits).collect::<Vec<_>>();
        assert_eq!(bits(&found[1..]), bits(expected), "{dtype}: {:?}", &found[1..]);
    }

    #[test]
    fn integers_and_booleans() {
        check(Dtype::BOOL, &[0, 1, 255], &[0.0, 1.0, 1.0]);
        check(Dtype::U8, &[0, 255], &[0.0, 255.0]);
        check(Dtype::I8, &[0x80, 0xff], &[-128.0, -1.0]);
        check(Dtype::U16, &[0x34, 0x12, 0xff, 0xff], &[4660.0, 65535.0]);
        check(Dtype::I16, &[0, 0x80], &[-32768.0]);
        check(Dtype::U32, &[0xff; 4], &[4294967295.0]);
        check(Dtype::I32, &[0, 0, 0, 0x80], &[-2147483648.0]);
        check(Dtype::U64, &[0xff; 8], &[18446744073709551616.0]);
        check(Dtype::I64, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], &[-2.0]);
    }

    #[test]
    fn floats() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        // 1, -2, largest, smallest subnormal, inf, NaN, -0
        let halves = [0x3c00u16, 0xc000, 0x7bff, 1, 0x7c00, 0x7e01, 0x8000].map(u16::to_le_bytes).concat();
        check(Dtype::F16, &halves, &[1.0, -2.0, 65504.0, 5.960464477539063e-8, inf, nan, -0.0]);
        let bf16 = [0x3f80u16, 0xc000, 0x7f7f, 1, 0xff80, 0x7f81, 0x8000].map(u16::to_le_bytes).concat();
        check(
            Dtype::BF16,
            &bf16,
            &[1.0, -2.0, 3.3895313892515355e38, 9.183549615799121e-41, -inf, nan, -0.0],
        );
        check(Dtype::F32, &1.5f32.to_le_bytes(), &[1.5]);
        check(Dtype::F64, &(-0.1f64).to_le_bytes(), &[-0.1]);
        check(Dtype::C64, &[1f32.to_le_bytes(), (-2f32).to_le_bytes()].concat(), &[1.0, -2.0]);
    }

    #[test]
    fn small_floats() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        check(
            Dtype::F8_E4M3,
            &[0x38, 0x01, 0x7e, 0x7f, 0xff, 0x80],
            &[1.0, 0.001953125, 448.0, nan, nan, -0.0],
        );
        check(
            Dtype::F8_E5M2,
            &[0x3c, 0x01, 0x7b, 0x7c, 0xfc, 0x7d],
            &[1.0, 1.52587890625e-5, 57344.0, inf, -inf, nan],
        );
        check(Dtype::F8_E4M3FNUZ, &[0x40, 0x7f, 0x80, 0xff], &[1.0, 240.0, nan, -240.0]);
        check(Dtype::F8_E5M2FNUZ, &[0x40, 0x7f, 0x80, 0xff], &[1.0, 57344.0, nan, -57344.0]);
        check(Dtype::F8_E8M0, &[127, 0, 254, 255], &[1.0, 5.877471754111438e-39, 1.7014118346046923e38, nan]);
        // Low half first: 0x2 = 1, 0x7 = 6; then -0 and -0.5.
        check(Dtype::F4, &[0x72, 0x98], &[1.0, 6.0, -0.0, -0.5]);
        // Elements 1, 2, 3, 63 as a stream of bits: 1 | 2<<6 | 3<<12 | 63<<18 = 0xfc3081.
        check(Dtype::F6_E2M3, &[0x81, 0x30, 0xfc], &[0.125, 0.25, 0.375, -7.5]);
        check(Dtype::F6_E3M2, &[0x81, 0x30, 0xfc], &[0.0625, 0.125, 0.1875, -28.0]);
    }

    /// Every code of every small float, against checksums of the values of ml_dtypes 0.6.0 as little-endian f64 (NaN as
    /// 0x7ff8000000000000).
    #[test]
    fn all_codes_are_those_of_ml_dtypes() {
        let crc = |values: &[f32]| {
            let bits = |x: &f32| if x.is_nan() { 0x7ff8 << 48 } else { f64::from(*x).to_bits() };
            crc32fast::hash(&values.iter().flat_map(|x| bits(x).to_le_bytes()).collect::<Vec<_>>())
        };
        assert_eq!(crc(&E4M3), 0x2f3cdd2a);
        assert_eq!(crc(&E5M2), 0x95a5cba8);
        assert_eq!(crc(&E4M3FNUZ), 0xdd44ca70);
        assert_eq!(crc(&E5M2FNUZ), 0xe7d95de8);
        assert_eq!(crc(&E8M0), 0x5761ae99);
        assert_eq!(crc(&E2M3), 0xf6a05dcb);
        assert_eq!(crc(&E3M2), 0x05e0ba67);
        assert_eq!(crc(&E2M1), 0xa4f2f7e0);
    }

    /// The halves' blocks end where a tensor does, and at any length each number is the one of half's scalar conversion.
    #[test]
    fn blocks_of_halves_are_the_halves() {
        for n in [0, 1, 63, 64, 65, 200] {
            let halves: Vec<u16> = (0..n).map(|i| (i as u16).wrapping_mul(331)).collect();
            let bytes: Vec<u8> = halves.iter().flat_map(|h| h.to_le_bytes()).collect();
            let expected: Vec<f64> = halves.iter().map(|h| f16::from_bits(*h).to_f64()).collect();
            check(Dtype::F16, &bytes, &expected);
        }
    }

    #[test]
    fn only_whole_granules_that_fit_are_decoded() {
        let mut out = [9.0; 3];
        assert_eq!(decode_into(Dtype::F32, &[0; 11], &mut out), 2);
        assert_eq!(out, [0.0, 0.0, 9.0]);
        let mut out = [9.0; 3];
        assert_eq!(decode_into(Dtype::F4, &[0; 2], &mut out), 2);
        assert_eq!(out, [0.0, 0.0, 9.0]);
        let mut out = [9.0; 3];
        assert_eq!(decode_into(Dtype::C64, &[0; 23], &mut out), 2);
        assert_eq!(out, [0.0, 0.0, 9.0]);
        assert_eq!(decode_into(Dtype::F16, &[0; 5], &mut [0.0]), 1);
    }
}
