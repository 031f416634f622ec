//! Events, made once and used again: making one takes as long as recording it.
#![expect(unsafe_code, reason = "calls a C library")]

use crate::context::Context;
use crate::error::CudaError;
use cudarc::driver::sys::{CUevent, CUstream};
use std::ffi::c_uint;
use std::sync::{Mutex, PoisonError};

/// No clock, which would cost, and whoever waits sleeps.
const FLAGS: c_uint = 1 | 2;

/// An event of a device.
pub(crate) struct Event(CUevent);

// SAFETY: a handle that any thread may use.
unsafe impl Send for Event {}

/// Events that nobody uses.
#[derive(Default)]
pub(crate) struct Events(Mutex<Vec<Event>>);

impl Events {
    /// One that is free. To be called in the device's context.
    pub(crate) fn take(&self, context: &Context) -> Result<Event, CudaError> {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(event) = free {
            return Ok(event);
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: fills in the handle.
        let code = unsafe { (context.driver.functions.event_create)(&raw mut raw, FLAGS) };
        context.driver.check("cuEventCreate", code)?;
        Ok(Event(raw))
    }

    /// Nothing waits for it any more.
    pub(crate) fn give_back(&self, event: Event) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

impl Event {
    /// Marks where the stream is now.
    pub(crate) fn record(&self, context: &Context, stream: CUstream) -> Result<(), CudaError> {
        // SAFETY: an event and a stream of the context.
        let code = unsafe { (context.driver.functions.event_record)(self.0, stream) };
        context.driver.check("cuEventRecord", code)
    }

    /// Has a stream wait for it.
    pub(crate) fn hold(&self, context: &Context, stream: CUstream) -> Result<(), CudaError> {
        // SAFETY: as above.
        let code = unsafe { (context.driver.functions.stream_wait)(stream, self.0, 0) };
        context.driver.check("cuStreamWaitEvent", code)
    }

    /// Sleeps until the stream has come to it.
    pub(crate) fn wait(&self, context: &Context) -> Result<(), CudaError> {
        // SAFETY: an event of the context.
        let code = unsafe { (context.driver.functions.event_synchronize)(self.0) };
        context.driver.check("cuEventSynchronize", code)
    }
}
