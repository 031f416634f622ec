//! A tensor as some framework described it, and the words where it did not.

use capture_core::control;
use capture_core::view::{Element, TensorView, ViewError};
use capture_cuda::Lane;
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;

/// A described tensor, and whatever keeps its memory alive.
pub(crate) struct Tensor {
    pub(crate) data: *const u8,
    pub(crate) element: Element,
    pub(crate) shape: Vec<u64>,
    /// In items.
    pub(crate) strides: Vec<i64>,
    /// Where it lies, where that is not the processor's memory: the device's name, and the way to it.
    pub(crate) on: Option<(String, Lane)>,
    /// What to hold on to until the copy is done, where it is more than the argument itself.
    pub(crate) keep: Option<Box<dyn std::any::Any>>,
}

impl Tensor {
    /// The way to it, where only the driver knows on which device it lies. Both ends are asked about, as a kernel that reads
    /// beyond its memory takes the whole context down.
    pub(crate) fn on_its_device(
        &self,
        stream: usize,
        keep: Option<Box<dyn Send>>,
    ) -> Result<Option<(String, Lane)>, String> {
        if self.shape.contains(&0) {
            return Ok(None);
        }
        let item = self.element.item_bytes() as i64;
        let mut ends = [0, item - 1];
        for (size, stride) in self.shape.iter().zip(&self.strides) {
            let last =
                i64::try_from(size - 1).ok().and_then(|last| last.checked_mul(stride.checked_mul(item)?));
            let last = last.ok_or("its strides reach beyond any memory")?;
            ends[usize::from(last > 0)] += last;
        }
        let at = |end: i64| self.data.wrapping_offset(end as isize);
        let home = capture_cuda::home(at(ends[0]), at(ends[1]))?;
        let (capture_cuda::Home::Device(ordinal) | capture_cuda::Home::Pinned(ordinal)) = home;
        on_cuda(ordinal, stream, keep)
    }

    /// The view of it.
    pub(crate) fn view(&self) -> Result<TensorView<'_>, ViewError> {
        #[expect(unsafe_code, reason = "the framework vouches for its tensor")]
        // SAFETY: the framework described memory that lives as long as the object, which the caller of the hook holds,
        // or `keep` does. That another thread may resize it while the GIL is released is documented.
        unsafe {
            let device = self.on.as_ref().map_or("cpu", |(device, _)| device);
            let view = TensorView::new(self.data, self.element, &self.shape, &self.strides, device)?;
            Ok(self.on.as_ref().map_or(view, |(_, lane)| view.on(lane)))
        }
    }
}

/// The words for a tensor that is in nobody's memory that can be had.
pub(crate) fn on_device(device: &str) -> String {
    format!("it is on {device}: only tensors in host memory and on CUDA devices are captured")
}

/// The way to a tensor on a CUDA device that was made on that stream.
pub(crate) fn on_cuda(
    ordinal: i32,
    stream: usize,
    keep: Option<Box<dyn Send>>,
) -> Result<Option<(String, Lane)>, String> {
    let device = format!("cuda:{ordinal}");
    match capture_cuda::lane(ordinal, stream, control::device_ring(), keep) {
        Ok(lane) => Ok(Some((device, lane))),
        Err(reason) => Err(format!("it is on {device}: {reason}")),
    }
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
