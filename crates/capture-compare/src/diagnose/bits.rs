//! The right bits under the wrong dtype, or in the other byte order.

use super::case::Case;
use crate::{
    float::Float,
    part::Part,
    report::{Diagnosis, Kind},
    whole::Whole,
};
use capture_core::Dtype;
use std::sync::Arc;

/// Formats whose bits are taken for one another.
const SAME_SIZE: [&[Dtype]; 4] = [
    &[Dtype::F8_E4M3, Dtype::F8_E5M2, Dtype::F8_E4M3FNUZ, Dtype::F8_E5M2FNUZ, Dtype::U8, Dtype::I8],
    &[Dtype::BF16, Dtype::F16, Dtype::I16, Dtype::U16],
    &[Dtype::F32, Dtype::I32, Dtype::U32],
    &[Dtype::F64, Dtype::I64, Dtype::U64],
];
/// The fewest numbers: few agree by chance.
const LEAST: u64 = 8;
/// The most bytes that are copied in another order.
const MOST: u64 = 1 << 26;

/// The candidate's bits, read as another dtype, are the reference; else the reference's are the candidate.
pub(crate) fn reinterpreted(case: &Case<'_, '_>) -> Option<Diagnosis> {
    case.float?;
    read_anew(case, "candidate").or_else(|| read_anew(&case.swapped(), "reference"))
}

fn read_anew(case: &Case<'_, '_>, whose: &str) -> Option<Diagnosis> {
    let whole = case.candidate;
    let dtype = whole.parts.first()?.dtype;
    if whole.len() < LEAST || whole.has_sum() || whole.is_computed() {
        return None;
    }
    let reference = Case { candidate: case.reference, ..*case };
    let as_read = |made: &dyn Fn(&Part<'_>) -> Option<Part<'static>>| {
        let parts = whole.parts.iter().map(made).collect::<Option<Vec<_>>>();
        parts.is_some_and(|parts| reference.is(&Whole { parts: Arc::new(parts), ..whole.clone() }))
    };
    let n_bytes: u64 = whole.parts.iter().map(|p| p.len() * p.item() as u64).sum();
    if n_bytes > MOST {
        return None;
    }
    let others = SAME_SIZE.into_iter().find(|all| all.contains(&dtype))?;
    for &other in others.iter().filter(|other| **other != dtype && Float::of(**other).is_some()) {
        let again = |part: &Part<'_>| {
            let bytes = part.bytes(0, part.len()).to_vec();
            Part::new(part.rank, other, &part.shape, None, bytes.into()).ok()
        };
        if as_read(&again) {
            let text = format!("the {whose}'s bits are right and are of {other:?}, read as {dtype:?}");
            return Some(Diagnosis::new(Kind::Reinterpreted, text));
        }
    }
    let swapped = |part: &Part<'_>| {
        let mut bytes = part.bytes(0, part.len()).to_vec();
        bytes.chunks_exact_mut(part.item()).for_each(<[u8]>::reverse);
        Part::new(part.rank, dtype, &part.shape, None, bytes.into()).ok()
    };
    (dtype.bitsize() > 8 && as_read(&swapped)).then(|| {
        Diagnosis::new(Kind::Reinterpreted, format!("the {whose}'s bytes are in the other byte order"))
    })
}
