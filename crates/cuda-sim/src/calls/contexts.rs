//! Contexts and each thread's stack of them.

use crate::capture;
use crate::code::{INVALID_CONTEXT, INVALID_VALUE};
use crate::context::{self, Handle, REGISTRY, STACK, new_handle, sticky};
use crate::settings::lock;
use crate::submit;
use std::ffi::{c_int, c_uint};

entry_points! {
    fn cuDevicePrimaryCtxRetain(handle: *mut Handle, device: c_int) {
        let registry = &mut *lock(&REGISTRY);
        let primary = registry.primary.entry(device).or_insert_with(|| (new_handle(), 0));
        primary.1 += 1;
        registry.contexts.insert(primary.0, device);
        *handle = primary.0;
        Ok(())
    }

    fn cuDevicePrimaryCtxRelease_v2(device: c_int) {
        let mut registry = lock(&REGISTRY);
        let primary = registry.primary.get_mut(&device).filter(|primary| primary.1 > 0);
        primary.ok_or(INVALID_CONTEXT)?.1 -= 1;
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: c_int, flags: *mut c_uint, active: *mut c_int) {
        *flags = 0;
        *active = c_int::from(lock(&REGISTRY).primary.get(&device).is_some_and(|primary| primary.1 > 0));
        Ok(())
    }

    fn cuCtxCreate_v2(handle: *mut Handle, _flags: c_uint, device: c_int) {
        let created = new_handle();
        lock(&REGISTRY).contexts.insert(created, device);
        STACK.with_borrow_mut(|stack| stack.push(created));
        *handle = created;
        Ok(())
    }

    fn cuCtxGetCurrent(handle: *mut Handle) {
        *handle = STACK.with_borrow(|stack| stack.last().copied().unwrap_or(0));
        Ok(())
    }

    fn cuCtxSetCurrent(handle: Handle) {
        STACK.with_borrow_mut(|stack| {
            stack.pop();
            if handle != 0 {
                stack.push(handle);
            }
        });
        Ok(())
    }

    fn cuCtxPushCurrent_v2(handle: Handle) {
        if !lock(&REGISTRY).contexts.contains_key(&handle) {
            return Err(INVALID_CONTEXT);
        }
        STACK.with_borrow_mut(|stack| stack.push(handle));
        sticky()
    }

    fn cuCtxPopCurrent_v2(handle: *mut Handle) {
        *handle = STACK.with_borrow_mut(Vec::pop).ok_or(INVALID_CONTEXT)?;
        Ok(())
    }

    fn cuCtxGetDevice(device: *mut c_int) {
        *device = context::current_device()?;
        Ok(())
    }

    fn cuCtxSynchronize() {
        capture::forbid()?;
        submit::synchronize_context()
    }

    fn cuThreadExchangeStreamCaptureMode(mode: *mut c_uint) {
        if *mode > capture::RELAXED {
            return Err(INVALID_VALUE);
        }
        *mode = capture::exchange_mode(*mode);
        Ok(())
    }
}
