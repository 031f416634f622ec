//! Replicas that differ: a pair of tensors once for each of them.

use crate::{
    exact::same_bits,
    opened::SIDES,
    report::{Diagnosis, Kind},
    whole::Whole,
};

/// The pairs that two sides with replicas make.
pub(crate) struct Variants<'r> {
    /// Reference and candidate as the first replicas have them, and once more for every replica that holds other bits.
    pub(crate) pairs: Vec<[Whole<'r>; 2]>,
    /// Parts of every other replica of the candidate that holds the bits of the first.
    pub(crate) twins: Vec<Vec<usize>>,
    /// Which replicas differ.
    pub(crate) notes: Vec<Diagnosis>,
}

/// The pair as the first replicas have it, and once more for every replica of either side that holds other bits.
pub(crate) fn variants<'r>([a, b]: &[Whole<'r>; 2]) -> Variants<'r> {
    let mut notes = Vec::new();
    let mut twins = Vec::new();
    let mut others = Vec::new();
    for (side, whole) in [a, b].into_iter().enumerate() {
        for other in whole.alternatives() {
            if same_bits(whole, &other) {
                if side == 1 {
                    twins.push(other.picked());
                }
                continue;
            }
            let only = |of: &Whole<'_>, not: &Whole<'_>| {
                let ranks = whole.ranks(&of.picked_unlike(not));
                ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
            };
            let text = format!(
                "{}: rank {} does not hold what rank {} does",
                SIDES[side],
                only(&other, whole),
                only(whole, &other)
            );
            notes.push(Diagnosis::new(Kind::Replicas, text));
            others.push(if side == 0 { [other, b.clone()] } else { [a.clone(), other] });
        }
    }
    let mut pairs = vec![[a.clone(), b.clone()]];
    pairs.extend(others);
    Variants { pairs, twins, notes }
}
