//! A device's primary context, which the framework uses, too, and the time that a thread spends in it.
#![expect(unsafe_code, reason = "calls a C library")]

use crate::driver::Driver;
use crate::error::CudaError;
use cudarc::driver::sys::{CUcontext, CUdevice};
use std::ffi::c_uint;

/// Allocations and the like are forbidden to a thread while another captures a stream in the global mode; in the relaxed
/// mode they are not, and the capture is left alone.
const RELAXED: c_uint = 2;

/// The primary context of a device, retained for the life of the process: releasing it while work of ours may be under way
/// would be worse than keeping what the framework keeps anyway.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub(crate) driver: &'static Driver,
    raw: CUcontext,
}

// SAFETY: a handle that any thread may use.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub(crate) fn retain(driver: &'static Driver, device: CUdevice) -> Result<Self, CudaError> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: fills in the handle.
        let code = unsafe { (driver.functions.primary_retain)(&raw mut raw, device) };
        driver.check("cuDevicePrimaryCtxRetain", code)?;
        Ok(Self { driver, raw })
    }

    pub(crate) fn is(&self, raw: CUcontext) -> bool {
        self.raw == raw
    }

    /// Makes it current until the visit is dropped.
    pub(crate) fn enter(self) -> Result<Visit, CudaError> {
        let functions = &self.driver.functions;
        let mut visit = Visit { context: self, is_pushed: false, mode: None };
        if !self.is_current() {
            // SAFETY: a context that is retained; `Visit` undoes it.
            let code = unsafe { (functions.context_push)(self.raw) };
            // The call may also fail for what was launched before, and have pushed it all the same.
            visit.is_pushed = code == 0 || self.is_current();
            self.driver.check("cuCtxPushCurrent", code)?;
        }
        let mut mode = RELAXED;
        // SAFETY: exchanges the thread's mode for the one given.
        let code = unsafe { (functions.capture_mode)(&raw mut mode) };
        visit.mode = (code == 0).then_some(mode);
        self.driver.check("cuThreadExchangeStreamCaptureMode", code)?;
        Ok(visit)
    }

    fn is_current(&self) -> bool {
        let mut current = std::ptr::null_mut();
        // SAFETY: fills in the handle.
        unsafe { (self.driver.functions.context_current)(&raw mut current) };
        current == self.raw
    }
}

/// A thread in a context. When it ends, the thread's context and capture mode are what they were.
pub(crate) struct Visit {
    context: Context,
    is_pushed: bool,
    /// The mode to go back to.
    mode: Option<c_uint>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        let functions = &self.context.driver.functions;
        if let Some(mut mode) = self.mode {
            // SAFETY: a mode that the thread had.
            unsafe { (functions.capture_mode)(&raw mut mode) };
        }
        if self.is_pushed {
            let mut popped = std::ptr::null_mut();
            // SAFETY: pops what `enter` pushed, as visits of a thread end in the order they began.
            unsafe { (functions.context_pop)(&raw mut popped) };
        }
    }
}
