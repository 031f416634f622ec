//! What of tpcapture lives inside the server: taps, selection, staging, the writer and the file format.
//!
//! The modules stand in reading order; each uses only those above it.

pub mod mesh;
pub mod notation;
pub mod placement;
pub mod name;
pub mod record;
pub mod tags;
pub mod stored;
pub mod header;
pub mod header_text;
pub mod journal;
pub mod rundir;
pub mod manifest;
mod writeback;
mod open_segment;
pub mod segment;
pub mod recover;
pub mod select;
pub mod ranks;
pub mod steps;
pub mod config;
pub mod identity;
pub mod request;
pub mod answer;
pub mod page;
mod sync;
mod memory;
pub mod ring;
pub mod strided;
pub mod device;
pub mod view;
mod transpose;
pub mod pack;
pub mod vectors;
pub mod float;
pub mod decode;
pub mod digest;
pub mod digested;
pub mod notice;
pub mod signals;
mod ledger;
mod leavings;
mod engine;
mod writer;
mod session;
mod state;
mod publish;
pub mod heed;
pub mod control;
mod launch;
mod ticket;
pub mod tap;

pub use answer::Answer;
pub use config::Config;
pub use digest::{Digest, Hash, Stats};
pub use digested::Digested;
pub use header::{Header, HeaderError};
pub use identity::Who;
pub use journal::{Journal, JournalError};
pub use manifest::Manifest;
pub use mesh::{Dim, Mesh};
pub use placement::{Placement, Placements, Sharding};
pub use record::{Identity, Record};
pub use request::Request;
pub use rundir::{RunDir, RunDirError, Space};
pub use safetensors::Dtype;
pub use segment::{Limits, SegmentWriter, WriteError};
pub use select::Selection;
pub use stored::{Stored, StoredError};
pub use tags::{Tags, TagsError};
pub use tap::{Tap, step};
pub use view::{Element, TensorView};

/// Version of the files this crate writes and reads (docs/format.md).
pub const FORMAT_VERSION: &str = "1";
