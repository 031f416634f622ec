//! What of tpcapture lives inside the server: taps, selection, staging, the writer and the file format.
//!
//! The modules stand in reading order; each uses only those above it.

mod memory;
pub mod mesh;
pub mod name;
mod pack;
pub mod page;
pub mod placement;
pub mod record;
pub mod ring;
mod sync;
mod transpose;
pub mod view;

pub use mesh::{Dim, Mesh};
pub use placement::{Placement, Placements, Sharding};
pub use record::{Identity, Record};
pub use safetensors::Dtype;

/// Version of the files this crate writes and reads (docs/format.md).
pub const FORMAT_VERSION: &str = "1";
