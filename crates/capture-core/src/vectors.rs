//! Loops that the compiler vectorises, built for the widest vectors of the processor they run on.
//!
//! Sums are kept in a fixed number of lanes and added up in a fixed order, and a multiplication is fused with an addition
//! where the code says so and nowhere else, so that every processor comes to the same bits. One that cannot fuse, as of
//! before 2013, does it slowly.

#![expect(unsafe_code, reason = "functions built for vectors that not every processor has")]

/// How many sums run side by side.
pub const LANES: usize = 16;

/// A loop over plain slices. `run` is to be `#[inline(always)]`, and so is all that it calls, as only what is inlined is built
/// for wider vectors and fuses in one instruction. The standard library's `map` and `for_each` of arrays and ranges may
/// not be: such loops are written out.
pub trait Loop {
    /// What it finds.
    type Found;
    /// Runs it.
    fn run(self) -> Self::Found;
}

/// Runs the loop.
pub fn run<L: Loop>(work: L) -> L::Found {
    #[cfg(target_arch = "x86_64")]
    {
        let is_fused = is_x86_feature_detected!("fma");
        if is_fused && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            // SAFETY: the processor has the instructions that the function is built for.
            return unsafe { avx512(work) };
        }
        if is_fused && is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { avx2(work) };
        }
    }
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,fma")]
fn avx512<L: Loop>(work: L) -> L::Found {
    work.run()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn avx2<L: Loop>(work: L) -> L::Found {
    work.run()
}
