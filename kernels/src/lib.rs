//! tpcapture's CUDA kernels: their images, built beforehand from `cu/`, and what each is called with.
//!
//! Nothing is compiled when a server starts, and no toolkit is needed: `kernels/build.py` makes the images, and `make lint`
//! makes them again and compares.

pub mod image;
pub mod layout;
pub mod kernel;

pub use image::{Image, NoImage};
pub use kernel::{HASH, Kernel, PACK, SQUARE, STATS, THREADS, TURN, Units};
pub use layout::{Layout, MAX_RANK};
