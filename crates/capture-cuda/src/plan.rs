//! How a tensor is worked on: by which kernel, in which units, in how many blocks.

use crate::kernels::Which;
use capture_core::Dtype;
use capture_core::device::Work;
use capture_core::digest::partial;
use capture_core::strided::Items;
use capture_kernels::{Layout, MAX_RANK, SQUARE, STATS, THREADS, Units};

/// A thread moves some units, so that setting it up is worth it, once there are so many blocks that every device is busy.
/// None needs more than the most.
const UNITS_OF_A_THREAD: u64 = 4;
const BUSY_BLOCKS: u64 = 1024;
const MAX_BLOCKS: u64 = 4096;

/// From so many units on an index needs 64 bits.
const WIDE: u64 = 1 << 31;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Contiguous bytes.
    Copy {
        n_bytes: usize,
    },
    Turn(Turn),
    Kernel(Launch),
}

/// A kernel over many units or items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) which: Which,
    pub(crate) blocks: u32,
    /// Units or items.
    pub(crate) count: u64,
    /// How the items of a digest lie.
    pub(crate) units: Units,
    pub(crate) layout: Layout,
}

/// A matrix whose items lie column by column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) item_bytes: usize,
    pub(crate) blocks: u32,
    pub(crate) rows: u64,
    pub(crate) columns: u64,
    /// Bytes from one column to the next.
    pub(crate) stride: i64,
}

impl Plan {
    /// For items that are written to `to`, a multiple of 16 where it is the device's memory.
    pub(crate) fn new(work: Work, items: &Items<'_>, to: u64) -> Result<Self, String> {
        match work {
            Work::Copy if items.is_run() => Ok(Self::Copy { n_bytes: items.n_bytes() }),
            Work::Copy => match turn(items, to) {
                Some(turn) => Ok(Self::Turn(turn)),
                None => pack(items, to).map(Self::Kernel),
            },
            Work::Hash => {
                let item_bytes = items.item_bytes;
                digest(items, item_bytes, Which::Hash { item_bytes }).map(Self::Kernel)
            }
            Work::Stats { dtype } => {
                // Complex numbers are twice as many real ones.
                let dtype = if dtype == Dtype::C64 { Dtype::F32 } else { dtype };
                if !STATS.iter().any(|kernel| kernel.key == dtype) {
                    return Err(format!("a device has no statistics of {dtype}"));
                }
                let number_bytes = dtype.bitsize().div_ceil(8);
                digest(items, number_bytes, Which::Stats { dtype }).map(Self::Kernel)
            }
        }
    }
}

/// Where neighbours of a column are neighbours in memory, reading row by row would fetch whole lines for single items.
fn turn(items: &Items<'_>, to: u64) -> Option<Turn> {
    let Items { first, item_bytes, dims: &[row, column] } = *items else { return None };
    let is_natural =
        (first as u64 | to | column.stride.unsigned_abs() as u64).is_multiple_of(item_bytes as u64);
    if row.stride != item_bytes as isize || !is_natural {
        return None;
    }
    let (rows, columns) = (row.size as u64, column.size as u64);
    let blocks = (rows.div_ceil(SQUARE) * columns.div_ceil(SQUARE)).clamp(1, MAX_BLOCKS) as u32;
    Some(Turn { item_bytes, blocks, rows, columns, stride: column.stride as i64 })
}

/// The tensor in units of 1 to 16 bytes, the largest that divide addresses, strides and the innermost run.
fn in_units(items: &Items<'_>, to: u64) -> Result<(usize, Layout), String> {
    let (outer, run_bytes) = match items.dims.split_last() {
        Some((last, outer)) if last.stride == items.item_bytes as isize => {
            (outer, last.size * items.item_bytes)
        }
        _ => (items.dims, items.item_bytes),
    };
    // The largest power of two that divides all of them: their lowest bit.
    let strides = outer.iter().fold(0, |bits, dim| bits | dim.stride.unsigned_abs());
    let together = (items.first as usize | strides | run_bytes | 16) as u64 | to;
    let unit_bytes = 1usize << together.trailing_zeros();
    let run = ((run_bytes / unit_bytes) as u64, unit_bytes as i64);
    let run = (run.0 > 1).then_some(run);
    let dims = outer.iter().map(|dim| (dim.size as u64, dim.stride as i64)).chain(run);
    Ok((unit_bytes, layout(dims)?))
}

fn pack(items: &Items<'_>, to: u64) -> Result<Launch, String> {
    let (unit_bytes, layout) = in_units(items, to)?;
    let (count, threads) = ((items.n_bytes() / unit_bytes) as u64, u64::from(THREADS));
    let few = count.div_ceil(threads).min(BUSY_BLOCKS);
    let blocks = count.div_ceil(threads * UNITS_OF_A_THREAD).max(few).clamp(1, MAX_BLOCKS) as u32;
    let which = Which::Pack { unit_bytes, is_wide: count >= WIDE };
    Ok(Launch { which, blocks, count, units: Units::Items, layout })
}

fn digest(items: &Items<'_>, number_bytes: usize, which: Which) -> Result<Launch, String> {
    let n_bytes = items.n_bytes();
    let count = (n_bytes / number_bytes) as u64;
    let blocks = partial::blocks(n_bytes) as u32;
    let is_run = items.is_run();
    let by_items = || {
        if is_run {
            return layout([(count, number_bytes as i64)].into_iter());
        }
        let parts = (items.item_bytes / number_bytes) as u64;
        let parts = (parts > 1).then_some((parts, number_bytes as i64));
        layout(items.dims.iter().map(|dim| (dim.size as u64, dim.stride as i64)).chain(parts))
    };
    let (units, layout) = match in_units(items, 0) {
        _ if is_run && (items.first as usize).is_multiple_of(16) => (Units::Run, by_items()?),
        Ok((16, layout)) if !is_run => (Units::Layout, layout),
        _ => (Units::Items, by_items()?),
    };
    Ok(Launch { which, blocks, count, units, layout })
}

fn layout(dims: impl Iterator<Item = (u64, i64)>) -> Result<Layout, String> {
    Layout::new(dims).ok_or_else(|| {
        format!("more than {MAX_RANK} of its dimensions cannot be merged: capture x.contiguous()")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture_core::strided::Dim;

    fn items(first: usize, item_bytes: usize, dims: &[Dim]) -> Items<'_> {
        Items { first: first as *const u8, item_bytes, dims }
    }

    #[track_caller]
    fn check_pack(
        first: usize,
        item_bytes: usize,
        dims: &[(usize, isize)],
        unit: usize,
        layout: &[(u64, i64)],
    ) {
        let dims: Vec<_> = dims.iter().map(|&(size, stride)| Dim { size, stride }).collect();
        let Plan::Kernel(launch) = Plan::new(Work::Copy, &items(first, item_bytes, &dims), 0).unwrap() else {
            panic!("expected a kernel");
        };
        assert_eq!(launch.which, Which::Pack { unit_bytes: unit, is_wide: false });
        assert_eq!(launch.layout, Layout::new(layout.iter().copied()).unwrap());
        assert_eq!(launch.count, layout.iter().map(|dim| dim.0).product::<u64>());
    }

    /// 3 rows of 64 bf16 numbers in rows of 192: 128 bytes each, 16 at a time.
    #[test]
    fn rows_are_moved_in_the_largest_units_that_fit() {
        check_pack(0x1000, 2, &[(3, 384), (64, 2)], 16, &[(3, 384), (8, 16)]);
        check_pack(0x1004, 2, &[(3, 384), (64, 2)], 4, &[(3, 384), (32, 4)]);
        check_pack(0x1000, 2, &[(3, 386), (64, 2)], 2, &[(3, 386), (64, 2)]);
        check_pack(0x1000, 2, &[(3, 384), (5, 2)], 2, &[(3, 384), (5, 2)]);
    }

    #[test]
    fn items_that_stand_apart_are_moved_one_by_one() {
        check_pack(0x1000, 2, &[(64, 2 * 7), (7, 4)], 2, &[(64, 14), (7, 4)]);
        check_pack(0x1001, 2, &[(64, 2), (7, 256)], 1, &[(64, 2), (7, 256), (2, 1)]);
        check_pack(0x1000, 16, &[(5, 32)], 16, &[(5, 32)]);
        check_pack(0x1001, 4, &[(5, -8)], 1, &[(5, -8), (4, 1)]);
        check_pack(0x1000, 4, &[(5, 0)], 4, &[(5, 0)]);
    }

    #[test]
    fn complex_numbers_are_two() {
        let dims = [Dim { size: 6, stride: 16 }];
        let plan = Plan::new(Work::Stats { dtype: Dtype::C64 }, &items(16, 8, &dims), 0).unwrap();
        let Plan::Kernel(launch) = plan else { panic!("expected a kernel") };
        assert_eq!((launch.count, launch.blocks), (12, 1));
        assert_eq!(launch.layout, Layout::new([(6, 16), (2, 4)].into_iter()).unwrap());
        assert_eq!(launch.which, Which::Stats { dtype: Dtype::F32 });
    }

    #[test]
    fn a_run_is_read_whole_only_from_a_multiple_of_16() {
        let dims = [Dim { size: 100, stride: 2 }];
        for (first, expected) in [(32, Units::Run), (34, Units::Items)] {
            let Plan::Kernel(launch) = Plan::new(Work::Hash, &items(first, 2, &dims), 0).unwrap() else {
                panic!("expected a kernel")
            };
            assert_eq!((launch.units, launch.layout.rank), (expected, 1));
        }
    }

    /// Rows of 64 bf16 numbers in rows of 192.
    #[test]
    fn rows_are_digested_in_units_of_16_bytes_where_they_fit() {
        let rows = |width| [Dim { size: 3, stride: 384 }, Dim { size: width, stride: 2 }];
        let whole = digest(&items(0x1000, 2, &rows(64)), 2, Which::Hash { item_bytes: 2 }).unwrap();
        assert_eq!((whole.units, whole.count), (Units::Layout, 192));
        assert_eq!(whole.layout, Layout::new([(3, 384), (8, 16)].into_iter()).unwrap());
        let cut = digest(&items(0x1000, 2, &rows(63)), 2, Which::Hash { item_bytes: 2 }).unwrap();
        assert_eq!(
            (cut.units, cut.layout),
            (Units::Items, Layout::new([(3, 384), (63, 2)].into_iter()).unwrap())
        );
    }

    /// 40 rows and 70 columns, the columns 128 bytes apart: two squares by three.
    #[test]
    fn a_transposed_matrix_is_turned() {
        let dims = [Dim { size: 40, stride: 2 }, Dim { size: 70, stride: 128 }];
        let expected = Turn { item_bytes: 2, blocks: 6, rows: 40, columns: 70, stride: 128 };
        assert_eq!(Plan::new(Work::Copy, &items(0x1002, 2, &dims), 0), Ok(Plan::Turn(expected)));
    }

    /// Every device is busy before a thread has a second unit to move.
    #[test]
    fn few_units_are_spread_over_many_blocks() {
        let blocks = |rows| {
            let dims = [Dim { size: rows, stride: 64 }, Dim { size: 2, stride: 16 }];
            pack(&items(0, 16, &dims), 0).unwrap().blocks
        };
        assert_eq!([1, 256, 512 << 8, 2048 << 8, 1 << 30].map(blocks), [1, 2, 1024, 1024, 4096]);
    }

    #[test]
    fn nine_dimensions_are_too_many() {
        let dims = [Dim { size: 2, stride: 64 }; 9];
        assert!(Plan::new(Work::Copy, &items(0, 4, &dims), 0).unwrap_err().starts_with("more than 8"));
    }
}
