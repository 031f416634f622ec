//! Signals, which are the model's.
#![expect(unsafe_code, reason = "masks signals")]

/// Leaves every signal to the threads of the model: for each thread of ours, when it begins. SIGXFSZ, blocked, turns a file
/// that grew too large into an error.
pub fn leave_to_the_model() {
    // SAFETY: fills the set before using it; the mask is this thread's own.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, std::ptr::null_mut());
    }
}
