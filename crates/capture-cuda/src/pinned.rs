//! The host's ring, pinned so that a device can write to it by itself.
#![expect(unsafe_code, reason = "calls a C library")]

use crate::context::Context;
use crate::error::CudaError;
use capture_core::device::Room;
use std::collections::BTreeSet;
use std::ffi::c_uint;
use std::sync::{Mutex, PoisonError};

/// For every context, and with an address for kernels.
const FLAGS: c_uint = 1 | 2;

/// Where the rings begin that are pinned.
static PINNED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Pins the memory that the room is part of, unless it is; until just before it goes. Takes some tens of milliseconds for
/// a ring of the usual size. To be called in a context.
pub(crate) fn pin(context: Context, room: &Room) -> Result<(), CudaError> {
    let (at, n_bytes) = room.memory();
    let mut pinned = PINNED.lock().unwrap_or_else(PoisonError::into_inner);
    if pinned.contains(&(at as usize)) {
        return Ok(());
    }
    // SAFETY: memory that stays mapped until `Pinned` is dropped.
    let code = unsafe { (context.driver.functions.host_register)(at.cast(), n_bytes, FLAGS) };
    context.driver.check("cuMemHostRegister", code)?;
    pinned.insert(at as usize);
    drop(pinned);
    room.keep(Box::new(Pinned { context, at: at as usize }));
    Ok(())
}

/// The address by which kernels know a byte of pinned memory.
pub(crate) fn address_for_kernels(context: &Context, at: *mut u8) -> Result<u64, CudaError> {
    let mut address = 0;
    // SAFETY: fills in the address.
    let code = unsafe { (context.driver.functions.host_address)(&raw mut address, at.cast(), 0) };
    context.driver.check("cuMemHostGetDevicePointer", code)?;
    Ok(address)
}

struct Pinned {
    context: Context,
    at: usize,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut pinned = PINNED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(_visit) = self.context.enter() {
            // SAFETY: pinned by `pin`; no copy to it is under way, or it would not be let go of.
            unsafe { (self.context.driver.functions.host_unregister)(self.at as *mut _) };
        }
        pinned.remove(&self.at);
    }
}
