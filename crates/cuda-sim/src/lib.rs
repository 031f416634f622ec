//! An adversarial CUDA driver in software: everything the real one may do late, torn or out of order, it does.
//!
//! It is a `libcuda.so.1` that is loaded by path before anybody looks for the driver. docs/cuda-sim.md says what it models.
//! The modules stand in reading order; `calls` are the entry points, `control` what tests steer it by.

mod code;
mod settings;
mod token;
mod host;
mod memory;
mod shim;
mod stream;
mod context;
mod capture;
mod submit;
mod calls;
mod control;

pub use calls::*;
pub use control::*;
