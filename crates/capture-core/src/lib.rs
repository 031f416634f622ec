//! What of tpcapture lives inside the server: taps, selection, staging, the writer and the file format.
//!
//! The modules stand in reading order; each uses only those above it.

pub mod mesh;
pub mod name;
pub mod placement;
pub mod record;
pub mod select;
pub mod ranks;
pub mod steps;
pub mod config;
pub mod identity;

pub use config::Config;
pub use identity::Who;
pub use mesh::{Dim, Mesh};
pub use placement::{Placement, Placements, Sharding};
pub use record::{Identity, Record};
pub use safetensors::Dtype;
pub use select::Selection;

/// Version of the files this crate writes and reads (docs/format.md).
pub const FORMAT_VERSION: &str = "1";
