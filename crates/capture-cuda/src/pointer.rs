//! Whose memory an address is, by the driver's own books: what a framework says is checked before a kernel reads it, as a wrong
//! address would take the whole context down.
#![expect(unsafe_code, reason = "calls a C library")]

use crate::driver::driver;
use cudarc::driver::sys::CUpointer_attribute as Attribute;
use std::ffi::{c_int, c_uint, c_void};

/// Where memory lies that CUDA knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home {
    /// On a device, or managed by the driver and owned by it.
    Device(i32),
    /// On the host, pinned: the processor reads it, and streams do.
    Pinned(i32),
}

/// Where the bytes from `first` to `last` lie.
///
/// # Errors
/// Where CUDA does not know either of them, or they belong to two devices.
pub fn home(first: *const u8, last: *const u8) -> Result<Home, String> {
    let (first_home, last_home) = (home_of(first)?, home_of(last)?);
    if first_home == last_home {
        Ok(first_home)
    } else {
        Err(format!("its memory from {first:?} to {last:?} is not of one device"))
    }
}

fn home_of(at: *const u8) -> Result<Home, String> {
    let driver = driver().map_err(|error| error.to_string())?;
    let (mut kind, mut ordinal): (c_uint, c_int) = (0, -1);
    let mut which = [
        Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE as c_int,
        Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL as c_int,
    ];
    let mut values: [*mut c_void; 2] = [(&raw mut kind).cast(), (&raw mut ordinal).cast()];
    // SAFETY: two attributes, and a place for each; the call never reads the memory itself.
    let code = unsafe {
        let n = which.len() as c_uint;
        (driver.functions.pointer_attributes)(n, which.as_mut_ptr(), values.as_mut_ptr(), at as u64)
    };
    driver.check("cuPointerGetAttributes", code).map_err(|error| error.to_string())?;
    // Of memory that it does not know the call says type 0.
    match kind {
        1 => Ok(Home::Pinned(ordinal)),
        2 | 4 => Ok(Home::Device(ordinal)),
        _ => Err(format!("CUDA knows no memory at {at:?}")),
    }
}
