//! What tests steer the simulator by, in the same library.
#![allow(clippy::missing_safety_doc, reason = "they take numbers and handles")]

use crate::code::Code;
use crate::context::{self, Handle};
use crate::memory;
use crate::settings;
use std::ffi::{CStr, c_char, c_int};

/// Holds a stream of the current context after `n` more pieces of work; -1 lets it go on.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_gate(stream: Handle, n: i64) -> Code {
    match context::stream(stream) {
        Ok(stream) => {
            stream.set_gate(u64::try_from(n).ok());
            0
        }
        Err(code) => code,
    }
}

/// Holds every copy from a device to the host before it begins; 0 lets them go on.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_hold_copies(holds: c_int) -> Code {
    settings::hold_copies_to_host(holds != 0);
    0
}

/// Has a kernel fail: from now on every call returns the code.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_fault(code: Code) -> Code {
    context::set_sticky(code);
    0
}

/// Has a call of that name fail once, after `after` that do not.
///
/// # Safety
/// A text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuda_sim_fail(name: *const c_char, code: Code, after: u64) -> Code {
    // SAFETY: the function's own condition.
    settings::plan_failure(&unsafe { CStr::from_ptr(name) }.to_string_lossy(), code, after);
    0
}

/// How often the function of that name was called.
///
/// # Safety
/// A text that ends with zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuda_sim_calls(name: *const c_char) -> u64 {
    // SAFETY: the function's own condition.
    settings::count(&unsafe { CStr::from_ptr(name) }.to_string_lossy())
}

/// What delays and orders are drawn from.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_seed(seed: u64) -> Code {
    settings::set_seed(seed);
    0
}

/// The longest a stream takes its time before a piece of work, in microseconds.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_delay_us(most: u64) -> Code {
    settings::set_delay_us(most);
    0
}

/// Whether memory that was freed is given out again, the last first.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_reuse(reuses: c_int) -> Code {
    memory::set_reuse(reuses != 0);
    0
}

/// How much memory a device has left.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_sim_memory(device: c_int, n_bytes: usize) -> Code {
    memory::set_left(device, n_bytes);
    0
}
