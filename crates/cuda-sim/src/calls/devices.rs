//! The driver itself, and its devices.

use crate::code::{self, Code, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_INITIALIZED, STUB_LIBRARY};
use crate::context::IS_INITIALIZED;
use crate::settings;
use std::ffi::{c_char, c_int, c_uint};
use std::sync::atomic::Ordering::SeqCst;

fn known(device: c_int) -> Result<(), Code> {
    match IS_INITIALIZED.load(SeqCst) {
        false => Err(NOT_INITIALIZED),
        true if (0..settings::devices()).contains(&device) => Ok(()),
        true => Err(INVALID_DEVICE),
    }
}

entry_points! {
    fn cuInit(_flags: c_uint) {
        if settings::driver_version() == 0 {
            return Err(STUB_LIBRARY);
        }
        if settings::devices() == 0 {
            return Err(NO_DEVICE);
        }
        IS_INITIALIZED.store(true, SeqCst);
        Ok(())
    }

    fn cuDriverGetVersion(version: *mut c_int) {
        *version = settings::driver_version();
        Ok(())
    }

    fn cuGetErrorName(code: Code, text: *mut *const c_char) {
        *text = code::name(code).map_or(std::ptr::null(), std::ffi::CStr::as_ptr);
        if (*text).is_null() { Err(INVALID_VALUE) } else { Ok(()) }
    }

    fn cuDeviceGetCount(count: *mut c_int) {
        *count = settings::devices();
        known(0)
    }

    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) {
        known(ordinal)?;
        *device = ordinal;
        Ok(())
    }

    fn cuDeviceGetName(name: *mut c_char, n_bytes: c_int, device: c_int) {
        known(device)?;
        let text = settings::device_name();
        let n = text.len().min((n_bytes - 1) as usize);
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), name, n);
        *name.add(n) = 0;
        Ok(())
    }

    fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, device: c_int) {
        known(device)?;
        *value = match attribute {
            16 => 188,                      // multiprocessors
            75 => settings::capability().0, // compute capability, major
            76 => settings::capability().1, // and minor
            _ => 1,
        };
        Ok(())
    }
}
