//! Equality without tolerance: of bits, which settles most pairs at the speed of memory, and of integers.

use crate::{
    statistics::{PartError, Statistics},
    whole::{Node, Whole},
};

/// Numbers compared at a time.
const CHUNK: u64 = 1 << 16;

/// Whether two tensors of one shape hold the same dtype and bits. What is computed, as a sum over ranks, is compared as
/// the f64 it is computed in. Tensors of different dtypes never hold the same bits.
#[must_use]
pub fn same_bits(reference: &Whole<'_>, candidate: &Whole<'_>) -> bool {
    let dtype = |whole: &Whole<'_>| whole.parts.first().map(|p| (p.dtype, p.complex));
    if dtype(reference) != dtype(candidate) && !reference.is_empty() {
        return false;
    }
    let computed = reference.is_computed() || candidate.is_computed();
    if computed && reference.is_alike(candidate) {
        return true;
    }
    let (mut a, mut b) = (Vec::new(), Vec::new());
    chunks(reference.len()).all(|(from, to)| {
        if computed {
            let [a, b] = numbers(reference, candidate, from, to);
            a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits())
        } else {
            reference.bytes(from, to, &mut a) == candidate.bytes(from, to, &mut b)
        }
    })
}

/// How two integer or boolean tensors of one shape and dtype differ. Beyond 2^53 the numbers of the report are rounded;
/// what differs is not.
#[must_use]
pub fn measure(reference: &Whole<'_>, candidate: &Whole<'_>) -> Statistics {
    let parts = vec![PartError::default(); candidate.parts.len()];
    let mut s = Statistics { finite: reference.len(), parts, ..Statistics::default() };
    let computed = reference.is_computed() || candidate.is_computed();
    let item = reference.parts.first().map_or(1, crate::part::Part::item);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for (from, to) in chunks(reference.len()) {
        if !computed && reference.bytes(from, to, &mut a) == candidate.bytes(from, to, &mut b) {
            continue;
        }
        let [r, c] = numbers(reference, candidate, from, to);
        let differs: Vec<bool> = if computed {
            r.iter().zip(&c).map(|(r, c)| r != c).collect()
        } else {
            let (a, b) = (reference.bytes(from, to, &mut a), candidate.bytes(from, to, &mut b));
            a.chunks(item).zip(b.chunks(item)).map(|(a, b)| a != b).collect()
        };
        for (j, _) in differs.iter().enumerate().filter(|(_, differs)| **differs) {
            let (at, error) = (from + j as u64, (c[j] - r[j]).abs());
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

/// NaNs of a tensor.
#[must_use]
pub fn count_nan(whole: &Whole<'_>) -> u64 {
    if whole.parts.first().is_none_or(|p| p.float().is_none()) {
        return 0;
    }
    let mut nan = 0;
    for (from, to) in chunks(whole.len()) {
        if whole.is_computed() {
            let mut numbers = vec![0.0; (to - from) as usize];
            whole.read(from, &mut numbers);
            nan += numbers.iter().filter(|x| x.is_nan()).count() as u64;
        } else {
            whole.runs(from, to, &mut |leaf, from, to| {
                if let Node::Part(part) = leaf {
                    nan += whole.parts[*part].count_nan(from, to);
                }
            });
        }
    }
    nan
}

fn chunks(len: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..len.div_ceil(CHUNK)).map(move |i| (i * CHUNK, ((i + 1) * CHUNK).min(len)))
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
    use crate::part::Part;
    use capture_core::Dtype;

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
