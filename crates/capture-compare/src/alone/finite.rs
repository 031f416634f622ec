//! NaN and infinity, and where they first appear.

use crate::{
    part::Part,
    report::{Diagnosis, Kind, Row},
    running::terms,
    whole::{Node, Whole},
};
use capture_core::Dtype;
use serde::{Deserialize, Serialize};

/// Numbers looked at at a time.
const CHUNK: u64 = 1 << 14;

/// What a number is that is none to compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Odd {
    Nan,
    Infinite,
    /// Alone: masks are made of it.
    Masked,
}

/// The numbers of a tensor that are not finite, by kind: how many, and the first on the lowest rank that has one.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Seen([Option<First>; 3]);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct First {
    rank: Option<u32>,
    index: Vec<u64>,
    count: u64,
}

impl Seen {
    /// Looks at a tensor, at each of its partials where it is their sum. What was seen before stands first.
    pub(super) fn add(&mut self, whole: &Whole<'_>) {
        if whole.parts.first().is_none_or(|p| p.float().is_none()) {
            return;
        }
        match terms(whole) {
            Some(terms) => terms.iter().for_each(|term| self.scan(term)),
            None => self.scan(whole),
        }
    }

    fn scan(&mut self, whole: &Whole<'_>) {
        let mut numbers = vec![0.0; CHUNK as usize];
        let mut from = 0;
        while from < whole.len() {
            let len = (whole.len() - from).min(CHUNK) as usize;
            if is_finite(whole, from, from + len as u64) {
                from += len as u64;
                continue;
            }
            whole.read(from, &mut numbers[..len]);
            for (j, x) in numbers[..len].iter().enumerate().filter(|(_, x)| !x.is_finite()) {
                let odd = match x {
                    x if x.is_nan() => Odd::Nan,
                    x if *x > 0.0 => Odd::Infinite,
                    _ => Odd::Masked,
                };
                let first = self.0[odd as usize].get_or_insert_with(|| First::at(whole, from + j as u64));
                first.count += 1;
            }
            from += len as u64;
        }
    }
}

/// Whether all numbers `from..to` surely are finite: by their bits in the formats of most captures, without decoding.
fn is_finite(whole: &Whole<'_>, from: u64, to: u64) -> bool {
    let mut finite = true;
    whole.runs(from, to, &mut |leaf, from, to| {
        finite &= match leaf {
            Node::Part(part) => has_finite_bits(&whole.parts[*part], from, to),
            _ => false,
        };
    });
    finite
}

fn has_finite_bits(part: &Part<'_>, from: u64, to: u64) -> bool {
    let bytes = part.bytes(from, to);
    let halves = |exponent: u16| {
        let odd = |b: &[u8; 2]| u16::from_le_bytes(*b) & exponent == exponent;
        !bytes.as_chunks().0.iter().fold(false, |any, b| any | odd(b))
    };
    match part.dtype {
        _ if !part.is_stored() => false,
        Dtype::BF16 => halves(0x7f80),
        Dtype::F16 => halves(0x7c00),
        Dtype::F32 => {
            let odd = |b: &[u8; 4]| u32::from_le_bytes(*b) & 0x7f80_0000 == 0x7f80_0000;
            !bytes.as_chunks().0.iter().fold(false, |any, b| any | odd(b))
        }
        _ => false,
    }
}

impl First {
    fn at(whole: &Whole<'_>, at: u64) -> Self {
        let mut rest = at;
        let mut index: Vec<u64> = whole.shape.iter().rev().map(|d| (rest % d, rest /= d).0).collect();
        index.reverse();
        Self { rank: whole.ranks(&whole.owners(at)).first().copied(), index, count: 0 }
    }

    fn text(&self, what: &str) -> String {
        let rank = self.rank.map_or_else(String::new, |rank| format!("rank {rank}, "));
        let more = match self.count {
            1 => String::new(),
            count => format!(", {count} in all"),
        };
        format!("the first {what}: {rank}at {:?}{more}", self.index)
    }
}

/// Says at the first rows of each kind, in capture order, that they are.
pub(super) fn note_first(rows: &mut [Row], seen: &[Seen]) {
    for (odd, what) in [(Odd::Nan, "NaN"), (Odd::Infinite, "inf"), (Odd::Masked, "-inf (normal in a mask)")] {
        let mut rows = rows.iter_mut().zip(seen);
        if let Some((row, first)) = rows.find_map(|(row, seen)| Some((row, seen.0[odd as usize].as_ref()?))) {
            row.diagnoses.push(Diagnosis::new(Kind::NotFinite, first.text(what)));
        }
    }
}
