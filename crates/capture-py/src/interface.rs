//! NumPy's array interface, and dtypes by their names, as ml_dtypes' are known by nothing else.

use crate::described::{Tensor, no_place, spoken};
use crate::exchange::{LEGACY_STREAM, contiguous};
use capture_core::Dtype;
use capture_core::view::Element;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Describes an object by its `__array_interface__`.
pub(crate) fn describe(object: &Bound<'_, PyAny>) -> Result<Tensor, String> {
    read(object).unwrap_or_else(|error| Err(spoken(object.py(), &error)))
}

/// Describes an object by its `__cuda_array_interface__`; `None` where this one has none.
pub(crate) fn describe_cuda(object: &Bound<'_, PyAny>) -> Option<Result<Tensor, String>> {
    let read_there = || -> PyResult<Option<Result<Tensor, String>>> {
        let Some(interface) = object.getattr_opt(pyo3::intern!(object.py(), "__cuda_array_interface__"))?
        else {
            return Ok(None);
        };
        let interface = interface.cast::<PyDict>()?;
        let tensor = match read_from(object, interface)? {
            Ok(tensor) => tensor,
            Err(reason) => return Ok(Some(Err(reason))),
        };
        let stream = interface.get_item("stream")?.filter(|stream| !stream.is_none());
        let stream: usize = stream.map_or(Ok(LEGACY_STREAM), |stream| stream.extract())?;
        if stream == 0 {
            let reason =
                "expected a stream other than 0, which is ambiguous, in its __cuda_array_interface__";
            return Ok(Some(Err(reason.to_owned())));
        }
        Ok(Some(tensor.on_its_device(stream, None).map(|on| Tensor { on, ..tensor })))
    };
    read_there().unwrap_or_else(|error| Some(Err(spoken(object.py(), &error))))
}

fn read(object: &Bound<'_, PyAny>) -> PyResult<Result<Tensor, String>> {
    let interface = object.getattr(pyo3::intern!(object.py(), "__array_interface__"))?;
    read_from(object, interface.cast::<PyDict>()?)
}

/// Both interfaces have these entries.
fn read_from(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyDict>) -> PyResult<Result<Tensor, String>> {
    let entry = |key: &str| -> PyResult<Option<Bound<'_, PyAny>>> {
        Ok(interface.get_item(key)?.filter(|value| !value.is_none()))
    };
    let missing = |key: &str| format!("its array interface has no {key:?}");
    let Some(typestr) = entry("typestr")? else { return Ok(Err(missing("typestr"))) };
    let typestr: String = typestr.extract()?;
    let element = match element_by_typestr(&typestr) {
        Some(element) => element,
        // ml_dtypes: the interface says only `<V2`.
        None => {
            let dtype = object.getattr_opt("dtype")?;
            let name = dtype.map(|dtype| dtype.getattr("name")?.extract::<String>()).transpose()?;
            match name.as_deref().and_then(element_by_name) {
                _ if typestr.starts_with('>') => {
                    return Ok(Err(format!(
                        "its typestr is {typestr:?}, big-endian, and records are little-endian"
                    )));
                }
                Some(element) => element,
                None => return Ok(Err(no_place(&name.unwrap_or(typestr)))),
            }
        }
    };
    let Some(shape) = entry("shape")? else { return Ok(Err(missing("shape"))) };
    let shape: Vec<u64> = shape.extract()?;
    let Some(data) = entry("data")? else {
        return Ok(Err("its array interface gives no address".to_owned()));
    };
    let (address, _read_only): (usize, bool) = data.extract()?;
    let item = element.item_bytes() as i64;
    let strides = match entry("strides")? {
        None => contiguous(&shape),
        Some(strides) => {
            let in_bytes: Vec<i64> = strides.extract()?;
            if in_bytes.iter().zip(&shape).any(|(stride, size)| *size > 1 && stride % item != 0) {
                return Ok(Err(format!(
                    "its strides {in_bytes:?} are no multiples of {item} bytes, one item"
                )));
            }
            in_bytes.iter().map(|stride| stride / item).collect()
        }
    };
    Ok(Ok(Tensor {
        data: address as *const u8,
        element,
        shape,
        strides,
        on: None,
        keep: Some(Box::new(interface.clone().unbind())),
    }))
}

/// `<f4` and the like, little-endian or of single bytes.
fn element_by_typestr(typestr: &str) -> Option<Element> {
    let dtype = match typestr {
        "|b1" => Dtype::BOOL,
        "|u1" => Dtype::U8,
        "|i1" => Dtype::I8,
        "<u2" => Dtype::U16,
        "<i2" => Dtype::I16,
        "<u4" => Dtype::U32,
        "<i4" => Dtype::I32,
        "<u8" => Dtype::U64,
        "<i8" => Dtype::I64,
        "<f2" => Dtype::F16,
        "<f4" => Dtype::F32,
        "<f8" => Dtype::F64,
        "<c8" => Dtype::C64,
        "<c16" => return Some(Element::Complex128),
        _ => return None,
    };
    Some(Element::Plain(dtype))
}

/// The names of torch's and ml_dtypes' dtypes.
pub(crate) fn element_by_name(name: &str) -> Option<Element> {
    let dtype = match name {
        "bool" => Dtype::BOOL,
        "uint8" => Dtype::U8,
        "int8" => Dtype::I8,
        "uint16" => Dtype::U16,
        "int16" => Dtype::I16,
        "uint32" => Dtype::U32,
        "int32" => Dtype::I32,
        "uint64" => Dtype::U64,
        "int64" => Dtype::I64,
        "float16" => Dtype::F16,
        "bfloat16" => Dtype::BF16,
        "float32" => Dtype::F32,
        "float64" => Dtype::F64,
        "complex64" => Dtype::C64,
        "complex128" => return Some(Element::Complex128),
        "float8_e4m3fn" => Dtype::F8_E4M3,
        "float8_e5m2" => Dtype::F8_E5M2,
        "float8_e4m3fnuz" => Dtype::F8_E4M3FNUZ,
        "float8_e5m2fnuz" => Dtype::F8_E5M2FNUZ,
        "float8_e8m0fnu" => Dtype::F8_E8M0,
        "float4_e2m1fn_x2" => return Some(Element::F4Pairs),
        "float4_e2m1fn" => return Some(Element::OnePerByte(Dtype::F4)),
        "float6_e2m3fn" => return Some(Element::OnePerByte(Dtype::F6_E2M3)),
        "float6_e3m2fn" => return Some(Element::OnePerByte(Dtype::F6_E3M2)),
        _ => return None,
    };
    Some(Element::Plain(dtype))
}
