//! The transposition of one plane: the source runs along the destination's rows' index, not along the rows.
//!
//! Done in square tiles as wide as a cache line: a tile's source lines are read whole into a buffer in the first-level
//! cache, then written out row by row. Reading and writing only whole lines keeps both sides at the speed of memory,
//! also where the source's stride is a power of two and its lines compete for the same sets of the cache.
#![expect(unsafe_code, reason = "reads and writes through raw pointers")]

const LINE_BYTES: usize = 64;

/// Copies `columns` × `runs` items, item (i, j) standing at `from + i·item_bytes + j·from_stride`, to
/// `to + i·to_stride + j·item_bytes`.
///
/// # Safety
/// All those items are readable, all those places writable and used by nobody else.
pub(crate) unsafe fn transpose(
    item_bytes: usize,
    from: *const u8,
    from_stride: isize,
    to: *mut u8,
    to_stride: usize,
    columns: usize,
    runs: usize,
) {
    let plane = Plane { from, from_stride, to, to_stride, columns, runs };
    // SAFETY: the caller's condition.
    unsafe {
        match item_bytes {
            1 => plane.copy::<u8, 64>(),
            2 => plane.copy::<u16, 32>(),
            4 => plane.copy::<u32, 16>(),
            8 => plane.copy::<u64, 8>(),
            16 => plane.copy::<u128, 4>(),
            n => unreachable!("no element has {n} bytes"),
        }
    }
}

struct Plane {
    from: *const u8,
    from_stride: isize,
    to: *mut u8,
    to_stride: usize,
    columns: usize,
    runs: usize,
}

impl Plane {
    /// # Safety
    /// As for [`transpose`].
    unsafe fn copy<T: Item, const N: usize>(&self) {
        const { assert!(N * size_of::<T>() == LINE_BYTES) };
        let mut tile = Tile([[T::default(); N]; N]);
        for i in (0..self.columns).step_by(N) {
            let n_columns = N.min(self.columns - i);
            for j in (0..self.runs).step_by(N) {
                let n_runs = N.min(self.runs - j);
                let from = self.from.wrapping_add(i * size_of::<T>());
                for (k, line) in tile.0.iter_mut().take(n_runs).enumerate() {
                    // SAFETY: `n_columns` items of run j + k.
                    unsafe {
                        let run = from.wrapping_offset((j + k) as isize * self.from_stride);
                        let n_bytes = n_columns * size_of::<T>();
                        if n_columns == N {
                            // A constant length becomes a few wide moves.
                            std::ptr::copy_nonoverlapping(run, line.as_mut_ptr().cast(), LINE_BYTES);
                        } else {
                            std::ptr::copy_nonoverlapping(run, line.as_mut_ptr().cast(), n_bytes);
                        }
                    }
                }
                // SAFETY: row i, item j of the destination: `n_columns` rows of `n_runs` items follow.
                unsafe {
                    let to = self.to.add(i * self.to_stride + j * size_of::<T>());
                    if n_columns == N && n_runs == N {
                        T::write_tile(&tile, to, self.to_stride);
                    } else {
                        write_part(&tile, to, self.to_stride, n_columns, n_runs);
                    }
                }
            }
        }
    }
}

#[repr(align(64))]
struct Tile<T, const N: usize>([[T; N]; N]);

/// Writes the tile's first `n_columns` columns as rows of `n_runs` items.
///
/// # Safety
/// They have room at `to`.
unsafe fn write_part<T: Copy, const N: usize>(
    tile: &Tile<T, N>,
    to: *mut u8,
    to_stride: usize,
    n_columns: usize,
    n_runs: usize,
) {
    for i in 0..n_columns {
        // SAFETY: the i-th row, which need not be aligned.
        unsafe {
            let row = to.add(i * to_stride).cast::<T>();
            for (j, line) in tile.0.iter().enumerate().take(n_runs) {
                row.add(j).write_unaligned(line[i]);
            }
        }
    }
}

/// An item of 1, 2, 4, 8 or 16 bytes.
trait Item: Copy + Default {
    /// Writes a whole tile.
    ///
    /// # Safety
    /// N rows of N items have room at `to`.
    unsafe fn write_tile<const N: usize>(tile: &Tile<Self, N>, to: *mut u8, to_stride: usize) {
        // SAFETY: the caller's condition.
        unsafe { write_part(tile, to, to_stride, N, N) };
    }
}

impl Item for u8 {}
impl Item for u32 {}
impl Item for u64 {}
impl Item for u128 {}

impl Item for u16 {
    /// Eight by eight items at a time in SSE2 registers, which every x86-64 has.
    #[cfg(target_arch = "x86_64")]
    unsafe fn write_tile<const N: usize>(tile: &Tile<u16, N>, to: *mut u8, to_stride: usize) {
        use std::arch::x86_64::*;
        for i in (0..N).step_by(8) {
            for j in (0..N).step_by(8) {
                // SAFETY: eight items from column i of lines j.. of the tile, and eight rows of eight items each at `to`.
                unsafe {
                    let line = |k: usize| _mm_loadu_si128(tile.0[j + k].as_ptr().add(i).cast());
                    let (a, b, c, d) = (line(0), line(1), line(2), line(3));
                    let (e, f, g, h) = (line(4), line(5), line(6), line(7));
                    // Pairs, then fours, then eights of the same column come together.
                    let (ab0, ab1) = (_mm_unpacklo_epi16(a, b), _mm_unpackhi_epi16(a, b));
                    let (cd0, cd1) = (_mm_unpacklo_epi16(c, d), _mm_unpackhi_epi16(c, d));
                    let (ef0, ef1) = (_mm_unpacklo_epi16(e, f), _mm_unpackhi_epi16(e, f));
                    let (gh0, gh1) = (_mm_unpacklo_epi16(g, h), _mm_unpackhi_epi16(g, h));
                    let (l0, l1) = (_mm_unpacklo_epi32(ab0, cd0), _mm_unpackhi_epi32(ab0, cd0));
                    let (l2, l3) = (_mm_unpacklo_epi32(ab1, cd1), _mm_unpackhi_epi32(ab1, cd1));
                    let (r0, r1) = (_mm_unpacklo_epi32(ef0, gh0), _mm_unpackhi_epi32(ef0, gh0));
                    let (r2, r3) = (_mm_unpacklo_epi32(ef1, gh1), _mm_unpackhi_epi32(ef1, gh1));
                    let rows = [(l0, r0), (l1, r1), (l2, r2), (l3, r3)];
                    for (k, (l, r)) in rows.into_iter().enumerate() {
                        let row = |n: usize| to.add((i + n) * to_stride + j * 2).cast::<__m128i>();
                        _mm_storeu_si128(row(2 * k), _mm_unpacklo_epi64(l, r));
                        _mm_storeu_si128(row(2 * k + 1), _mm_unpackhi_epi64(l, r));
                    }
                }
            }
        }
    }
}
