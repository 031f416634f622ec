"""A CUDA driver for tests, and arrays in its devices' memory: the simulated driver, or the machine's own.

Programs under test call `load()` before they import tpcapture. `CUDA_DRIVER` is the path of the library.
"""

import ctypes
import os
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

LEGACY, PER_THREAD = 1, 2
CAPTURE_GLOBAL = 0


class Driver:
    """The functions of the driver; each raises where it fails."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self.library, name)

        def call(*arguments: Any) -> None:
            # Handles and addresses are 64 bits wide; a plain int would be passed as 32.
            wide = [ctypes.c_uint64(a & (1 << 64) - 1) if isinstance(a, int) else a for a in arguments]
            code = function(*wide)
            if code:
                raise RuntimeError(f"{name}: error {code}")

        return call

    def handle(self, function: str, *arguments: Any) -> int:
        """What the function returns through its first argument."""
        out = ctypes.c_uint64()
        getattr(self, function)(ctypes.byref(out), *arguments)
        return out.value

    def enter(self, device: int) -> int:
        """Makes the device's primary context current."""
        context = self.handle("cuDevicePrimaryCtxRetain", device)
        self.cuCtxSetCurrent(context)
        return context

    def stream(self) -> int:
        """A new stream that does not wait for the legacy default stream."""
        return self.handle("cuStreamCreate", 1)


_driver: Driver | None = None


def load() -> Driver:
    """The driver, with device 0's context current."""
    global _driver
    if _driver is None:
        _driver = Driver(os.environ.get("CUDA_DRIVER", "libcuda.so.1"))
        _driver.cuInit(0)
        _driver.enter(0)
    return _driver


class OnDevice:
    """An array of NumPy in a device's memory, strides and all."""

    def __init__(self, array: Array, stream: int | None = LEGACY, kind: str = "cuMemAlloc_v2") -> None:
        self.driver, self.array, self.stream = load(), array, stream
        # Everything from the lowest to the highest address that the array reaches.
        low, high = np.lib.array_utils.byte_bounds(array)
        self.n_bytes = high - low
        more = (1,) if kind == "cuMemAllocManaged" else (0,) if kind == "cuMemHostAlloc" else ()
        self.memory = self.driver.handle(kind, max(self.n_bytes, 1), *more)
        self.first = self.memory + array.ctypes.data - low
        if kind == "cuMemAlloc_v2":
            self.driver.cuMemcpyHtoD_v2(self.memory, low, self.n_bytes)
        else:
            ctypes.memmove(self.memory, low, self.n_bytes)

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    def overwrite(self) -> None:
        """Has the stream spoil it."""
        self.driver.cuMemsetD8Async(self.memory, 0xEE, self.n_bytes, self.stream)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.array.shape,
            "typestr": self.array.dtype.str,
            "data": (self.first, False),
            "strides": self.array.strides,
            "stream": self.stream,
        }


class _DLManagedTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )


_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Lent:
    """float32 in a device's memory by `__dlpack__` and nothing else, as a framework that keeps its stream to itself."""

    KIND_CUDA, KIND_MANAGED = 2, 13

    def __init__(self, on_device: OnDevice, kind: int = KIND_CUDA) -> None:
        self.on_device, self.kind = on_device, kind
        self.asked_for: list[Any] = []
        self.returned = 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.kind, 0)

    def __dlpack__(self, *, stream: Any = None, **_: Any) -> Any:
        self.asked_for.append(stream)
        shape = (ctypes.c_int64 * self.on_device.array.ndim)(*self.on_device.array.shape)
        strides = (ctypes.c_int64 * self.on_device.array.ndim)(
            *[s // 4 for s in self.on_device.array.strides]
        )

        def give_back(_: int) -> None:
            self.returned += 1

        self._held = (shape, strides, _DELETER(give_back))
        self._tensor = _DLManagedTensor(
            self.on_device.first, self.kind, 0, len(shape), 2, 32, 1,
            ctypes.addressof(shape), ctypes.addressof(strides), 0, None,
            ctypes.cast(self._held[2], ctypes.c_void_p),
        )  # fmt: skip
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = (
            ctypes.py_object,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
        )
        return capsule(ctypes.addressof(self._tensor), b"dltensor", None)


class _Borrowed(ctypes.Structure):
    """DLTensor."""

    _fields_ = _DLManagedTensor._fields_[:-2]


class _ExchangeApi(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("allocator", ctypes.c_void_p),
        ("from_object", ctypes.c_void_p),
        ("to_object", ctypes.c_void_p),
        ("borrow", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


_BORROW = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_Borrowed))
_STREAM = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class Exchanged:
    """float32 in a device's memory by DLPack's C exchange API, as torch's tensors are from 2.10 on."""

    current_stream = LEGACY

    def __init__(self, on_device: OnDevice) -> None:
        self.on_device = on_device
        array = on_device.array
        self.shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        self.strides = (ctypes.c_int64 * array.ndim)(*[s // 4 for s in array.strides])

    @staticmethod
    def _borrow(tensor: "Exchanged", out: Any) -> int:
        out[0] = _Borrowed(
            tensor.on_device.first, Lent.KIND_CUDA, 0, len(tensor.shape), 2, 32, 1,
            ctypes.addressof(tensor.shape), ctypes.addressof(tensor.strides), 0,
        )  # fmt: skip
        return 0

    @classmethod
    def _stream(cls, _kind: int, _device: int, out: Any) -> int:
        out[0] = cls.current_stream
        return 0


def _capsule() -> Any:
    functions = (_BORROW(Exchanged._borrow), _STREAM(Exchanged._stream))
    api = _ExchangeApi(1, 3, *[None] * 4, *[ctypes.cast(f, ctypes.c_void_p) for f in functions])
    Exchanged._kept = (functions, api)  # type: ignore[attr-defined]
    capsule = ctypes.pythonapi.PyCapsule_New
    capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return capsule(ctypes.addressof(api), b"dlpack_exchange_api", None)


Exchanged.__dlpack_c_exchange_api__ = _capsule()  # type: ignore[attr-defined]
