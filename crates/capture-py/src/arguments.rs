//! The arguments of a fastcall builtin: `args` holds the positional ones, then the values of those in `names`.
#![expect(unsafe_code, reason = "the C API of CPython")]

use pyo3::exceptions::PyTypeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

/// The values of `N` parameters, in order; `None` where one was not given, or a keyword-only one is Python's `None`.
pub(crate) type Values<'py, const N: usize> = [Option<Bound<'py, PyAny>>; N];

/// Sorts the arguments of `function` into its parameters, of which the first `n_positional` may be given by position.
///
/// # Safety
/// `args` and `names` are what CPython handed to a `METH_FASTCALL | METH_KEYWORDS` function with `n_args`.
pub(crate) unsafe fn parse<'py, const N: usize>(
    py: Python<'py>,
    function: &str,
    parameters: [&str; N],
    n_positional: usize,
    args: *const *mut ffi::PyObject,
    n_args: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> PyResult<Values<'py, N>> {
    // SAFETY: `args` holds that many objects, borrowed for the call.
    let value = |i: usize| unsafe { Bound::from_borrowed_ptr(py, *args.add(i)) };
    let n_args = n_args as usize;
    if n_args > n_positional {
        return Err(PyTypeError::new_err(format!(
            "{function}() takes at most {n_positional} positional arguments, found {n_args}"
        )));
    }
    let mut values: Values<'py, N> = std::array::from_fn(|i| (i < n_args).then(|| value(i)));
    // SAFETY: null or a tuple of strings.
    let names = unsafe { Bound::from_borrowed_ptr_or_opt(py, names) };
    if let Some(names) = &names {
        for (i, name) in names.cast::<PyTuple>()?.iter_borrowed().enumerate() {
            let name = name.cast::<PyString>()?.to_cow()?.into_owned();
            let Some(place) = parameters.iter().position(|parameter| *parameter == name) else {
                return Err(PyTypeError::new_err(format!("{function}() has no parameter {name:?}")));
            };
            if values[place].replace(value(n_args + i)).is_some() {
                return Err(PyTypeError::new_err(format!("{function}() got {name:?} twice")));
            }
        }
    }
    // `tap(None)` is a call with a tensor that is none, not one without a tensor.
    for value in &mut values[n_positional..] {
        *value = value.take().filter(|value| !value.is_none());
    }
    Ok(values)
}
