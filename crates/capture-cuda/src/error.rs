//! What a call of the driver comes back with.

use std::fmt;

pub(crate) const SUCCESS: i32 = 0;
/// Another stream of the context is being captured, and the legacy default stream would join in.
pub(crate) const CAPTURE_IMPLICIT: i32 = 906;

/// Errors after which the context is of no use to anybody: a kernel went wrong, or the context is gone.
const STICKY: [i32; 11] = [4, 201, 202, 700, 702, 709, 710, 714, 715, 716, 719];

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CudaError {
    pub(crate) call: &'static str,
    pub(crate) code: i32,
    /// CUDA's own name of it.
    pub(crate) name: String,
}

impl CudaError {
    /// Whether an earlier piece of work of this process failed, and not the call.
    pub(crate) fn is_sticky(&self) -> bool {
        STICKY.contains(&self.code)
    }
}

impl fmt::Display for CudaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.name)?;
        if self.is_sticky() {
            write!(f, ", left by an earlier kernel or copy of this process")?;
        }
        Ok(())
    }
}
