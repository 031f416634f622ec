//! The project's kernels, compiled as host C++ (`shim/`).

use crate::memory;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

unsafe extern "C" {
    fn shim_has(name: *const c_char) -> c_int;
    fn shim_copy(name: *const c_char, arguments: *mut *mut c_void) -> *mut c_void;
    fn shim_run(
        launch: *mut c_void,
        grid: c_uint,
        threads: c_uint,
        seed: u64,
        translate: extern "C" fn(*mut c_void) -> *mut c_void,
    ) -> *const c_char;
    fn shim_drop(launch: *mut c_void);
}

thread_local! {
    /// The device on which the thread runs a kernel.
    static DEVICE: Cell<i32> = const { Cell::new(-1) };
}

/// A launch, its arguments copied when it was asked for. It may run often: graphs do.
pub(crate) struct Launch(*mut c_void);

// SAFETY: an object that belongs to no thread.
unsafe impl Send for Launch {}
// SAFETY: running it changes nothing in it.
unsafe impl Sync for Launch {}

/// Whether there is a kernel of that name.
pub(crate) fn has(name: &CStr) -> bool {
    // SAFETY: only looks the name up.
    unsafe { shim_has(name.as_ptr()) != 0 }
}

impl Launch {
    /// # Safety
    /// There is a kernel of that name, and the arguments are its.
    pub(crate) unsafe fn copy(name: &CStr, arguments: *mut *mut c_void) -> Self {
        // SAFETY: the caller's condition.
        Self(unsafe { shim_copy(name.as_ptr(), arguments) })
    }

    /// Runs it on a device; what went wrong.
    pub(crate) fn run(&self, device: i32, grid: u32, threads: u32, seed: u64) -> Option<String> {
        extern "C" fn translate(at: *mut c_void) -> *mut c_void {
            memory::for_kernels(at as usize, DEVICE.get()).unwrap_or(0) as *mut c_void
        }
        DEVICE.set(device);
        // SAFETY: a launch made by `copy`. What its addresses reach is what the test is about.
        unsafe {
            let wrong = shim_run(self.0, grid, threads, seed, translate);
            (!wrong.is_null()).then(|| CStr::from_ptr(wrong).to_string_lossy().into_owned())
        }
    }
}

impl Drop for Launch {
    fn drop(&mut self) {
        // SAFETY: made by `copy`, dropped once.
        unsafe { shim_drop(self.0) };
    }
}
