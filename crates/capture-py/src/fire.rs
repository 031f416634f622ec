//! The hook while on: sorts out the arguments, describes the tensor, has it copied, and lets nothing out.
#![expect(unsafe_code, reason = "the C API of CPython")]

use crate::described::spoken;
use crate::errors::settle_error;
use crate::tensor;
use crate::{arguments, host};
use capture_core::control;
use capture_core::heed::{self, Standing};
use capture_core::placement::Placements;
use capture_core::tap::{self as core_tap, CaptureError, Interest, Patience, TapId};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::borrow::Cow;

/// Why a name has no tap.
pub(crate) const NO_TAP: &str =
    "not captured: its name is longer than 1024 bytes, or there are 100000 others";

/// From so many bytes on other Python threads may run while a tensor is copied.
const RELEASE_GIL: u64 = 1 << 20;

/// `capture(name, tensor, …)`.
///
/// # Safety
/// The arguments are what CPython handed to a builtin of the fastcall convention.
#[cold]
#[inline(never)]
pub(crate) unsafe fn capture(
    args: *const *mut ffi::PyObject,
    n_args: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    guarded(|py| {
        // SAFETY: as CPython handed them to `capture`.
        let [name, tensor, placement, rows] = unsafe {
            arguments::parse(py, "capture", ["name", "tensor", "placement", "rows"], 2, args, n_args, names)
        }?;
        let (Some(name), Some(tensor)) = (name, tensor) else {
            return Err(PyTypeError::new_err("capture() takes a name and a tensor"));
        };
        let name = text(&name).map_err(|reason| PyTypeError::new_err(format!("name: {reason}")))?;
        let Some(tap) = core_tap::tap(&name) else {
            return Err(PyTypeError::new_err(format!("tap {name:.80}…: {NO_TAP}")));
        };
        fire(py, tap, &tensor, placement.as_ref(), None, rows.as_ref())
    })
}

/// `tap(tensor, …)` of the tap `id` whose records have `placement` unless the call says otherwise.
///
/// # Safety
/// As for [`capture`].
pub(crate) unsafe fn tap(
    py: Python<'_>,
    id: Option<TapId>,
    placement: Option<&str>,
    args: *const *mut ffi::PyObject,
    n_args: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> PyResult<()> {
    let parameters = ["tensor", "placement", "rows"];
    // SAFETY: this function's own condition.
    let [tensor, given, rows] = unsafe { arguments::parse(py, "tap", parameters, 1, args, n_args, names) }?;
    let Some(tensor) = tensor else {
        return Err(PyTypeError::new_err("a tap takes a tensor"));
    };
    let Some(id) = id else { return Ok(()) };
    fire(py, id, &tensor, given.as_ref(), placement, rows.as_ref())
}

/// `step()`.
#[cold]
#[inline(never)]
pub(crate) fn step() {
    Python::attach(|py| {
        caught(|| {
            if heed::at_step() == Standing::Unsettled {
                host::settle(py);
            }
        });
    });
}

/// What `run` returns; `None` where it panicked, which ends the capture and not the model.
fn caught<T>(run: impl FnOnce() -> T) -> Option<T> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    result.map_err(|_| control::fail("a panic in the hook")).ok()
}

/// Runs a hook so that nothing reaches the model: neither an exception, unless it is wanted, nor a panic.
pub(crate) fn guarded(hook: impl FnOnce(Python<'_>) -> PyResult<()>) -> *mut ffi::PyObject {
    Python::attach(|py| match caught(|| hook(py)).unwrap_or(Ok(())) {
        Ok(()) => py.None().into_ptr(),
        Err(error) if control::is_strict() => {
            error.restore(py);
            std::ptr::null_mut()
        }
        Err(error) => {
            control::complain(&spoken(py, &error));
            py.None().into_ptr()
        }
    })
}

fn fire(
    py: Python<'_>,
    tap: TapId,
    tensor: &Bound<'_, PyAny>,
    placement: Option<&Bound<'_, PyAny>>,
    taps_placement: Option<&str>,
    rows: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    match heed::at_tap() {
        Standing::Quiet => return Ok(()),
        Standing::Unsettled => host::settle(py),
        Standing::Capturing => {}
    }
    match core_tap::interest(tap) {
        Interest::None => return Ok(()),
        Interest::Call => {
            core_tap::pass(tap);
            return Ok(());
        }
        Interest::Tensor => {}
    }
    let placement = match placement {
        None => taps_placement.map(str::to_owned),
        Some(given) => parsed(tap, given),
    };
    let rows = rows.and_then(|rows| n_rows(tap, rows));
    match copy(py, tap, tensor, placement.as_deref(), rows) {
        Ok(()) => Ok(()),
        Err(error) => settle_error(&error),
    }
}

fn copy(
    py: Python<'_>,
    tap: TapId,
    object: &Bound<'_, PyAny>,
    placement: Option<&str>,
    rows: Option<u64>,
) -> Result<(), CaptureError> {
    let tensor = match tensor::describe(object) {
        Ok(tensor) => tensor,
        Err(reason) => return core_tap::refuse(tap, &reason),
    };
    let view = match tensor.view() {
        Ok(view) => view,
        Err(error) => return core_tap::refuse(tap, &error.to_string()),
    };
    let Some(mut ticket) = core_tap::begin(tap, &view, placement, rows)? else { return Ok(()) };
    // A device's tensor is not copied here, whatever its size.
    if view.memory().is_some() || view.n_bytes() < RELEASE_GIL {
        match ticket.stage(&view, Patience::None)? {
            None => return Ok(()),
            // The ring is full or another thread has the turn: that one may need the GIL before it can go on.
            Some(back) => ticket = back,
        }
    }
    let view = Unbound(view);
    py.detach(move || {
        let view = view;
        ticket.stage(&view.0, Patience::Full).map(drop)
    })
}

/// A view whose memory is looked at without the GIL.
struct Unbound<'a>(capture_core::TensorView<'a>);

// SAFETY: it is only moved into a closure that runs on this very thread; PyO3 asks for `Send` to keep Python objects
// out, and a view holds none.
unsafe impl Send for Unbound<'_> {}

/// The text of a str.
fn text(object: &Bound<'_, PyAny>) -> Result<String, String> {
    let text = object.cast::<PyString>().map_err(|_| {
        let kind = object.get_type();
        format!(
            "expected str, found {}",
            kind.name().map_or_else(|_| kind.to_string(), |name| name.to_string())
        )
    })?;
    text.to_cow().map(Cow::into_owned).map_err(|error| spoken(object.py(), &error))
}

/// The placement, where it is one; said once where it is not.
fn parsed(tap: TapId, given: &Bound<'_, PyAny>) -> Option<String> {
    let parse = || -> Result<String, String> {
        let text = text(given).map_err(|reason| format!("placement: {reason}"))?;
        text.parse::<Placements>().map_err(|error| error.to_string())?;
        Ok(text)
    };
    parse().map_err(|reason| core_tap::remark(tap, &format!("{reason}; captured without a placement"))).ok()
}

/// The number of valid rows, where it can be had without waiting for a device; said once where it cannot.
fn n_rows(tap: TapId, rows: &Bound<'_, PyAny>) -> Option<u64> {
    let read = || -> Result<u64, String> {
        // `__index__` of a device tensor would wait for the device: only host memory is asked.
        if rows.hasattr("__dlpack__").unwrap_or(false)
            && let Some((device, _)) = tensor::describe(rows)?.on
        {
            return Err(format!("it is on {device}, and reading it would wait for the device"));
        }
        let index = rows.call_method0("__index__").map_err(|error| spoken(rows.py(), &error))?;
        index.extract().map_err(|error: PyErr| spoken(rows.py(), &error))
    };
    read().map_err(|reason| core_tap::remark(tap, &format!("rows: {reason}; captured without"))).ok()
}
