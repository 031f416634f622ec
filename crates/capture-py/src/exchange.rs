//! DLPack: the C exchange API, cached per type, and the Python protocol.
#![expect(unsafe_code, reason = "the C structures of DLPack")]

use crate::described::{Tensor, no_place, on_cuda, on_device, spoken};
use capture_core::Dtype;
use capture_core::view::Element;
use dlpark::ffi::{
    DLDataType, DLDataTypeCode as Code, DLDevice, DLPACK_MAJOR_VERSION, DLPackCurrentWorkStream,
    DLPackDLTensorFromPyObjectNoSync, DLPackExchangeAPI, DLPackExchangeAPIHeader, DLTensor,
};
use dlpark::python::ImportRequest;
use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::mem::MaybeUninit;

/// A type's function that describes its tensors, borrowed for the time of a call.
#[derive(Clone, Copy)]
pub(crate) struct Api {
    borrow: unsafe extern "C" fn(*mut std::ffi::c_void, *mut DLTensor) -> std::ffi::c_int,
    /// The stream that the framework works on now; none where it has but the processor.
    stream: DLPackCurrentWorkStream,
}

impl Api {
    /// The exchange API of a type, where it has one that we understand and that can lend a tensor.
    pub(crate) fn of(kind: &Bound<'_, PyType>) -> PyResult<Option<Self>> {
        let capsule = match kind.getattr("__dlpack_c_exchange_api__") {
            Ok(capsule) => capsule,
            Err(error) if error.is_instance_of::<PyAttributeError>(kind.py()) => return Ok(None),
            Err(error) => return Err(error),
        };
        // SAFETY: checks that it is a capsule of that name, and sets an exception if not.
        let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), c"dlpack_exchange_api".as_ptr()) };
        if table.is_null() {
            return Err(PyErr::fetch(kind.py()));
        }
        let mut header = table.cast::<DLPackExchangeAPIHeader>();
        // SAFETY: the table of a capsule of that name, and its older versions, live as long as the process.
        unsafe {
            while !header.is_null() && (*header).version.major != DLPACK_MAJOR_VERSION {
                header = (*header).prev_api;
            }
            if header.is_null() {
                return Ok(None);
            }
            let api = &*header.cast::<DLPackExchangeAPI>();
            let borrow: DLPackDLTensorFromPyObjectNoSync = api.dltensor_from_py_object_no_sync;
            Ok(borrow.map(|borrow| Self { borrow, stream: api.current_work_stream }))
        }
    }

    /// Describes a tensor of the type that this API came from.
    pub(crate) fn describe(self, tensor: &Bound<'_, PyAny>) -> Result<Tensor, String> {
        let mut lent = MaybeUninit::<DLTensor>::uninit();
        // SAFETY: a tensor of the API's type, and room for what it lends.
        let status = unsafe { (self.borrow)(tensor.as_ptr().cast(), lent.as_mut_ptr()) };
        if status != 0 {
            let py = tensor.py();
            return Err(
                PyErr::take(py).map_or_else(|| "it has no DLPack form".to_owned(), |e| spoken(py, &e))
            );
        }
        // SAFETY: filled, as it returned 0.
        let lent = unsafe { lent.assume_init() };
        let ndim = usize::try_from(lent.ndim).map_err(|_| format!("it claims {} dimensions", lent.ndim))?;
        let numbers = |from: *const i64| {
            if ndim == 0 || from.is_null() {
                &[][..]
            } else {
                // SAFETY: one number per dimension, valid until control returns to the framework.
                unsafe { std::slice::from_raw_parts(from, ndim) }
            }
        };
        let data = lent.data.cast_const().cast();
        let mut found =
            described(lent.dtype, data, lent.byte_offset, numbers(lent.shape), numbers(lent.strides))?;
        if !is_host(lent.device) {
            let stream = self.stream_of(tensor.py(), lent.device)?;
            found.on = on_stream(lent.device, &found, stream, None)?;
        }
        Ok(found)
    }

    /// The handle of the stream that the framework works on.
    fn stream_of(self, py: Python<'_>, device: DLDevice) -> Result<usize, String> {
        let Some(current) = self.stream else { return Ok(LEGACY_STREAM) };
        let mut stream = std::ptr::null_mut();
        // SAFETY: the framework's function, and room for a handle.
        let status = unsafe { current(device.device_type, device.device_id, &raw mut stream) };
        if status == 0 {
            return Ok(stream as usize);
        }
        Err(PyErr::take(py).map_or_else(|| "its framework names no stream".to_owned(), |e| spoken(py, &e)))
    }
}

/// Describes anything that has `__dlpack__`.
pub(crate) fn describe_by_protocol(object: &Bound<'_, PyAny>) -> Result<Tensor, String> {
    let py = object.py();
    let request = ImportRequest::new(object.as_borrowed()).map_err(|error| spoken(py, &error))?;
    if let Ok(device) = request.device()
        && !is_host(device)
        && !is_cuda(device)
    {
        // Asked first: importing from a device makes its stream wait.
        return Err(on_device(&device_name(device)));
    }
    let import = request.import(None, None).or_else(|error| {
        if !error.is_instance_of::<PyTypeError>(py) {
            return Err(error);
        }
        // A producer from before DLPack 1.0 knows no `max_version`.
        let capsule = object.call_method0("__dlpack__").map_err(|_| error)?;
        ImportRequest::new(capsule.as_borrowed())?.import(None, None)
    });
    let import = import.map_err(|error| spoken(py, &error))?;
    let (mut tensor, device) = {
        let lent = import.validate().map_err(|error| error.to_string())?;
        let strides = lent.strides_or_compact().map_err(|error| error.to_string())?;
        let data = lent.data_ptr().cast::<u8>();
        let tensor = described(lent.dtype(), data, lent.byte_offset(), lent.shape(), &strides)?;
        (tensor, lent.device())
    };
    if is_host(device) {
        tensor.keep = Some(Box::new(import));
    } else {
        // Asked for no stream in particular, the producer has the legacy default stream wait for its own.
        tensor.on = on_stream(device, &tensor, LEGACY_STREAM, Some(Box::new(import)))?;
    }
    Ok(tensor)
}

/// The handle of CUDA's legacy default stream.
pub(crate) const LEGACY_STREAM: usize = 1;

/// The way to a tensor that is not the processor's.
fn on_stream(
    device: DLDevice,
    tensor: &Tensor,
    stream: usize,
    keep: Option<Box<dyn Send>>,
) -> Result<Option<(String, capture_cuda::Lane)>, String> {
    match device.device_type.0 {
        // Managed memory says no device: the driver knows whose it is.
        13 => tensor.on_its_device(stream, keep),
        _ if is_cuda(device) => on_cuda(device.device_id, stream, keep),
        _ => Err(on_device(&device_name(device))),
    }
}

fn described(
    dtype: DLDataType,
    data: *const u8,
    byte_offset: u64,
    shape: &[i64],
    strides: &[i64],
) -> Result<Tensor, String> {
    let element = element(dtype)?;
    let size = |&size: &i64| u64::try_from(size).map_err(|_| format!("it claims a dimension of {size}"));
    let shape = shape.iter().map(size).collect::<Result<Vec<u64>, String>>()?;
    let strides = if strides.is_empty() { contiguous(&shape) } else { strides.to_vec() };
    // A null pointer stays null, so that a FakeTensor is known by it.
    let data = if data.is_null() { data } else { data.wrapping_add(byte_offset as usize) };
    Ok(Tensor { data, element, shape, strides, on: None, keep: None })
}

/// The strides of a C-ordered tensor, in items.
pub(crate) fn contiguous(shape: &[u64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(i64::try_from(shape[i]).unwrap_or(i64::MAX));
    }
    strides
}

/// CPU, and memory that CUDA or ROCm pinned for the host.
fn is_host(device: DLDevice) -> bool {
    matches!(device.device_type.0, 1 | 3 | 11)
}

/// A CUDA device's own memory, or memory that its driver manages.
fn is_cuda(device: DLDevice) -> bool {
    matches!(device.device_type.0, 2 | 13)
}

fn device_name(device: DLDevice) -> String {
    let kind = match device.device_type.0 {
        2 => "cuda",
        8 => "metal",
        10 => "rocm",
        13 => "cuda (managed memory)",
        14 => "oneapi",
        n => return format!("DLPack device type {n}"),
    };
    format!("{kind}:{}", device.device_id)
}

fn element(dtype: DLDataType) -> Result<Element, String> {
    let plain = match (dtype.code, dtype.bits, dtype.lanes) {
        (Code::BOOL, 8, 1) => Dtype::BOOL,
        (Code::UINT, 8, 1) => Dtype::U8,
        (Code::INT, 8, 1) => Dtype::I8,
        (Code::UINT, 16, 1) => Dtype::U16,
        (Code::INT, 16, 1) => Dtype::I16,
        (Code::UINT, 32, 1) => Dtype::U32,
        (Code::INT, 32, 1) => Dtype::I32,
        (Code::UINT, 64, 1) => Dtype::U64,
        (Code::INT, 64, 1) => Dtype::I64,
        (Code::FLOAT, 16, 1) => Dtype::F16,
        (Code::BFLOAT, 16, 1) => Dtype::BF16,
        (Code::FLOAT, 32, 1) => Dtype::F32,
        (Code::FLOAT, 64, 1) => Dtype::F64,
        (Code::COMPLEX, 64, 1) => Dtype::C64,
        (Code::COMPLEX, 128, 1) => return Ok(Element::Complex128),
        (Code::FLOAT8_E4M3FN, 8, 1) => Dtype::F8_E4M3,
        (Code::FLOAT8_E5M2, 8, 1) => Dtype::F8_E5M2,
        (Code::FLOAT8_E4M3FNUZ, 8, 1) => Dtype::F8_E4M3FNUZ,
        (Code::FLOAT8_E5M2FNUZ, 8, 1) => Dtype::F8_E5M2FNUZ,
        (Code::FLOAT8_E8M0FNU, 8, 1) => Dtype::F8_E8M0,
        (Code::FLOAT4_E2M1FN, 4, 2) => return Ok(Element::F4Pairs),
        (Code(code), bits, lanes) => {
            return Err(no_place(&format!("(DLPack code {code}, {bits} bits, {lanes} lanes)")));
        }
    };
    Ok(Element::Plain(plain))
}
