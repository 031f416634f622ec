//! The hook while off: `capture(name, tensor)`, the bound builtin that `tap(name)` returns, and `step()`.
//!
//! Each is one relaxed load and a reference to `None`. What lies behind the load is in `fire`.
#![expect(unsafe_code, reason = "the C API of CPython")]

use crate::builtin::{Definition, none};
use crate::fire::{self, NO_TAP};
use crate::host;
use capture_core::notice::notice;
use capture_core::page;
use capture_core::placement::Placements;
use capture_core::tap::{self as core_tap, TapId};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

pub(crate) static CAPTURE: Definition = Definition::fastcall(
    c"capture",
    capture::<false>,
    capture::<true>,
    c"capture(name, tensor, /, *, placement=None, rows=None)\n--\n\n\
Capture a tensor at the tap `name`, where a capture is on and its selection wants it.\n\n\
name: str, at most 1024 bytes of UTF-8. A name built by an f-string is built also while off: prefer tap().\n\
tensor: anything in host memory or on a CUDA device that speaks DLPack or an array interface, of any shape and strides.\n\
    Its logical, C-ordered bytes are captured as they are at the call, on a device in the order of the stream that is\n\
    current; one that requires grad as if detached. From 1 MiB on the GIL is released while the host copies: another\n\
    thread must not resize the tensor.\n\
placement: str, how the ranks' tensors make the logical one: 'R', 'S(dim)' or 'P', see docs/format.md.\n\
rows: int, how many leading rows of dim 0 are valid; the rest is padding.\n\n\
Never raises, unless TPCAPTURE_STRICT=1. While off it costs one atomic load.",
);

pub(crate) static TAP: Definition = Definition::fastcall(
    c"tap",
    tap::<false>,
    tap::<true>,
    c"tap($self, tensor, /, *, placement=None, rows=None)\n--\n\n\
Capture a tensor at this tap; as tpcapture.capture(), with the name resolved once.",
);

pub(crate) static STEP: Definition = Definition::no_arguments(
    c"step",
    step::<false>,
    step::<true>,
    c"step()\n--\n\nA forward pass begins: later records belong to the next step.",
);

unsafe extern "C" fn capture<const IMMORTAL: bool>(
    _module: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    n_args: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if page::is_awake() {
        // SAFETY: handed on as CPython gave them.
        return unsafe { fire::capture(args, n_args, names) };
    }
    none::<IMMORTAL>()
}

unsafe extern "C" fn tap<const IMMORTAL: bool>(
    state: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    n_args: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if page::is_awake() {
        // SAFETY: handed on as CPython gave them.
        return unsafe { tap_on(state, args, n_args, names) };
    }
    none::<IMMORTAL>()
}

unsafe extern "C" fn step<const IMMORTAL: bool>(
    _module: *mut ffi::PyObject,
    _: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    if page::step() {
        fire::step();
    }
    none::<IMMORTAL>()
}

/// # Safety
/// The arguments are what CPython handed to a builtin that is bound to a [`TapState`].
#[cold]
#[inline(never)]
unsafe fn tap_on(
    state: *mut ffi::PyObject,
    args: *const *mut ffi::PyObject,
    n_args: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    fire::guarded(|py| {
        // SAFETY: alive as long as the call.
        let state = unsafe { Bound::from_borrowed_ptr(py, state) };
        let state = state.cast::<TapState>()?.get();
        // SAFETY: this function's own condition.
        unsafe { fire::tap(py, state.id, state.placement.as_deref(), args, n_args, names) }
    })
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
        let tap = TAP.build(slf.py(), Some(slf.as_any()), None)?;
        host::tap_made(&tap);
        Ok(tap)
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
pub(crate) fn tap_state(name: &Bound<'_, PyString>, placement: Option<String>) -> TapState {
    // A lone surrogate is in no UTF-8. The model that was named with it goes on.
    let whole = name.to_cow().ok();
    let id = whole.as_ref().and_then(|name| core_tap::tap(name));
    let is_text = whole.is_some();
    let name = whole.unwrap_or_else(|| name.to_string_lossy()).into_owned();
    if id.is_none() {
        let why = if is_text { NO_TAP } else { "not captured: its name is not Unicode" };
        notice(&format!("tap {name:?}: {why}"));
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
#[pyfunction(name = "tap")]
#[pyo3(signature = (name, *, placement=None))]
pub(crate) fn make_tap<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
    placement: Option<String>,
) -> PyResult<Bound<'py, PyAny>> {
    TapState::tap(&Bound::new(py, tap_state(name, placement))?)
}
