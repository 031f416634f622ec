//! Equality without tolerance: of bits, which settles most pairs at the speed of memory, and of integers.

use crate::{
    part::Part,
    statistics::{PartError, Statistics},
    vectors::{self, Loop},
    whole::{Node, Whole},
};
use capture_core::Dtype;
use rayon::prelude::*;
use std::borrow::Cow;

/// Numbers compared at a time where they are computed or differ.
const CHUNK: u64 = 1 << 16;
/// Numbers that are worth a task of their own.
const TASK: u64 = 1 << 22;
/// Bytes that are compared and then looked through while they are in the cache.
const CACHED: usize = 1 << 15;

/// Whether two tensors of one shape hold the same dtype and bits. What is computed, as a sum over ranks, is compared as
/// the f64 it is computed in. Tensors of different dtypes never hold the same bits.
#[must_use]
pub fn same_bits(reference: &Whole<'_>, candidate: &Whole<'_>) -> bool {
    agree(reference, candidate, None).is_some()
}

/// Whether two tensors hold the same dtype and bits, as [`same_bits`], and if so how many NaNs.
#[must_use]
pub fn identical(reference: &Whole<'_>, candidate: &Whole<'_>) -> Option<u64> {
    let counted = reference.parts.first().filter(|p| p.float().is_some()).map(|p| p.dtype);
    if reference.is_computed() || candidate.is_computed() {
        return same_bits(reference, candidate).then(|| count_nan(reference));
    }
    agree(reference, candidate, counted)
}

/// The NaNs of two tensors with the same bits, counted where they are of the dtype `counted`.
fn agree(reference: &Whole<'_>, candidate: &Whole<'_>, counted: Option<Dtype>) -> Option<u64> {
    let dtype = |whole: &Whole<'_>| whole.parts.first().map(|p| (p.dtype, p.complex));
    if dtype(reference) != dtype(candidate) && !reference.is_empty() {
        return None;
    }
    let computed = reference.is_computed() || candidate.is_computed();
    if computed && reference.is_alike(candidate) {
        return Some(0);
    }
    tasks(reference.len(), |from, to| {
        if computed {
            let equal = |(from, to)| {
                if let Some([a, b]) = integers(reference, candidate, from, to) {
                    return a == b;
                }
                let [a, b] = numbers(reference, candidate, from, to);
                a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits())
            };
            return chunks(from, to).all(equal).then_some(0);
        }
        // What has to be read takes memory.
        let step = if reference.is_held() && candidate.is_held() { TASK } else { CHUNK };
        pieces(from, to, step).try_fold(0, |nan, (from, to)| {
            let (a, b) = (stretches(reference, from, to), stretches(candidate, from, to));
            Some(nan + agree_between(&a, &b, counted)?)
        })
    })
}

/// The bytes of the numbers `from..to`, stretch by stretch.
fn stretches<'w>(whole: &'w Whole<'_>, from: u64, to: u64) -> Vec<Cow<'w, [u8]>> {
    let mut stretches = Vec::new();
    whole.runs(from, to, &mut |leaf, from, to| {
        if let Node::Part(part) = leaf {
            stretches.push(whole.parts[*part].bytes(from, to));
        }
    });
    stretches
}

/// The NaNs of two rows of stretches with the same bytes.
fn agree_between(a: &[Cow<'_, [u8]>], b: &[Cow<'_, [u8]>], counted: Option<Dtype>) -> Option<u64> {
    let (mut a, mut b) = (a.iter().map(AsRef::as_ref), b.iter().map(AsRef::as_ref));
    let (mut x, mut y): (&[u8], &[u8]) = (&[], &[]);
    let mut nan = 0;
    loop {
        x = if x.is_empty() { a.next().unwrap_or_default() } else { x };
        y = if y.is_empty() { b.next().unwrap_or_default() } else { y };
        let n = x.len().min(y.len()).min(CACHED);
        if n == 0 {
            return (x.is_empty() && y.is_empty()).then_some(nan);
        }
        // Replicas and slices that two tensors share need not be read.
        if !std::ptr::eq(x.as_ptr(), y.as_ptr()) && x[..n] != y[..n] {
            return None;
        }
        nan += counted.map_or(0, |dtype| nans(dtype, &x[..n]));
        (x, y) = (&x[n..], &y[n..]);
    }
}

/// How two integer or boolean tensors of one shape and dtype differ. Beyond 2^53 the numbers of the report are rounded;
/// what differs is not.
#[must_use]
pub fn measure(reference: &Whole<'_>, candidate: &Whole<'_>) -> Statistics {
    let parts = vec![PartError::default(); candidate.parts.len()];
    let mut s = Statistics { finite: reference.len(), parts, ..Statistics::default() };
    let computed = reference.is_computed() || candidate.is_computed();
    let item = reference.parts.first().map_or(1, Part::item);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for (from, to) in chunks(0, reference.len()) {
        if !computed && reference.bytes(from, to, &mut a) == candidate.bytes(from, to, &mut b) {
            continue;
        }
        let [r, c] = numbers(reference, candidate, from, to);
        let whole = integers(reference, candidate, from, to);
        let differs: Vec<bool> = if let Some([r, c]) = &whole {
            r.iter().zip(c).map(|(r, c)| r != c).collect()
        } else if computed {
            r.iter().zip(&c).map(|(r, c)| r != c).collect()
        } else {
            let (a, b) = (reference.bytes(from, to, &mut a), candidate.bytes(from, to, &mut b));
            a.chunks(item).zip(b.chunks(item)).map(|(a, b)| a != b).collect()
        };
        for (j, _) in differs.iter().enumerate().filter(|(_, differs)| **differs) {
            let error = whole.as_ref().map_or(c[j] - r[j], |[r, c]| (c[j] - r[j]) as f64).abs();
            let at = from + j as u64;
            if !s.differs || error > s.max_abs.0 {
                s.max_abs = (error, at);
            }
            s.differs = true;
        }
        let mut at = 0;
        candidate.runs(from, to, &mut |leaf, from, to| {
            let next = at + (to - from) as usize;
            if let Node::Part(part) = leaf {
                s.parts[*part].class_changes += differs[at..next].iter().filter(|d| **d).count() as u64;
            }
            at = next;
        });
    }
    s
}

/// Whether a tensor of stored numbers is another one cast to its dtype, to nearest with ties to even: that of the same
/// dtype is not, as its bits differ. `None` where either side is computed.
#[must_use]
pub fn is_cast(reference: &Whole<'_>, candidate: &Whole<'_>) -> Option<bool> {
    let is_made = |whole: &Whole<'_>| whole.has_sum() || whole.parts.iter().any(Part::is_quantised);
    let (Some(a), Some(b)) = (reference.parts.first(), candidate.parts.first()) else { return None };
    let (Some(_), Some(float)) = (a.float(), b.float()) else { return None };
    if is_made(reference) || is_made(candidate) {
        return None;
    }
    let same = |(r, c): (&f64, &f64)| {
        let both_nan = r.is_nan() && c.is_nan();
        both_nan || (float.place(*r) == float.place(*c) && r.is_sign_negative() == c.is_sign_negative())
    };
    let equal = |(from, to)| {
        let [r, c] = numbers(reference, candidate, from, to);
        r.iter().zip(&c).all(same)
    };
    Some(a.dtype != b.dtype && chunks(0, reference.len()).all(equal))
}

/// NaNs of a tensor.
#[must_use]
pub fn count_nan(whole: &Whole<'_>) -> u64 {
    let Some(dtype) = whole.parts.first().filter(|p| p.float().is_some()).map(|p| p.dtype) else { return 0 };
    let found = tasks(whole.len(), |from, to| {
        if whole.is_computed() {
            let nan = chunks(from, to).map(|(from, to)| {
                let mut numbers = vec![0.0; (to - from) as usize];
                whole.read(from, &mut numbers);
                numbers.iter().filter(|x| x.is_nan()).count() as u64
            });
            return Some(nan.sum());
        }
        let step = if whole.is_held() { TASK } else { CHUNK };
        let of = |(from, to)| {
            let stretches = stretches(whole, from, to);
            stretches.iter().flat_map(|s| s.chunks(CACHED)).map(|s| nans(dtype, s)).sum::<u64>()
        };
        Some(pieces(from, to, step).map(of).sum())
    });
    found.unwrap_or(0)
}

/// NaNs among the numbers of a floating-point dtype. That there is none, as is usual, is seen in whole vectors.
fn nans(dtype: Dtype, bytes: &[u8]) -> u64 {
    vectors::run(Nans { dtype, bytes })
}

struct Nans<'b> {
    dtype: Dtype,
    bytes: &'b [u8],
}

impl Loop for Nans<'_> {
    type Found = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        let Self { dtype, bytes } = self;
        match dtype {
            Dtype::BF16 => count(bytes, |b| u16::from_le_bytes(b) & 0x7fff > 0x7f80),
            Dtype::F16 => count(bytes, |b| u16::from_le_bytes(b) & 0x7fff > 0x7c00),
            Dtype::F32 | Dtype::C64 => count(bytes, |b| u32::from_le_bytes(b) & 0x7fff_ffff > 0x7f80_0000),
            Dtype::F64 => count(bytes, |b| u64::from_le_bytes(b) & (u64::MAX >> 1) > 0x7ff << 52),
            Dtype::F8_E4M3 => count(bytes, |[b]| b & 0x7f == 0x7f),
            Dtype::F8_E5M2 => count(bytes, |[b]| b & 0x7f > 0x7c),
            Dtype::F8_E4M3FNUZ | Dtype::F8_E5M2FNUZ => count(bytes, |[b]| b == 0x80),
            Dtype::F8_E8M0 => count(bytes, |[b]| b == 0xff),
            _ => 0,
        }
    }
}

#[inline(always)]
fn count<const N: usize>(bytes: &[u8], is_nan: impl Fn([u8; N]) -> bool) -> u64 {
    let numbers = bytes.as_chunks::<N>().0;
    if !numbers.iter().fold(false, |any, b| any | is_nan(*b)) {
        return 0;
    }
    numbers.iter().filter(|b| is_nan(**b)).count() as u64
}

/// The sum of what the work finds in parts of `0..len`, in parallel where there are several; `None` once one finds that.
fn tasks(len: u64, work: impl Fn(u64, u64) -> Option<u64> + Sync) -> Option<u64> {
    if len <= TASK {
        return work(0, len);
    }
    let tasks = (0..len.div_ceil(TASK)).into_par_iter();
    tasks.map(|i| work(i * TASK, ((i + 1) * TASK).min(len))).try_reduce(|| 0, |a, b| Some(a + b))
}

fn chunks(from: u64, to: u64) -> impl Iterator<Item = (u64, u64)> {
    pieces(from, to, CHUNK)
}

fn pieces(from: u64, to: u64, step: u64) -> impl Iterator<Item = (u64, u64)> {
    (from..to).step_by(step as usize).map(move |at| (at, (at + step).min(to)))
}

/// The numbers of integer tensors, without rounding.
fn integers(reference: &Whole<'_>, candidate: &Whole<'_>, from: u64, to: u64) -> Option<[Vec<i128>; 2]> {
    let read = |whole: &Whole<'_>| {
        let mut integers = vec![0; (to - from) as usize];
        whole.parts.iter().all(Part::has_integers).then(|| whole.add_integers(from, &mut integers))?;
        Some(integers)
    };
    Some([read(reference)?, read(candidate)?])
}

fn numbers(reference: &Whole<'_>, candidate: &Whole<'_>, from: u64, to: u64) -> [Vec<f64>; 2] {
    [reference, candidate].map(|whole| {
        let mut numbers = vec![0.0; (to - from) as usize];
        whole.read(from, &mut numbers);
        numbers
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(dtype: Dtype, bytes: &[u8]) -> Whole<'static> {
        let shape = vec![(bytes.len() * 8 / dtype.bitsize()) as u64];
        let part = Part::new(Some(0), dtype, &shape, None, bytes.to_vec().into()).unwrap();
        Whole { parts: vec![part].into(), root: Node::Part(0), shape, padded: 0 }
    }

    #[test]
    fn bits_are_told_apart_where_numbers_are_not() {
        let zero = |x: f32| whole(Dtype::F32, &x.to_le_bytes());
        assert!(same_bits(&zero(0.0), &zero(0.0)));
        assert!(!same_bits(&zero(0.0), &zero(-0.0)));
        let nan = |bits: u16| whole(Dtype::BF16, &bits.to_le_bytes());
        assert!(!same_bits(&nan(0x7fc0), &nan(0x7fc1)));
        assert!(!same_bits(&whole(Dtype::I8, &[1]), &whole(Dtype::U8, &[1])));
    }

    #[test]
    fn integers_are_exact_beyond_what_f64_holds() {
        let of = |x: i64| whole(Dtype::I64, &x.to_le_bytes());
        let s = measure(&of(1 << 53), &of((1 << 53) + 1));
        assert!(s.differs);
        assert_eq!((s.max_abs.1, s.parts[0].class_changes), (0, 1));
        assert!(!measure(&of(7), &of(7)).differs);
        let s = measure(&whole(Dtype::I8, &[1, 2, 3, 250]), &whole(Dtype::I8, &[1, 3, 3, 1]));
        assert_eq!(s.max_abs, (7.0, 3));
    }

    #[test]
    fn nans_are_counted_in_every_format() {
        assert_eq!(count_nan(&whole(Dtype::BF16, &[0xc0, 0x7f, 0x80, 0x7f, 0xff, 0xff])), 2);
        assert_eq!(count_nan(&whole(Dtype::F16, &[0x00, 0x7e, 0x00, 0x7c])), 1);
        assert_eq!(count_nan(&whole(Dtype::F8_E4M3, &[0x7f, 0xff, 0x7e])), 2);
        assert_eq!(count_nan(&whole(Dtype::F8_E5M2, &[0x7c, 0x7d])), 1);
        assert_eq!(count_nan(&whole(Dtype::F32, &f32::NAN.to_le_bytes())), 1);
        assert_eq!(count_nan(&whole(Dtype::F64, &f64::NAN.to_le_bytes())), 1);
        assert_eq!(count_nan(&whole(Dtype::I32, &[0xff; 8])), 0);
    }
}
