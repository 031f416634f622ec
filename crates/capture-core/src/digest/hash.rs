//! A hash that any number of threads or blocks comes to in any order: a sum over words, each mixed with its place.
//!
//! The bytes are little-endian words wᵢ of 64 bits, the last one filled up with zeros. The hash is
//! mix(Σ mix(wᵢ ⊕ mix(i)) ⊕ number of bytes), modulo 2⁶⁴, where mix is the finaliser of SplitMix64 (Steele, Lea and Flood,
//! *Fast splittable pseudorandom number generators*, 2014).

use crate::vectors::{self, Loop};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// The hash of a record's bytes. Equal hashes are equal bytes, but for one chance in 2⁶⁴; it is no defence against whoever
/// makes bytes to fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash(pub u64);

/// Words whose sums run side by side.
const LANES: usize = 8;

pub(super) fn of(each: impl FnOnce(&mut dyn FnMut(&[u8]))) -> Hash {
    let (mut sum, mut n_bytes) = (0u64, 0u64);
    each(&mut |bytes| {
        sum = sum.wrapping_add(vectors::run(Words { bytes, first: n_bytes / 8 }));
        n_bytes += bytes.len() as u64;
    });
    Hash(finish(sum, n_bytes))
}

/// From the sum over words to the hash.
pub(super) fn finish(sum: u64, n_bytes: u64) -> u64 {
    mix(sum ^ n_bytes)
}

/// The sum over the words of `bytes`, the first of which is word number `first`.
struct Words<'b> {
    bytes: &'b [u8],
    first: u64,
}

impl Loop for Words<'_> {
    type Found = u64;

    #[inline(always)]
    fn run(self) -> u64 {
        let (words, rest) = self.bytes.as_chunks::<8>();
        let (groups, last) = words.as_chunks::<LANES>();
        let (mut sums, mut i) = ([0u64; LANES], self.first);
        for group in groups {
            for lane in 0..LANES {
                let place = mix(i + lane as u64);
                sums[lane] = sums[lane].wrapping_add(mix(u64::from_le_bytes(group[lane]) ^ place));
            }
            i += LANES as u64;
        }
        let mut sum = sums.iter().fold(0u64, |sum, lane| sum.wrapping_add(*lane));
        for word in last {
            sum = sum.wrapping_add(mix(u64::from_le_bytes(*word) ^ mix(i)));
            i += 1;
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            sum = sum.wrapping_add(mix(u64::from_le_bytes(word) ^ mix(i)));
        }
        sum
    }
}

#[inline(always)]
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Sixteen lower-case hex digits: JSON's readers take numbers for floats, which 64 bits do not fit.
impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_hex = text.len() == 16 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let parsed = u64::from_str_radix(&text, 16).ok().filter(|_| is_hex);
        let expected = &"16 lower-case hex digits";
        parsed.map(Self).ok_or_else(|| de::Error::invalid_value(de::Unexpected::Str(&text), expected))
    }
}
