//! From whatever a model calls a tensor to a view of its memory.
//!
//! How a type is to be asked is found out once per type: by DLPack's C exchange API (torch from 2.10 on, about 80 ns),
//! by torch's own attributes (older torch), by NumPy's array interface (NumPy: DLPack refuses its read-only arrays and
//! does not know ml_dtypes), by that of CUDA (CuPy, Numba: it names the stream), or by `__dlpack__` (JAX, anything else).

use crate::described::{Tensor, no_place, on_cuda, on_device, spoken};
use crate::{exchange, interface};
use capture_core::view::Element;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};
use std::collections::HashMap;
use std::sync::Mutex;

/// How the tensors of one type are asked.
#[derive(Clone, Copy)]
enum Manner {
    Exchange {
        api: exchange::Api,
        is_torch: bool,
    },
    TorchAttributes,
    ArrayInterface,
    DLPack,
    /// Where this one has no such interface, by DLPack if it speaks that.
    CudaArrayInterface {
        else_dlpack: bool,
    },
    Unknown,
}

/// Describes a tensor; the error says why it cannot be captured.
pub(crate) fn describe(object: &Bound<'_, PyAny>) -> Result<Tensor, String> {
    let manner = manner(object).map_err(|error| spoken(object.py(), &error))?;
    let described = match manner {
        Manner::Exchange { api, is_torch } => {
            if !is_torch {
                return api.describe(object);
            }
            let tensor = api.describe(object).map_err(|reason| torch_obstacle(object).unwrap_or(reason))?;
            if tensor.data.is_null() && object.hasattr("to_local").unwrap_or(false) {
                return Err("it is a DTensor: capture x.to_local()".to_owned());
            }
            refuse_lazy_bits(object, tensor.element)?;
            return Ok(tensor);
        }
        Manner::TorchAttributes => return torch_attributes(object),
        Manner::ArrayInterface => return interface::describe(object),
        Manner::DLPack => exchange::describe_by_protocol(object),
        Manner::CudaArrayInterface { else_dlpack } => match interface::describe_cuda(object) {
            Some(described) => described,
            None if else_dlpack => exchange::describe_by_protocol(object),
            None => Err("it has no __cuda_array_interface__ at the moment".to_owned()),
        },
        Manner::Unknown => {
            let name =
                object.get_type().fully_qualified_name().map_err(|error| spoken(object.py(), &error))?;
            Err(format!("expected a tensor (DLPack or the array interface), found {name}"))
        }
    }?;
    Ok(described)
}

/// By the types' addresses. The types are kept alive, so that an address names one type for ever.
type Manners = HashMap<usize, (Py<PyType>, Manner)>;

fn manner(object: &Bound<'_, PyAny>) -> PyResult<Manner> {
    static MANNERS: PyOnceLock<Mutex<Manners>> = PyOnceLock::new();
    let py = object.py();
    let kind = object.get_type();
    let manners = MANNERS.get_or_init(py, Mutex::default);
    let known = |address| {
        let manners = manners.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        manners.get(&address).map(|(_, manner)| *manner)
    };
    let address = kind.as_ptr() as usize;
    if let Some(manner) = known(address) {
        return Ok(manner);
    }
    // Python code may run here: nothing is locked.
    let manner = find_manner(&kind)?;
    let mut manners = manners.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    manners.insert(address, (kind.unbind(), manner));
    Ok(manner)
}

fn find_manner(kind: &Bound<'_, PyType>) -> PyResult<Manner> {
    let is_torch = is_torch(kind)?;
    if let Some(api) = exchange::Api::of(kind)? {
        return Ok(Manner::Exchange { api, is_torch });
    }
    let manner = if is_torch {
        Manner::TorchAttributes
    } else if kind.hasattr("__array_interface__")? {
        Manner::ArrayInterface
    } else if kind.hasattr("__cuda_array_interface__")? {
        Manner::CudaArrayInterface { else_dlpack: kind.hasattr("__dlpack__")? }
    } else if kind.hasattr("__dlpack__")? {
        Manner::DLPack
    } else {
        Manner::Unknown
    };
    Ok(manner)
}

/// Whether the type is `torch.Tensor` or derives from it, found without importing torch.
fn is_torch(kind: &Bound<'_, PyType>) -> PyResult<bool> {
    for base in kind.mro() {
        let base = base.cast_into::<PyType>()?;
        if base.name()? == "Tensor" && base.module()? == "torch" {
            return Ok(true);
        }
    }
    Ok(false)
}

/// torch keeps conjugation and negation as bits beside the data, which no protocol passes on: the bytes would silently
/// be those of another tensor.
fn refuse_lazy_bits(tensor: &Bound<'_, PyAny>, element: Element) -> Result<(), String> {
    let py = tensor.py();
    let ask = |name| -> PyResult<bool> { tensor.call_method0(name)?.extract() };
    let is_complex = element == Element::Complex128 || element == Element::Plain(capture_core::Dtype::C64);
    let asked = || -> PyResult<Option<&str>> {
        if is_complex && ask(pyo3::intern!(py, "is_conj"))? {
            return Ok(Some("its conjugate bit is set: capture x.resolve_conj()"));
        }
        Ok(ask(pyo3::intern!(py, "is_neg"))?.then_some("its negative bit is set: capture x.resolve_neg()"))
    };
    match asked() {
        Ok(None) => Ok(()),
        Ok(Some(reason)) => Err(reason.to_owned()),
        Err(error) => Err(spoken(py, &error)),
    }
}

/// Why a torch tensor has no DLPack form, in torch's words for what it is; `None` where that says nothing.
#[cold]
fn torch_obstacle(tensor: &Bound<'_, PyAny>) -> Option<String> {
    torch_element(tensor).ok()?.err()
}

/// The items of a torch tensor, or why they do not lie in memory one by one.
fn torch_element(tensor: &Bound<'_, PyAny>) -> PyResult<Result<Element, String>> {
    let layout = tensor.getattr("layout")?.to_string();
    if layout != "torch.strided" {
        return Ok(Err(format!("its layout is {layout}, not torch.strided")));
    }
    if tensor.getattr("is_nested")?.extract()? {
        return Ok(Err("it is a nested tensor: capture its parts".to_owned()));
    }
    let device = tensor.getattr("device")?;
    if !matches!(device.getattr("type")?.extract::<String>()?.as_str(), "cpu" | "cuda") {
        return Ok(Err(on_device(&device.to_string())));
    }
    let name = tensor.getattr("dtype")?.to_string();
    let element = interface::element_by_name(name.trim_start_matches("torch."));
    Ok(element.ok_or_else(|| no_place(&name)))
}

/// torch before 2.10.
fn torch_attributes(tensor: &Bound<'_, PyAny>) -> Result<Tensor, String> {
    let py = tensor.py();
    let asked = || -> PyResult<Result<Tensor, String>> {
        let element = match torch_element(tensor)? {
            Ok(element) => element,
            Err(obstacle) => return Ok(Err(obstacle)),
        };
        let found = Tensor {
            data: tensor.call_method0("data_ptr")?.extract::<usize>()? as *const u8,
            element,
            shape: tensor.getattr("shape")?.cast::<PyTuple>()?.extract()?,
            strides: tensor.call_method0("stride")?.extract()?,
            on: None,
            keep: None,
        };
        let device = tensor.getattr("device")?;
        let Some(ordinal) = device.getattr("index")?.extract::<Option<i32>>()? else { return Ok(Ok(found)) };
        if device.getattr("type")?.extract::<String>()? != "cuda" {
            return Ok(Ok(found));
        }
        let cuda = py.import("torch.cuda")?;
        let stream = cuda.call_method1("current_stream", (device,))?.getattr("cuda_stream")?.extract()?;
        Ok(on_cuda(ordinal, stream, None).map(|on| Tensor { on, ..found }))
    };
    let described = asked().map_err(|error| spoken(py, &error))??;
    refuse_lazy_bits(tensor, described.element)?;
    Ok(described)
}
