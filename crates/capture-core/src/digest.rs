//! What is kept of a tensor where its bytes are not: statistics of its numbers, or a hash of its bytes.
//!
//! Both go over the record's bytes, the logical, C-ordered ones, once and in a fixed order, so that the same tensor gives
//! the same figures whatever its strides, the number of threads or the processor. docs/format.md has the formulas for
//! whoever computes them elsewhere.
#![expect(unsafe_code, reason = "reads memory that only the view's maker vouches for")]

use crate::pack::Source;
use crate::view::TensorView;
use serde::{Deserialize, Serialize};
use std::convert::Infallible;

mod hash;
mod stats;
pub mod partial;

pub use hash::Hash;
pub use stats::{Finite, Stats};

/// What is kept of a record in place of its bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "mode", rename_all = "lowercase")]
pub enum Digest {
    /// Statistics of its numbers.
    Stats {
        /// They.
        stats: Stats,
    },
    /// A hash of its bytes.
    Hash {
        /// It.
        hash: Hash,
    },
}

impl Digest {
    /// The mode that keeps it, as a selection writes it.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        match self {
            Self::Stats { .. } => "stats",
            Self::Hash { .. } => "hash",
        }
    }

    /// The statistics.
    #[must_use]
    pub fn stats(&self) -> Option<&Stats> {
        if let Self::Stats { stats } = self { Some(stats) } else { None }
    }

    /// The hash.
    #[must_use]
    pub fn hash(&self) -> Option<Hash> {
        if let Self::Hash { hash } = self { Some(*hash) } else { None }
    }
}

/// Bytes that are looked at together: whole words, and whole blocks of every dtype's numbers. They stay in the cache
/// between being copied there and being read.
const CHUNK: usize = 3 << 15;

/// Statistics of a tensor's numbers, as its record would hold them.
#[must_use]
pub fn stats(view: &TensorView<'_>) -> Stats {
    stats::of(view.element().recorded_dtype(), |take| for_each_chunk(view, take))
}

/// The hash of a tensor's bytes, as its record would hold them.
#[must_use]
pub fn hash(view: &TensorView<'_>) -> Hash {
    hash::of(|take| for_each_chunk(view, take))
}

/// The hash of a record's bytes that are handed over in pieces of whole words, but for the last.
///
/// # Errors
/// What `each` fails with.
pub fn hash_of_bytes<E>(each: impl FnOnce(&mut dyn FnMut(&[u8])) -> Result<(), E>) -> Result<Hash, E> {
    let mut result = Ok(());
    let hash = hash::of(|take| result = each(take));
    result.map(|()| hash)
}

/// Statistics of a record's bytes of that dtype.
#[cfg(test)]
fn stats_of_bytes(dtype: safetensors::Dtype, bytes: &[u8]) -> Stats {
    stats::of(dtype, |take| bytes.chunks(CHUNK).for_each(take))
}

/// Hands over the record's bytes in order, in chunks of [`CHUNK`] but for the last. Each is a copy, however the tensor
/// lies, as another thread of the model may write to its memory meanwhile.
fn for_each_chunk(view: &TensorView<'_>, take: &mut dyn FnMut(&[u8])) {
    assert!(view.memory().is_none(), "only a device reads its memory");
    let source = Source::new(view);
    let mut held = vec![0; 2 * source.n_bytes().min(CHUNK)];
    let mut n_held = 0;
    let copied: Result<(), Infallible> = source.for_each_block(CHUNK, &mut |block| {
        let n_bytes = block.n_bytes();
        // SAFETY: fewer than a chunk are held and a block is no longer than one; the view's maker vouches for its memory.
        unsafe { block.copy_to(held[n_held..n_held + n_bytes].as_mut_ptr()) };
        n_held += n_bytes;
        if n_held >= CHUNK {
            take(&held[..CHUNK]);
            held.copy_within(CHUNK..n_held, 0);
            n_held -= CHUNK;
        }
        Ok(())
    });
    let Ok(()) = copied;
    if n_held > 0 {
        take(&held[..n_held]);
    }
}

#[cfg(test)]
mod tests;
