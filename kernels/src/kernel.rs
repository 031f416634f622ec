//! What the kernels are called, and with which arguments.
//!
//! | family | arguments |
//! |---|---|
//! | [`PACK`] | source, destination (addresses), count of units (`u64`), [`Layout`](crate::Layout) of the units |
//! | [`TURN`] | source, destination, rows and columns of the result (`u64` each), bytes from one of the source's rows to the next (`i64`) |
//! | [`STATS`], [`HASH`] | source, count of items (`u64`), how they lie ([`Units`]), destination of a partial result a block, [`Layout`](crate::Layout) of the items or units |

use safetensors::Dtype;
use std::ffi::CStr;

/// Threads of a block, in every kernel.
pub const THREADS: u32 = 256;

/// Rows and columns of the squares that [`TURN`] goes by.
pub const SQUARE: u64 = 32;

/// One kernel, and what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kernel<Key> {
    /// Which of its family.
    pub key: Key,
    /// Its name in the image.
    pub name: &'static CStr,
}

const fn kernel<Key>(key: Key, name: &'static CStr) -> Kernel<Key> {
    Kernel { key, name }
}

/// Copies a strided tensor into contiguous bytes: by bytes of a unit, and whether it counts them in 64 bits, which it has to
/// from 2³¹ units on.
pub static PACK: [Kernel<(usize, bool)>; 10] = [
    kernel((1, false), c"tpc_pack_1_u32"),
    kernel((1, true), c"tpc_pack_1_u64"),
    kernel((2, false), c"tpc_pack_2_u32"),
    kernel((2, true), c"tpc_pack_2_u64"),
    kernel((4, false), c"tpc_pack_4_u32"),
    kernel((4, true), c"tpc_pack_4_u64"),
    kernel((8, false), c"tpc_pack_8_u32"),
    kernel((8, true), c"tpc_pack_8_u64"),
    kernel((16, false), c"tpc_pack_16_u32"),
    kernel((16, true), c"tpc_pack_16_u64"),
];

/// How the items of a digest lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Units {
    /// As the layout says, item by item.
    Items = 0,
    /// One behind the other from a multiple of 16 bytes on.
    Run = 1,
    /// As the layout says, in units of 16 bytes, each at a multiple of 16.
    Layout = 2,
}

/// Copies a transposed matrix, whose items lie column by column: by bytes of an item.
pub static TURN: [Kernel<usize>; 5] = [
    kernel(1, c"tpc_turn_1"),
    kernel(2, c"tpc_turn_2"),
    kernel(4, c"tpc_turn_4"),
    kernel(8, c"tpc_turn_8"),
    kernel(16, c"tpc_turn_16"),
];

/// Sums up the hash of a tensor's bytes: by bytes of an item. A partial result is one `u64`.
pub static HASH: [Kernel<usize>; 5] = [
    kernel(1, c"tpc_hash_1"),
    kernel(2, c"tpc_hash_2"),
    kernel(4, c"tpc_hash_4"),
    kernel(8, c"tpc_hash_8"),
    kernel(16, c"tpc_hash_16"),
];

/// Statistics of a tensor's numbers: by their dtype; complex numbers are given as twice as many real ones. A partial result
/// is 96 bytes.
pub static STATS: [Kernel<Dtype>; 19] = [
    kernel(Dtype::BOOL, c"tpc_stats_bool"),
    kernel(Dtype::U8, c"tpc_stats_u8"),
    kernel(Dtype::I8, c"tpc_stats_i8"),
    kernel(Dtype::U16, c"tpc_stats_u16"),
    kernel(Dtype::I16, c"tpc_stats_i16"),
    kernel(Dtype::U32, c"tpc_stats_u32"),
    kernel(Dtype::I32, c"tpc_stats_i32"),
    kernel(Dtype::U64, c"tpc_stats_u64"),
    kernel(Dtype::I64, c"tpc_stats_i64"),
    kernel(Dtype::F16, c"tpc_stats_f16"),
    kernel(Dtype::BF16, c"tpc_stats_bf16"),
    kernel(Dtype::F32, c"tpc_stats_f32"),
    kernel(Dtype::F64, c"tpc_stats_f64"),
    kernel(Dtype::F8_E4M3, c"tpc_stats_e4m3"),
    kernel(Dtype::F8_E5M2, c"tpc_stats_e5m2"),
    kernel(Dtype::F8_E4M3FNUZ, c"tpc_stats_e4m3fnuz"),
    kernel(Dtype::F8_E5M2FNUZ, c"tpc_stats_e5m2fnuz"),
    kernel(Dtype::F8_E8M0, c"tpc_stats_e8m0"),
    kernel(Dtype::F4, c"tpc_stats_e2m1"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;

    /// A name that an image lacks would be found out on the device.
    #[test]
    fn every_image_has_every_kernel() {
        let names = PACK.iter().map(|k| k.name).chain(HASH.iter().map(|k| k.name));
        let names = names.chain(TURN.iter().map(|k| k.name));
        let names: Vec<_> = names.chain(STATS.iter().map(|k| k.name)).collect();
        for (major, minor) in [(12, 0), (10, 0), (9, 0), (8, 9), (8, 0), (13, 0)] {
            let image = Image::for_capability(major, minor).unwrap();
            for name in &names {
                let name = name.to_bytes();
                let is_there = image.bytes.windows(name.len()).any(|bytes| bytes == name);
                assert!(is_there, "{} lacks {}", image.name, String::from_utf8_lossy(name));
            }
        }
    }
}
