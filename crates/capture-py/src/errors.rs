//! Errors of the crates below, as Python exceptions.

use capture_core::tap;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    tpcapture,
    CaptureError,
    PyException,
    "A tensor could not be captured. Raised only with TPCAPTURE_STRICT=1."
);

/// What a failed capture means for the model: nothing, unless it asked for exceptions.
pub(crate) fn settle_error(error: &tap::CaptureError) -> PyResult<()> {
    if capture_core::control::is_strict() { Err(CaptureError::new_err(error.to_string())) } else { Ok(()) }
}

/// What went wrong in a capture, for who asked: a value, or an exception where exceptions are wanted.
pub(crate) fn unless_strict(error: Option<String>) -> PyResult<Option<String>> {
    match error {
        Some(error) if capture_core::control::is_strict() => Err(CaptureError::new_err(error)),
        error => Ok(error),
    }
}
