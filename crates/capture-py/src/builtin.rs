//! CPython builtins with the fastcall convention, free or bound to an object.
//!
//! PyO3's generated `__call__` of a class costs about twice a builtin's call, which is all that a tap costs while off.
#![expect(unsafe_code, reason = "the C API of CPython")]

use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;

/// A method table entry that lives as long as the module: for a Python whose `None` is mortal, and for one whose `None`
/// is not.
pub(crate) struct Definition {
    mortal: ffi::PyMethodDef,
    immortal: ffi::PyMethodDef,
}

// SAFETY: CPython only reads it, and it points to static strings and functions.
unsafe impl Sync for Definition {}

impl Definition {
    /// A function `(self, args, n_args, names)` of positional and keyword arguments, in both versions.
    pub(crate) const fn fastcall(
        name: &'static CStr,
        mortal: ffi::PyCFunctionFastWithKeywords,
        immortal: ffi::PyCFunctionFastWithKeywords,
        doc: &'static CStr,
    ) -> Self {
        let flags = ffi::METH_FASTCALL | ffi::METH_KEYWORDS;
        Self {
            mortal: entry(name, ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: mortal }, flags, doc),
            immortal: entry(
                name,
                ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: immortal },
                flags,
                doc,
            ),
        }
    }

    /// A function of no arguments, in both versions.
    pub(crate) const fn no_arguments(
        name: &'static CStr,
        mortal: ffi::PyCFunction,
        immortal: ffi::PyCFunction,
        doc: &'static CStr,
    ) -> Self {
        let flags = ffi::METH_NOARGS;
        Self {
            mortal: entry(name, ffi::PyMethodDefPointer { PyCFunction: mortal }, flags, doc),
            immortal: entry(name, ffi::PyMethodDefPointer { PyCFunction: immortal }, flags, doc),
        }
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
        let entry = if none_is_immortal(py) { &self.immortal } else { &self.mortal };
        // SAFETY: the definition is static; CPython takes references of its own to the other two, which may be null.
        unsafe {
            Bound::from_owned_ptr_or_err(
                py,
                ffi::PyCFunction_NewEx(std::ptr::from_ref(entry).cast_mut(), receiver, name),
            )
        }
    }
}

const fn entry(
    name: &'static CStr,
    function: ffi::PyMethodDefPointer,
    flags: std::ffi::c_int,
    doc: &'static CStr,
) -> ffi::PyMethodDef {
    ffi::PyMethodDef { ml_name: name.as_ptr(), ml_meth: function, ml_flags: flags, ml_doc: doc.as_ptr() }
}

/// Whether this Python's `None` is immortal and wants no references counted: from 3.12 on.
fn none_is_immortal(py: Python<'_>) -> bool {
    py.version_info() >= (3, 12)
}

/// A new reference to `None`, in one instruction or none.
///
/// `Py_IncRef` is a call into the interpreter, a third of what a builtin costs. Counting inline where `None` is
/// immortal is worse than wasteful: nobody counts back, and after 2³⁰ calls Python 3.14 would take it for mortal.
#[inline(always)]
pub(crate) fn none<const IMMORTAL: bool>() -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, so it runs and we are attached to it. Before 3.12 the count is the first field
    // of every object, as the limited API of 3.10, which we are built for, has it in its macros.
    unsafe {
        let none = ffi::Py_None();
        if !IMMORTAL {
            *none.cast::<ffi::Py_ssize_t>() += 1;
        }
        none
    }
}
