//! Tensors in the memory of CUDA devices: the only crate of tpcapture that calls the driver.
//!
//! It is a guest in a process whose contexts and streams belong to a framework. Three floors: `functions` are the driver's,
//! raw; `driver` checks what they return; the rest owns what it makes. Every entry from a model's thread leaves the thread's
//! current context and capture mode as they were, and nothing waits for a stream on a model's thread.
//!
//! The life of a tensor: `lane` has its stream pack it into the device's ring and records an event; `copier`, a thread, has
//! a stream of its own wait for that event and copy to the host's ring; when that is done the room is settled and the
//! writer of `capture-core` takes it.

mod error;
mod functions;
mod driver;
mod context;
mod event;
mod pinned;
mod kernels;
mod plan;
mod device_ring;
mod queue;
mod gpu;
mod copier;
mod ready;
mod pointer;
mod lane;

pub use driver::Unavailable;
pub use gpu::Gpu;
pub use lane::{Lane, lane};
pub use pointer::{Home, home};
pub use ready::prepare;
