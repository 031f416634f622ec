"""The dtypes of safetensors as NumPy, ml_dtypes and torch have them."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
    "F4": "float4_e2m1fn",
    "F6_E2M3": "float6_e2m3fn",
    "F6_E3M2": "float6_e3m2fn",
}
"""By the names that NumPy, ml_dtypes and (but for the last three) torch use."""

SUB_BYTE_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6}
"""Bits of the dtypes that are smaller than a byte."""


def numpy_dtype(name: str) -> "numpy.dtype[Any]":
    """NumPy's dtype for safetensors' `name`. ImportError where it is one of ml_dtypes' and that is not installed."""
    import numpy as np

    try:
        return np.dtype(NAMES[name])
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError as error:
        raise ImportError(
            f"{name} in NumPy needs the package ml_dtypes: pip install 'tpcapture[numpy]', or use .torch()"
        ) from error
    dtype: numpy.dtype[Any] = np.dtype(getattr(ml_dtypes, NAMES[name]))
    return dtype


def unpacked(packed: bytearray, bits: int) -> "numpy.ndarray[Any, Any]":
    """Elements of `bits` bits, the first in the lowest bits of the first byte, as one per byte."""
    import numpy as np

    stream = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little").reshape(-1, bits)
    return np.packbits(stream, axis=1, bitorder="little").reshape(-1)
