//! What the Python benches measure against: builtins that do nothing, and plain memory.
#![expect(unsafe_code, reason = "the C API of CPython, and memory by its address")]

use memmap2::Mmap;
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::{
    fs::File,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
    time::Instant,
};

struct Definition(ffi::PyMethodDef);

// SAFETY: CPython only reads it, and it points to static strings and functions.
unsafe impl Sync for Definition {}

/// Made as tpcapture's builtins are: fastcall with keywords.
static NOTHING: Definition = Definition(ffi::PyMethodDef {
    ml_name: c"nothing".as_ptr(),
    ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: nothing },
    ml_flags: ffi::METH_FASTCALL | ffi::METH_KEYWORDS,
    ml_doc: std::ptr::null(),
});

/// Takes any arguments and returns `None`.
unsafe extern "C" fn nothing(
    _receiver: *mut ffi::PyObject,
    _args: *const *mut ffi::PyObject,
    _n_args: ffi::Py_ssize_t,
    _names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called by the interpreter, so it runs and we are attached to it.
    unsafe {
        let none = ffi::Py_None();
        ffi::Py_INCREF(none);
        none
    }
}

fn build<'py>(
    py: Python<'py>,
    receiver: *mut ffi::PyObject,
    module_name: *mut ffi::PyObject,
) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the definition is static; CPython takes references of its own to the other two, which may be null.
    unsafe {
        Bound::from_owned_ptr_or_err(
            py,
            ffi::PyCFunction_NewEx((&raw const NOTHING.0).cast_mut(), receiver, module_name),
        )
    }
}

/// A builtin that does nothing, bound to `receiver`, as a tap is to its state.
#[pyfunction]
fn bound_nothing<'py>(receiver: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    build(receiver.py(), receiver.as_ptr(), std::ptr::null_mut())
}

/// The address of `n_bytes` of memory as a ring's: anonymous, in huge pages where the kernel gives them, every page
/// touched. It is never given back.
#[pyfunction]
fn warm_memory(n_bytes: usize) -> PyResult<usize> {
    let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping wherever the kernel likes; advice may be refused; we alone write to it.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), n_bytes, protection, kind, -1, 0);
        if start == libc::MAP_FAILED {
            return Err(PyMemoryError::new_err(format!("mmap refuses {n_bytes} bytes")));
        }
        libc::madvise(start, n_bytes, libc::MADV_HUGEPAGE);
        start.cast::<u8>().write_bytes(1, n_bytes);
        Ok(start as usize)
    }
}

/// memcpy(3) of `n_bytes` between addresses that the caller vouches for; how many nanoseconds it took by itself.
#[pyfunction]
fn memcpy(to: usize, from: usize, n_bytes: usize) -> u64 {
    let start = Instant::now();
    // SAFETY: the caller's word.
    unsafe { libc::memcpy(to as *mut libc::c_void, from as *const libc::c_void, n_bytes) };
    start.elapsed().as_nanos() as u64
}

/// Bytes that one thread compares at a time.
const PIECE: usize = 1 << 20;

/// memcmp(3) over two files of one length, mapped, by so many threads; how many nanoseconds it took with the mapping. Each
/// piece is compared whatever the one before it said, as headers differ where data do not.
#[pyfunction]
fn memcmp(py: Python<'_>, a: PathBuf, b: PathBuf, threads: usize) -> PyResult<u64> {
    py.detach(|| {
        let start = Instant::now();
        // SAFETY: nobody changes the files of a bench that it has finished writing.
        let [a, b] = [a, b].map(|path| File::open(path).and_then(|file| unsafe { Mmap::map(&file) }));
        let (a, b) = (a?, b?);
        let next = AtomicUsize::new(0);
        let compare = || {
            let mut equal = 0;
            while let (Some(a), Some(b)) = {
                let at = next.fetch_add(PIECE, Ordering::Relaxed);
                (piece(&a, at), piece(&b, at))
            } {
                equal += usize::from(std::hint::black_box(a == b));
            }
            equal
        };
        std::thread::scope(|scope| {
            (1..threads).for_each(|_| {
                scope.spawn(compare);
            });
            std::hint::black_box(compare());
        });
        drop((a, b));
        Ok(start.elapsed().as_nanos() as u64)
    })
}

fn piece(bytes: &[u8], at: usize) -> Option<&[u8]> {
    bytes.get(at..(at + PIECE).min(bytes.len())).filter(|piece| !piece.is_empty())
}

#[pymodule]
fn floor(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let name = module.name()?;
    module.add("nothing", build(module.py(), std::ptr::null_mut(), name.as_ptr())?)?;
    module.add_function(wrap_pyfunction!(bound_nothing, module)?)?;
    module.add_function(wrap_pyfunction!(warm_memory, module)?)?;
    module.add_function(wrap_pyfunction!(memcpy, module)?)?;
    module.add_function(wrap_pyfunction!(memcmp, module)?)
}
