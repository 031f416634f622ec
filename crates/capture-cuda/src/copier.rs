//! The thread that brings a device's tensors to the host: it has a stream of its own wait for each, copy it into its room of
//! the host's ring, and settles the room when that is done.
//!
//! Several copies are under way at a time, so that the next begins when one ends. It alone waits for the device. Whatever
//! goes wrong here is the end of captures from this device; what becomes of a copy under way is then unknown, so the memory
//! it writes to is never used again.
#![expect(unsafe_code, reason = "calls a C library")]

use crate::error::CudaError;
use crate::event::Event;
use crate::gpu::Gpu;
use crate::pinned;
use crate::queue::Job;
use capture_core::device::{Outcome, Room};
use capture_core::signals;
use cudarc::driver::sys::CUstream;
use std::collections::VecDeque;
use std::ffi::c_uint;

/// Copies under way at a time.
const AT_ONCE: usize = 8;

/// The legacy default stream does not wait for ours, nor ours for it.
const NON_BLOCKING: c_uint = 1;

/// A copy under way.
struct Flight {
    room: Room,
    /// Whether it came through the device's ring.
    has_range: bool,
    ready: Event,
    /// When it is done; where there is no copy, `ready` says so.
    copied: Option<Event>,
    outcome: Outcome,
    /// Alive until the tensor was packed.
    _keep: Option<Box<dyn Send>>,
}

pub(crate) fn run(gpu: &'static Gpu) {
    signals::leave_to_the_model();
    let opened = gpu.context.enter().and_then(|visit| Ok((visit, stream(gpu)?)));
    let (_visit, stream) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let reason = gpu.explain(&error);
            gpu.queue.fail(&reason);
            return;
        }
    };
    let mut flights = VecDeque::new();
    loop {
        let job = match flights.len() {
            0 => Some(gpu.queue.wait()),
            AT_ONCE.. => None,
            _ => gpu.queue.take(),
        };
        let ran = match job {
            Some(job) => start(gpu, stream, job).map(|flight| flights.push_back(flight)),
            None => flights.pop_front().map_or(Ok(()), |flight| land(gpu, flight)),
        };
        if let Err(error) = ran {
            let reason = gpu.explain(&error);
            // First those behind, so that whoever sees this one settled finds the device failed.
            gpu.queue.fail(&reason);
            for flight in flights.drain(..) {
                flight.room.settle(Outcome::Unknown(reason.clone()));
            }
            return;
        }
    }
}

fn stream(gpu: &Gpu) -> Result<CUstream, CudaError> {
    let mut stream = std::ptr::null_mut();
    let driver = gpu.context.driver;
    // SAFETY: fills in the handle.
    driver.check("cuStreamCreate", unsafe {
        (driver.functions.stream_create)(&raw mut stream, NON_BLOCKING)
    })?;
    Ok(stream)
}

/// Queues the copy behind the tensor's packing.
fn start(gpu: &Gpu, stream: CUstream, job: Job) -> Result<Flight, CudaError> {
    let Job { mut room, range, ready, keep } = job;
    let context = &gpu.context;
    let Some(range) = range else {
        return Ok(Flight {
            room,
            has_range: false,
            ready,
            copied: None,
            outcome: Outcome::Filled,
            _keep: keep,
        });
    };
    if let Err(error) = pinned::pin(*context, &room) {
        // Another capture's ring may have better luck. The range is free when its turn comes and the stream has been there.
        let outcome = Outcome::Failed(gpu.explain(&error));
        return Ok(Flight { room, has_range: true, ready, copied: None, outcome, _keep: keep });
    }
    let copied = match ready.hold(context, stream).and_then(|()| gpu.events.take(context)) {
        Ok(copied) => copied,
        Err(error) => {
            room.settle(Outcome::Failed(gpu.explain(&error)));
            return Err(error);
        }
    };
    let (to, n_bytes) = room.bytes();
    let driver = context.driver;
    // SAFETY: the range is the job's until it is freed, the room until it is settled, and it is pinned.
    let code = unsafe { (driver.functions.copy_to_host)(to.cast(), range.at, n_bytes, stream) };
    let started = driver.check("cuMemcpyDtoHAsync", code).and_then(|()| copied.record(context, stream));
    match started {
        Ok(()) => {
            let (copied, outcome) = (Some(copied), Outcome::Filled);
            Ok(Flight { room, has_range: true, ready, copied, outcome, _keep: keep })
        }
        Err(error) => {
            room.settle(Outcome::Unknown(gpu.explain(&error)));
            Err(error)
        }
    }
}

/// Waits for a copy and settles its room.
fn land(gpu: &Gpu, flight: Flight) -> Result<(), CudaError> {
    let Flight { room, has_range, ready, copied, outcome, _keep } = flight;
    if let Err(error) = copied.as_ref().unwrap_or(&ready).wait(&gpu.context) {
        room.settle(Outcome::Unknown(gpu.explain(&error)));
        return Err(error);
    }
    room.settle(outcome);
    if has_range {
        gpu.queue.free();
    }
    gpu.events.give_back(ready);
    copied.into_iter().for_each(|copied| gpu.events.give_back(copied));
    Ok(())
}
