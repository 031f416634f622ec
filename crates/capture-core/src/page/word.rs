//! A word of the page: std's atomic in a process, loom's where loom explores every interleaving.

use std::sync::atomic::{self, AtomicU64, Ordering};

/// What the page's protocols need of a 64-bit atomic; each method is the atomic's own of that name.
#[expect(missing_docs, reason = "as std::sync::atomic::AtomicU64 documents them")]
pub trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn swap(&self, value: u64, order: Ordering) -> u64;
    fn fetch_or(&self, bits: u64, order: Ordering) -> u64;
    fn fetch_and(&self, bits: u64, order: Ordering) -> u64;
    fn compare_exchange(&self, old: u64, new: u64, order: Ordering, failure: Ordering) -> Result<u64, u64>;
    fn fence(order: Ordering);
    /// Keeps the compiler from moving accesses across, and nothing else: the processor's half of this fence is made
    /// by whoever needs it, see [`barrier`](super::barrier). loom, which knows no such thing, takes a whole fence.
    fn light_fence();
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.swap(value, order)
    }

    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_or(bits, order)
    }

    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_and(bits, order)
    }

    fn compare_exchange(&self, old: u64, new: u64, order: Ordering, failure: Ordering) -> Result<u64, u64> {
        self.compare_exchange(old, new, order, failure)
    }

    fn fence(order: Ordering) {
        atomic::fence(order);
    }

    #[inline(always)]
    fn light_fence() {
        atomic::compiler_fence(Ordering::SeqCst);
    }
}

#[cfg(loom)]
impl Word for loom::sync::atomic::AtomicU64 {
    fn load(&self, order: Ordering) -> u64 {
        self.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.store(value, order);
    }

    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.swap(value, order)
    }

    fn fetch_or(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_or(bits, order)
    }

    fn fetch_and(&self, bits: u64, order: Ordering) -> u64 {
        self.fetch_and(bits, order)
    }

    fn compare_exchange(&self, old: u64, new: u64, order: Ordering, failure: Ordering) -> Result<u64, u64> {
        self.compare_exchange(old, new, order, failure)
    }

    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }

    fn light_fence() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}
