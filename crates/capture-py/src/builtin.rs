//! CPython builtins with the fastcall convention, free or bound to an object.
//!
//! PyO3's generated `__call__` of a class costs about twice a builtin's call, which is all that a tap costs while off.
#![expect(unsafe_code, reason = "the C API of CPython")]

use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;

/// A method table entry that lives as long as the module.
pub(crate) struct Definition(ffi::PyMethodDef);

// SAFETY: CPython only reads it, and it points to static strings and functions.
unsafe impl Sync for Definition {}

impl Definition {
    /// A function `(self, args, n_args, names)` of positional and keyword arguments.
    pub(crate) const fn fastcall(
        name: &'static CStr,
        function: ffi::PyCFunctionFastWithKeywords,
        doc: &'static CStr,
    ) -> Self {
        Self(ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: function },
            ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
            ml_doc: doc.as_ptr(),
        })
    }

    /// A function of no arguments.
    pub(crate) const fn no_arguments(
        name: &'static CStr,
        function: ffi::PyCFunction,
        doc: &'static CStr,
    ) -> Self {
        Self(ffi::PyMethodDef {
            ml_name: name.as_ptr(),
            ml_meth: ffi::PyMethodDefPointer { PyCFunction: function },
            ml_flags: ffi::METH_NOARGS,
            ml_doc: doc.as_ptr(),
        })
    }

    /// The builtin, bound to `receiver` where there is one, as a member of `module`.
    pub(crate) fn build<'py>(
        &'static self,
        py: Python<'py>,
        receiver: Option<&Bound<'py, PyAny>>,
        module: Option<&Bound<'py, PyModule>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let receiver = receiver.map_or(std::ptr::null_mut(), Bound::as_ptr);
        let name = module.map(PyModuleMethods::name).transpose()?;
        let name = name.as_ref().map_or(std::ptr::null_mut(), Bound::as_ptr);
        // SAFETY: the definition is static; CPython takes references of its own to the other two, which may be null.
        unsafe {
            Bound::from_owned_ptr_or_err(
                py,
                ffi::PyCFunction_NewEx((&raw const self.0).cast_mut(), receiver, name),
            )
        }
    }
}

/// A new reference to `None`.
#[inline(always)]
pub(crate) fn none() -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, so it runs and we are attached to it.
    unsafe {
        let none = ffi::Py_None();
        ffi::Py_INCREF(none);
        none
    }
}
