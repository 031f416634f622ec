//! A tensor as some framework described it, and the words where it did not.

use capture_core::view::{Element, TensorView, ViewError};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// A described tensor, and whatever keeps its memory alive.
pub(crate) struct Tensor {
    pub(crate) data: *const u8,
    pub(crate) element: Element,
    pub(crate) shape: Vec<u64>,
    /// In items.
    pub(crate) strides: Vec<i64>,
    /// What to hold on to until the copy is done, where it is more than the argument itself.
    pub(crate) keep: Option<Box<dyn std::any::Any>>,
}

impl Tensor {
    /// The view of it.
    pub(crate) fn view(&self) -> Result<TensorView<'_>, ViewError> {
        #[expect(unsafe_code, reason = "the framework vouches for its tensor")]
        // SAFETY: the framework described memory that lives as long as the object, which the caller of the hook holds,
        // or `keep` does. That another thread may resize it while the GIL is released is documented.
        unsafe {
            TensorView::new(self.data, self.element, &self.shape, &self.strides, "cpu")
        }
    }
}

/// The words for a tensor that is not in host memory.
pub(crate) fn on_device(device: &str) -> String {
    format!("it is on {device}; only tensors in host memory are captured so far")
}

/// The words for a dtype that cannot be stored.
pub(crate) fn no_place(dtype: &str) -> String {
    format!("its dtype {dtype} has no place in a safetensors file")
}

/// A Python error as a reason, in one line. A Ctrl-C that came while the hook ran Python code was not meant for the
/// hook: it is raised again as soon as the model's own code goes on.
pub(crate) fn spoken(py: Python<'_>, error: &PyErr) -> String {
    let text = error.value(py).to_string();
    let line = text.lines().next().unwrap_or_default().trim();
    let line = if line.is_empty() { error.get_type(py).to_string() } else { line.to_owned() };
    // Last, as any Python code, the error's own text included, would be what it interrupts.
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        #[expect(unsafe_code, reason = "the C API of CPython")]
        // SAFETY: only sets a flag that the interpreter looks at between bytecodes.
        unsafe {
            pyo3::ffi::PyErr_SetInterrupt();
        }
    }
    line
}
