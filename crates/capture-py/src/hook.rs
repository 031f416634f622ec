//! The hook: `capture(name, tensor)`, the bound builtin that `tap(name)` returns, and `step()`.
//!
//! While off each is one relaxed load and a reference to `None`. Everything behind the load is `#[cold]`.
#![expect(unsafe_code, reason = "the C API of CPython")]

use crate::arguments;
use crate::builtin::{Definition, none};
use crate::errors::settle_error;
use crate::host;
use crate::tensor::{self, spoken};
use capture_core::notice::notice;
use capture_core::placement::Placements;
use capture_core::tap::{self as core_tap, CaptureError, Patience, TapId};
use capture_core::{control, page};
use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// From so many bytes on other Python threads may run while a tensor is copied.
const RELEASE_GIL: u64 = 1 << 20;

const TOO_MANY_NAMES: &str = "not captured: its name is longer than 1024 bytes, or there are 100000 others";

static CAPTURE: Definition = Definition::fastcall(
    c"capture",
    capture,
    c"capture($module, name, tensor, /, *, placement=None, rows=None)\n--\n\n\
Capture a tensor at the tap `name`, where a capture is on and its selection wants it.\n\n\
name: str, at most 1024 bytes of UTF-8. A name built by an f-string is built also while off: prefer tap().\n\
tensor: anything in host memory that speaks DLPack or the array interface, of any shape and strides. Its logical,\n\
    C-ordered bytes are copied before this returns; one that requires grad is captured as if detached.\n\
placement: str, how the ranks' tensors make the logical one: 'R', 'S(dim)' or 'P', see docs/format.md.\n\
rows: int, how many leading rows of dim 0 are valid; the rest is padding.\n\n\
Never raises, unless TPCAPTURE_STRICT=1. While off it costs one atomic load.",
);

static TAP_CALL: Definition = Definition::fastcall(
    c"tap",
    tap_call,
    c"tap($self, tensor, /, *, placement=None, rows=None)\n--\n\n\
Capture a tensor at this tap; as tpcapture.capture(), with the name resolved once.",
);

static STEP: Definition = Definition::no_arguments(
    c"step",
    step,
    c"step($module, /)\n--\n\nA forward pass begins: later records belong to the next step.",
);

/// The builtin `capture`.
pub(crate) fn capture_builtin<'py>(module: &Bound<'py, PyModule>) -> PyResult<Bound<'py, PyAny>> {
    CAPTURE.build(module.py(), None, Some(module))
}

/// The builtin `step`.
pub(crate) fn step_builtin<'py>(module: &Bound<'py, PyModule>) -> PyResult<Bound<'py, PyAny>> {
    STEP.build(module.py(), None, Some(module))
}

/// What a tap's builtin is bound to.
#[pyclass(frozen, module = "tpcapture._native")]
pub(crate) struct TapState {
    #[pyo3(get)]
    name: String,
    #[pyo3(get)]
    placement: Option<String>,
    id: Option<TapId>,
}

/// What pickle makes a state from: a function and its arguments.
type Recipe<'py> = (Bound<'py, PyAny>, (String, Option<String>));

#[pymethods]
impl TapState {
    /// The tap itself: a new builtin bound to this state. Under this name pickle finds it again.
    #[getter]
    fn tap<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        TAP_CALL.build(slf.py(), Some(slf.as_any()), None)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Recipe<'py>> {
        let make = slf.py().import("tpcapture._native")?.getattr("tap_state")?;
        Ok((make, (slf.get().name.clone(), slf.get().placement.clone())))
    }

    fn __repr__(&self) -> String {
        format!("<tap {:?}>", self.name)
    }
}

/// The state of a tap, from what `tap()` was given.
#[pyfunction]
#[pyo3(signature = (name, placement=None))]
pub(crate) fn tap_state(name: String, placement: Option<String>) -> TapState {
    let id = core_tap::tap(&name);
    if id.is_none() {
        notice(&format!("tap {name:?}: {TOO_MANY_NAMES}"));
    }
    let placement = placement.filter(|text| match text.parse::<Placements>() {
        Ok(_) => true,
        Err(error) => {
            notice(&format!("tap {name:?}: {error}; its records will have no placement"));
            false
        }
    });
    TapState { name, placement, id }
}

/// A tap: a builtin function that captures what it is called with, `tap(tensor, *, placement=None, rows=None)`.
///
/// name: str, at most 1024 bytes of UTF-8. placement: str, that of every tensor it is called with, unless the call says
/// otherwise; one that does not parse is said and left out. Resolved once, so that a call costs one atomic load while
/// off. Can be pickled and deep-copied, so that a model that holds taps can be saved.
#[pyfunction]
#[pyo3(signature = (name, *, placement=None))]
pub(crate) fn tap<'py>(
    py: Python<'py>,
    name: String,
    placement: Option<String>,
) -> PyResult<Bound<'py, PyAny>> {
    TapState::tap(&Bound::new(py, tap_state(name, placement))?)
}

type Args = *const *mut ffi::PyObject;

unsafe extern "C" fn capture(
    _module: *mut ffi::PyObject,
    args: Args,
    n_args: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if page::is_on() {
        return capture_on(args, n_args, names);
    }
    none()
}

unsafe extern "C" fn tap_call(
    state: *mut ffi::PyObject,
    args: Args,
    n_args: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if page::is_on() {
        return tap_call_on(state, args, n_args, names);
    }
    none()
}

unsafe extern "C" fn step(_module: *mut ffi::PyObject, _: *mut ffi::PyObject) -> *mut ffi::PyObject {
    page::step();
    if page::is_on() {
        step_on();
    }
    none()
}

#[cold]
#[inline(never)]
fn capture_on(args: Args, n_args: ffi::Py_ssize_t, names: *mut ffi::PyObject) -> *mut ffi::PyObject {
    guarded(|py| {
        // SAFETY: as CPython handed them to `capture`.
        let [name, tensor, placement, rows] = unsafe {
            arguments::parse(py, "capture", ["name", "tensor", "placement", "rows"], 2, args, n_args, names)
        }?;
        let (Some(name), Some(tensor)) = (name, tensor) else {
            return Err(PyTypeError::new_err("capture() takes a name and a tensor"));
        };
        let name = name.cast::<PyString>()?.to_cow()?;
        let Some(tap) = core_tap::tap(&name) else {
            return Err(PyTypeError::new_err(format!("tap {name:.80}…: {TOO_MANY_NAMES}")));
        };
        fire(py, tap, &tensor, placement.as_ref(), None, rows.as_ref())
    })
}

#[cold]
#[inline(never)]
fn tap_call_on(
    state: *mut ffi::PyObject,
    args: Args,
    n_args: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    guarded(|py| {
        // SAFETY: what the builtin was bound to, alive as long as the call.
        let state = unsafe { Bound::from_borrowed_ptr(py, state) };
        let state = state.cast::<TapState>()?.get();
        // SAFETY: as CPython handed them to `tap_call`.
        let [tensor, placement, rows] =
            unsafe { arguments::parse(py, "tap", ["tensor", "placement", "rows"], 1, args, n_args, names) }?;
        let Some(tensor) = tensor else {
            return Err(PyTypeError::new_err("a tap takes a tensor"));
        };
        let Some(tap) = state.id else { return Ok(()) };
        fire(py, tap, &tensor, placement.as_ref(), state.placement.as_deref(), rows.as_ref())
    })
}

#[cold]
#[inline(never)]
fn step_on() {
    if !control::is_settled() {
        Python::attach(host::settle);
    }
}

/// Runs a hook so that nothing reaches the model: neither an exception, unless it is wanted, nor a panic.
fn guarded(hook: impl FnOnce(Python<'_>) -> PyResult<()>) -> *mut ffi::PyObject {
    Python::attach(|py| {
        let run = std::panic::AssertUnwindSafe(|| hook(py));
        let result = std::panic::catch_unwind(run).unwrap_or_else(|_| {
            control::fail("a panic in the hook");
            Ok(())
        });
        match result {
            Ok(()) => none(),
            Err(error) if control::is_strict() => {
                error.restore(py);
                std::ptr::null_mut()
            }
            Err(error) => {
                control::complain(&spoken(py, &error));
                none()
            }
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
    if !control::is_settled() {
        host::settle(py);
    }
    if !core_tap::is_named(tap) {
        return Ok(());
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
    let tensor = tensor::describe(object).map_err(|reason| core_tap::refuse(tap, &reason))?;
    let view = tensor.view().map_err(|error| core_tap::refuse(tap, &error.to_string()))?;
    let Some(mut ticket) = core_tap::begin(tap, &view, placement, rows)? else { return Ok(()) };
    if view.n_bytes() < RELEASE_GIL {
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

/// The placement, where it is one; said once where it is not.
fn parsed(tap: TapId, given: &Bound<'_, PyAny>) -> Option<String> {
    let parse = || -> Result<String, String> {
        let text: String = given.extract().map_err(|error: PyErr| spoken(given.py(), &error))?;
        text.parse::<Placements>().map_err(|error| error.to_string())?;
        Ok(text)
    };
    parse().map_err(|reason| core_tap::remark(tap, &format!("{reason}; captured without a placement"))).ok()
}

/// The number of valid rows, where it can be had without waiting for a device; said once where it cannot.
fn n_rows(tap: TapId, rows: &Bound<'_, PyAny>) -> Option<u64> {
    let read = || -> Result<u64, String> {
        // `__index__` of a device tensor would wait for the device: only host memory is asked.
        if rows.hasattr("__dlpack__").unwrap_or(false) {
            tensor::describe(rows)?;
        }
        let index = rows.call_method0("__index__").map_err(|error| spoken(rows.py(), &error))?;
        index.extract().map_err(|error: PyErr| spoken(rows.py(), &error))
    };
    read().map_err(|reason| core_tap::remark(tap, &format!("rows: {reason}; captured without"))).ok()
}
