//! Digests of which a device computed the parts: each of its blocks writes what it found, and they are added up here, in
//! order. The kernels (`kernels/cu`) and this page agree on the layout and on the number of blocks.

use super::{Digest, Finite, Hash, Stats};
use crate::decode;
use safetensors::Dtype;

/// Bytes that one thread looks at in one go.
const UNIT_BYTES: usize = 16;
/// Threads of a block.
const THREADS: usize = 256;
/// More blocks than fill any device, and few enough to move in no time.
const MAX_BLOCKS: usize = 2048;

/// Blocks that look at so many bytes together. It depends on nothing else, so that the sums are the same on every device.
#[must_use]
pub fn blocks(n_bytes: usize) -> usize {
    n_bytes.div_ceil(UNIT_BYTES).div_ceil(THREADS).clamp(1, MAX_BLOCKS)
}

/// Bytes of a block's partial hash: a little-endian sum of mixed words.
pub const HASH_BYTES: usize = 8;

/// Bytes of a block's partial statistics: twelve little-endian words of 64 bits. Counts of NaN, +inf, -inf and zeros;
/// then, as f64, the finite numbers' minimum, maximum, sum and sum of squares; the sum and the sum of squares of those above
/// 2^480 in magnitude, times 2^-600 each; the sum of squares of those below 2^-480, times 2^600 each; one word unused.
pub const STATS_BYTES: usize = 96;

/// What numbers that are summed apart were divided by.
const APART: f64 = f64::from_bits((1023 + 600) << 52);

/// The hash that the blocks' sums make, of so many bytes.
#[must_use]
pub fn hash(partials: &[u8], n_bytes: u64) -> Digest {
    let words = partials.as_chunks::<HASH_BYTES>().0;
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    Digest::Hash { hash: Hash(super::hash::finish(sum, n_bytes)) }
}

/// The statistics that the blocks' parts make, of so many bytes of that dtype.
#[must_use]
pub fn stats(partials: &[u8], dtype: Dtype, n_bytes: u64) -> Digest {
    let elements = n_bytes * 8 / dtype.bitsize() as u64;
    let n = elements * decode::numbers_per_element(dtype) as u64;
    let mut all = Part::default();
    for partial in partials.as_chunks::<STATS_BYTES>().0 {
        all.add(partial);
    }
    Digest::Stats { stats: all.stats(n) }
}

struct Part {
    /// NaN, +inf, -inf, zeros.
    counts: [u64; 4],
    min: f64,
    max: f64,
    /// Of the numbers; of the large ones; squares of the middle, the large and the small ones.
    sums: [f64; 5],
}

impl Default for Part {
    fn default() -> Self {
        Self { counts: [0; 4], min: f64::INFINITY, max: f64::NEG_INFINITY, sums: [0.0; 5] }
    }
}

impl Part {
    fn add(&mut self, partial: &[u8; STATS_BYTES]) {
        let word = |i: usize| {
            let at = partial[i * 8..].first_chunk().expect("twelve words");
            u64::from_le_bytes(*at)
        };
        for (i, count) in self.counts.iter_mut().enumerate() {
            *count += word(i);
        }
        self.min = self.min.min(f64::from_bits(word(4)));
        self.max = self.max.max(f64::from_bits(word(5)));
        let [sum, squares, large_sum, large_squares, small_squares] =
            [6, 7, 8, 9, 10].map(|i| f64::from_bits(word(i)));
        for (sum, more) in self.sums.iter_mut().zip([sum, large_sum, squares, large_squares, small_squares]) {
            *sum += more;
        }
    }

    fn stats(&self, n: u64) -> Stats {
        let [nan, pos_inf, neg_inf, zero] = self.counts;
        let [sum, large_sum, squares, large, small] = self.sums;
        let count = (n - nan - pos_inf - neg_inf) as f64;
        let finite = (self.min <= self.max).then(|| Finite {
            // The sign of a zero is not one of its figures.
            min: self.min + 0.0,
            max: self.max + 0.0,
            mean: sum / count + large_sum / count * APART + 0.0,
            rms: if large > 0.0 {
                ((large + squares / APART / APART) / count).sqrt() * APART
            } else if squares > 0.0 {
                ((squares + small / APART / APART) / count).sqrt()
            } else {
                (small / count).sqrt() / APART
            },
            absmax: self.max.max(-self.min) + 0.0,
        });
        Stats { n, nan, pos_inf, neg_inf, zero, finite }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partial(counts: [u64; 4], numbers: [f64; 7]) -> Vec<u8> {
        let numbers = numbers.iter().flat_map(|x| x.to_le_bytes());
        counts.iter().flat_map(|n| n.to_le_bytes()).chain(numbers).chain([0; 8]).collect()
    }

    /// 3, -4 and 2^500, with one of each of the others, in two blocks; by hand.
    #[test]
    fn parts_are_added_up() {
        let large = f64::powi(2.0, -100);
        let mut parts = partial([1, 0, 1, 0], [-4.0, 3.0, -1.0, 25.0, 0.0, 0.0, 0.0]);
        let top = f64::powi(2.0, 500);
        parts.extend(partial([0, 1, 0, 1], [0.0, top, 0.0, 0.0, large, large * large, 0.0]));
        let Digest::Stats { stats } = stats(&parts, Dtype::F64, 7 * 8) else { panic!("statistics") };
        let finite = Finite { min: -4.0, max: top, mean: top / 4.0, rms: top / 2.0, absmax: top };
        assert_eq!(stats, Stats { n: 7, nan: 1, pos_inf: 1, neg_inf: 1, zero: 1, finite: Some(finite) });
    }

    #[test]
    fn squares_of_the_smallest_numbers_do_not_vanish() {
        let tiny = f64::from_bits(1);
        let grown = tiny * APART;
        let parts = partial([0; 4], [tiny, tiny, 2.0 * tiny, 0.0, 0.0, 0.0, 2.0 * grown * grown]);
        let Digest::Stats { stats } = stats(&parts, Dtype::F64, 16) else { panic!("statistics") };
        assert_eq!(stats.finite.unwrap().rms, tiny);
    }

    #[test]
    fn nothing_finite_has_no_figures() {
        let parts = partial([4, 0, 0, 0], [f64::INFINITY, f64::NEG_INFINITY, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let Digest::Stats { stats } = stats(&parts, Dtype::C64, 16) else { panic!("statistics") };
        assert_eq!(stats, Stats { n: 4, nan: 4, pos_inf: 0, neg_inf: 0, zero: 0, finite: None });
    }

    #[test]
    fn blocks_depend_on_the_bytes_alone() {
        assert_eq!([1, 4096, 4097, 1 << 22, 1 << 40].map(blocks), [1, 1, 2, 1024, 2048]);
    }
}
