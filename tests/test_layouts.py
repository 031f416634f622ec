"""Whatever the dtype and the strides of a tensor, its record holds the logical, C-ordered bytes.

The memory under every tensor is random, so that each byte that is out of place shows. What is expected comes from
NumPy: the address of every element, and the bytes there.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tpcapture

Bytes = NDArray[np.uint8]
MEMORY: Bytes = np.random.default_rng(7).integers(0, 256, 1 << 20, dtype=np.uint8)


@dataclass(frozen=True)
class Layout:
    """Where items stand in MEMORY: strides and start in items, `odd` in bytes on top."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int = 0
    odd: int = 0

    def elements(self, memory: Bytes, item: int) -> Bytes:
        """The bytes of every item in C order, one row each."""
        at = np.full(self.shape, self.start * item + self.odd, dtype=np.int64)
        for axis, (size, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            places = np.arange(size).reshape([-1 if a == axis else 1 for a in range(len(self.shape))])
            at += places * stride * item
        return memory[at.reshape(-1, 1) + np.arange(item)]


LAYOUTS = {
    "contiguous": Layout((4, 7), (7, 1)),
    "slice with a step": Layout((4, 5), (40, 3), start=6),
    "transposed, no whole number of tiles": Layout((70, 99), (1, 70)),
    "transposed, a single column too many": Layout((65, 64), (1, 65)),
    "3-D permuted (2, 0, 1)": Layout((35, 4, 71), (1, 71 * 35, 35)),
    "3-D permuted (1, 2, 0) of a slice": Layout((6, 37, 66), (40, 1, 500), start=2),
    "Fortran order": Layout((4, 6, 5), (1, 4, 24)),
    "expanded": Layout((3, 4, 5), (0, 1, 0)),
    "a broadcast scalar": Layout((8, 9), (0, 0), start=11),
    "odd address": Layout((4, 7), (7, 1), odd=1),
    "odd address, transposed": Layout((70, 98), (1, 70), odd=3),
    "sizes of one with wild strides": Layout((1, 4, 1, 3), (999, 3, -77, 1)),
    "no elements": Layout((3, 0, 2), (2, 2, 1)),
}
BACKWARDS = {
    "reversed": Layout((28,), (-1,), start=40),
    "reversed rows of a transposed": Layout((66, 70), (1, -66), start=66 * 69),
    "both reversed": Layout((6, 8), (-8, -1), start=47),
}
SCALAR = {"0-dim": Layout((), (), start=5)}

# What safetensors calls them, and bits of the types that are smaller than the byte they stand in.
TORCH = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32", "int32": "I32",
    "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64",
    "complex64": "C64", "complex128": "F64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
    "float8_e4m3fnuz": "F8_E4M3FNUZ", "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
    "float4_e2m1fn_x2": "F4",
}  # fmt: skip
SUB_BYTE = {"float4_e2m1fn": ("F4", 4), "float6_e2m3fn": ("F6_E2M3", 6), "float6_e3m2fn": ("F6_E3M2", 6)}
NUMPY = {name: kind for name, kind in TORCH.items() if name != "float4_e2m1fn_x2"} | {
    name: kind for name, (kind, _) in SUB_BYTE.items()
}


def memory_of(name: str) -> Bytes:
    # A bool is 0 or 1.
    return MEMORY & 1 if name == "bool" else MEMORY


def torch_tensor(name: str, layout: Layout) -> torch.Tensor:
    memory, dtype = bytearray(memory_of(name)), getattr(torch, name)
    count = (len(memory) - layout.odd) // dtype.itemsize
    flat = torch.frombuffer(memory, dtype=dtype, count=count, offset=layout.odd)
    # torch has no negative strides, not even where they do not matter.
    return flat.as_strided(layout.shape, [abs(s) for s in layout.strides], layout.start)


def numpy_array(name: str, layout: Layout) -> NDArray[Any]:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    strides = tuple(stride * dtype.itemsize for stride in layout.strides)
    offset = layout.start * dtype.itemsize + layout.odd
    array = np.ndarray(layout.shape, dtype, memory_of(name), offset, strides)
    array.flags.writeable = False
    return array


def packed(elements: Bytes, bits: int) -> bytes:
    """The low `bits` of each byte, one after the other from the lowest bit on."""
    stream = np.unpackbits(elements.reshape(-1, 1), axis=1, count=bits, bitorder="little")
    return np.packbits(stream.reshape(-1), bitorder="little").tobytes()


def expected_bytes(name: str, layout: Layout, item: int) -> bytes:
    elements = layout.elements(memory_of(name), item)
    return packed(elements, SUB_BYTE[name][1]) if name in SUB_BYTE else elements.tobytes()


@dataclass(frozen=True)
class Captured:
    """One record by our reader, and the same by the safetensors package."""

    record: tpcapture.Record
    dtype: str
    shape: list[int]
    data: bytes
    segment: Path
    key: str

    def torch(self) -> torch.Tensor:
        with safetensors.safe_open(self.segment, "pt") as file:
            return file.get_tensor(self.key)


def captured(tensors: dict[str, Any], out: Path) -> dict[str, Captured]:
    with tpcapture.capturing(out) as path:
        for name, tensor in tensors.items():
            tpcapture.capture(name, tensor)
    status = tpcapture.status()
    assert (status["losses"], status["last_error"]) == ([], None)
    run, found = tpcapture.open(path), {}
    for segment in path.glob("*.safetensors"):
        for key, stored in safetensors.deserialize(segment.read_bytes()):
            name = key.removeprefix("step0/")
            record, data = run[name].ranks[None], bytes(stored["data"])
            found[name] = Captured(record, stored["dtype"], stored["shape"], data, segment, key)
    assert found.keys() == tensors.keys()
    return found


TORCH_CASES = {
    f"{name}, {title}": (name, layout) for name in TORCH for title, layout in (LAYOUTS | SCALAR).items()
}
NUMPY_CASES = {
    f"{name}, {title}": (name, layout)
    for name in NUMPY
    for title, layout in (LAYOUTS | BACKWARDS | ({} if name in SUB_BYTE else SCALAR)).items()
    # Elements of four or six bits have to fill whole bytes.
    if name not in SUB_BYTE or np.prod(layout.shape) % 4 == 0
}


@pytest.fixture(scope="module")
def of_torch(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Captured]:
    tensors = {case: torch_tensor(*of) for case, of in TORCH_CASES.items()}
    return captured(tensors, tmp_path_factory.mktemp("torch"))


@pytest.fixture(scope="module")
def of_numpy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Captured]:
    arrays = {case: numpy_array(*of) for case, of in NUMPY_CASES.items()}
    return captured(arrays, tmp_path_factory.mktemp("numpy"))


def raw(tensor: torch.Tensor) -> bytes:
    """A tensor's bytes by way of torch."""
    flat = tensor.contiguous().reshape(-1)
    return b"" if flat.numel() == 0 else flat.view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("case", TORCH_CASES)
def test_a_torch_tensor_is_its_logical_bytes(of_torch: dict[str, Captured], case: str) -> None:
    (name, layout), found = TORCH_CASES[case], of_torch[case]
    dtype = getattr(torch, name)
    expected = expected_bytes(name, layout, dtype.itemsize)
    stored = list(layout.shape)
    if name == "complex128":
        stored = [*stored, 2]
    elif name == "float4_e2m1fn_x2":
        stored = [*stored[:-1], stored[-1] * 2] if stored else [2]
    assert (found.dtype, found.shape, found.data) == (TORCH[name], stored, expected)
    assert raw(found.torch()) == expected
    assert (found.record.dtype, found.record.shape) == (TORCH[name], stored)
    back = found.record.torch()
    assert (back.dtype, raw(back)) == (dtype, expected)
    if not (name == "float4_e2m1fn_x2" and layout.shape == ()):
        assert back.shape == layout.shape


@pytest.mark.parametrize("case", NUMPY_CASES)
def test_a_numpy_array_is_its_logical_bytes(of_numpy: dict[str, Captured], case: str) -> None:
    (name, layout), found = NUMPY_CASES[case], of_numpy[case]
    array = numpy_array(name, layout)
    expected = expected_bytes(name, layout, array.dtype.itemsize)
    stored = [*layout.shape, 2] if name == "complex128" else list(layout.shape)
    assert (found.dtype, found.shape, found.data) == (NUMPY[name], stored, expected)
    back = found.record.numpy()
    assert (back.dtype, back.shape) == (array.dtype, layout.shape)
    elements = layout.elements(memory_of(name), array.dtype.itemsize)
    if name in SUB_BYTE:
        elements = elements & ((1 << SUB_BYTE[name][1]) - 1)
    assert back.tobytes() == elements.tobytes()


@pytest.mark.parametrize(
    ("name", "why"), [("float6_e2m3fn", "no dtype for F6_E2M3"), ("float4_e2m1fn", "fp4 in pairs")]
)
def test_what_torch_cannot_have_is_a_type_error(of_numpy: dict[str, Captured], name: str, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        of_numpy[f"{name}, slice with a step"].record.torch()


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Any shape of up to five dimensions and 4096 items, its items anywhere in MEMORY."""
    shape = draw(st.lists(st.integers(0, 40), max_size=5))
    while np.prod(shape) > 4096:
        shape[int(np.argmax(shape))] //= 2
    strides = [draw(st.integers(-90, 90)) for _ in shape]
    reach = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True) if size > 0]
    start = -sum(r for r in reach if r < 0)
    return Layout(tuple(shape), tuple(strides), start, draw(st.integers(0, 15)))


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Callable[[NDArray[Any]], tpcapture.Record]:
    root, count = tmp_path_factory.mktemp("any"), iter(range(1_000_000))

    def record_of(array: NDArray[Any]) -> tpcapture.Record:
        with tpcapture.capturing(root / str(next(count))) as path:
            tpcapture.capture("x", array)
        return tpcapture.open(path)["x"].ranks[None]

    return record_of


@settings(max_examples=40, deadline=None, database=None)
@given(layout=layouts(), name=st.sampled_from(["uint8", "bfloat16", "float32", "complex64", "complex128"]))
def test_any_shape_and_strides(
    session: Callable[[NDArray[Any]], tpcapture.Record], layout: Layout, name: str
) -> None:
    array = numpy_array(name, layout)
    assert session(array).bytes() == layout.elements(MEMORY, array.dtype.itemsize).tobytes()
