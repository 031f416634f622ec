//! The right bits under the wrong dtype, or in the other byte order.

use super::case::Case;
use crate::{
    decode::decode_into,
    float::Float,
    report::{Diagnosis, Kind},
};
use capture_core::Dtype;

/// Formats whose bits are taken for one another.
const SAME_SIZE: [&[Dtype]; 2] =
    [&[Dtype::F8_E4M3, Dtype::F8_E5M2, Dtype::F8_E4M3FNUZ, Dtype::F8_E5M2FNUZ], &[Dtype::BF16, Dtype::F16]];
/// The fewest numbers: few agree by chance.
const LEAST: u64 = 8;

/// The candidate's bits, read as another dtype, are the reference; else the reference's are the candidate.
pub(crate) fn reinterpreted(case: &Case<'_, '_>) -> Option<Diagnosis> {
    case.float?;
    read_anew(case, "candidate").or_else(|| read_anew(&case.swapped(), "reference"))
}

fn read_anew(case: &Case<'_, '_>, whose: &str) -> Option<Diagnosis> {
    let whole = case.candidate;
    let dtype = whole.parts.first().filter(|part| Float::of(part.dtype).is_some() && !part.complex)?.dtype;
    if whole.len() < LEAST || whole.is_computed() {
        return None;
    }
    let is = |read: &dyn Fn(&[u8], &mut [f64])| {
        case.swapped().is_sum_of(&[&|from, out| {
            let mut buffer = Vec::new();
            read(whole.bytes(from, from + out.len() as u64, &mut buffer), out);
        }])
    };
    let others = SAME_SIZE.into_iter().find(|all| all.contains(&dtype)).unwrap_or_default();
    for &other in others.iter().filter(|other| **other != dtype) {
        let as_other = |bytes: &[u8], out: &mut [f64]| {
            decode_into(other, bytes, out);
        };
        if is(&as_other) {
            let text = format!("the {whose}'s bits are right and are of {other:?}, read as {dtype:?}");
            return Some(Diagnosis::new(Kind::Reinterpreted, text));
        }
    }
    let item = dtype.bitsize() / 8;
    let swapped = |bytes: &[u8], out: &mut [f64]| {
        let mut bytes = bytes.to_vec();
        bytes.chunks_exact_mut(item).for_each(<[u8]>::reverse);
        decode_into(dtype, &bytes, out);
    };
    let text = format!("the {whose}'s bytes are in the other byte order");
    (item > 1 && is(&swapped)).then(|| Diagnosis::new(Kind::Reinterpreted, text))
}
