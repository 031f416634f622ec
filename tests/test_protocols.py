"""A tensor is whatever speaks DLPack or the array interface, or derives from torch's."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tpcapture

MEMORY = np.arange(120, dtype=np.float32).reshape(10, 12)
VIEW = MEMORY[1::2, 10:1:-3]
"""Rows 1, 3, 5, 7, 9 of columns 10, 7, 4: element (i, j) is 12(2i + 1) + 10 - 3j."""
EXPECTED = [[12.0 * (2 * i + 1) + 10 - 3 * j for j in range(3)] for i in range(5)]


def recorded(tmp_path: Path, tensor: Any, **how: Any) -> tpcapture.Record:
    with tpcapture.capturing(tmp_path) as path:
        tpcapture.capture("x", tensor, **how)
    assert tpcapture.status()["losses"] == []
    return tpcapture.open(path)["x"].ranks[None]


class ArrayInterface:
    """Nothing but `__array_interface__`."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @property
    def __array_interface__(self) -> Any:
        return self._array.__array_interface__


class DLPack:
    """Nothing but the two methods of the DLPack protocol."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()

    def __dlpack__(self, **how: Any) -> Any:
        return self._tensor.__dlpack__(**how)


class OldDLPack(DLPack):
    """The protocol before version 1: no keyword but `stream`, an unversioned capsule."""

    def __dlpack__(self, stream: Any = None) -> Any:  # type: ignore[override]
        return self._tensor.__dlpack__(stream=stream)


@pytest.mark.parametrize("wrap", [ArrayInterface, DLPack, OldDLPack])
def test_an_object_with_one_protocol_only(tmp_path: Path, wrap: type) -> None:
    record = recorded(tmp_path, wrap(VIEW))
    assert (record.dtype, record.shape, record.strides) == ("F32", [5, 3], [24, -3])
    assert record.numpy().tolist() == EXPECTED


def test_an_interface_without_strides_is_in_c_order(tmp_path: Path) -> None:
    kept = np.array(EXPECTED, dtype=np.float32)
    holder = type("Holder", (), {"__array_interface__": kept.__array_interface__ | {"strides": None}})
    assert recorded(tmp_path, holder()).numpy().tolist() == EXPECTED


def test_a_dlpack_tensor_of_torch_with_an_offset(tmp_path: Path) -> None:
    tensor = torch.arange(120, dtype=torch.bfloat16).reshape(10, 12)[1::2, 4:11:3]
    record = recorded(tmp_path, DLPack(tensor))
    assert (record.dtype, record.strides) == ("BF16", [24, 3])
    assert record.torch().equal(tensor)


def test_a_dlpack_object_is_let_go(tmp_path: Path) -> None:
    array = np.arange(4.0)
    with tpcapture.capturing(tmp_path):
        for _ in range(5):
            tpcapture.capture("x", DLPack(array))
            tpcapture.capture("y", ArrayInterface(array))
        array.resize(8, refcheck=True)  # refuses where anybody still refers to it
    assert tpcapture.status()["counters"]["records"] == 10


def test_a_parameter_that_requires_grad(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.tensor(EXPECTED))
    assert recorded(tmp_path, parameter).numpy().tolist() == EXPECTED
    assert (parameter.requires_grad, parameter.grad, parameter.grad_fn) == (True, None, None)


def test_a_result_in_the_autograd_graph(tmp_path: Path) -> None:
    weight = torch.ones(5, 3, requires_grad=True)
    product = weight * torch.tensor(EXPECTED)
    assert recorded(tmp_path, product).numpy().tolist() == EXPECTED
    product.sum().backward()
    assert weight.grad is not None
    assert weight.grad.tolist() == EXPECTED


def test_a_subclass_of_torch_tensor(tmp_path: Path) -> None:
    class Named(torch.Tensor):
        pass

    tensor = torch.tensor(EXPECTED).t().contiguous().t().as_subclass(Named)
    record = recorded(tmp_path, tensor)
    assert (record.strides, record.numpy().tolist()) == ([1, 5], EXPECTED)


def test_a_subclass_of_ndarray(tmp_path: Path) -> None:
    class Named(np.ndarray):  # type: ignore[type-arg]
        pass

    record = recorded(tmp_path, VIEW.view(Named))
    assert record.numpy().tolist() == EXPECTED


def test_a_tensor_captured_while_grad_mode_is_off_or_inference(tmp_path: Path) -> None:
    with torch.inference_mode():
        tensor = torch.tensor(EXPECTED) + 0
        assert recorded(tmp_path / "inference", tensor).numpy().tolist() == EXPECTED
    with torch.no_grad():
        assert recorded(tmp_path / "no_grad", tensor.clone()).numpy().tolist() == EXPECTED


@pytest.mark.parametrize("mmap", [True, False])
def test_a_record_reads_mapped_and_unmapped(tmp_path: Path, mmap: bool) -> None:
    path = recorded(tmp_path, VIEW)._run.path
    array = tpcapture.open(path, mmap=mmap)["x"].ranks[None].numpy()
    assert (array.tolist(), array.flags.writeable) == (EXPECTED, not mmap)


@pytest.mark.parametrize("rows", [3, np.int64(3), np.array(3), torch.tensor(3)])
def test_rows_are_an_integer_of_any_kind(tmp_path: Path, rows: Any) -> None:
    assert recorded(tmp_path, VIEW, rows=rows).rows == 3


def test_what_a_record_says_of_its_source(tmp_path: Path) -> None:
    record = recorded(tmp_path, VIEW, placement=" S( 1 , sections=[2, 1] )/tp , R/dp", rows=99)
    # More rows than there are is as many as there are.
    assert (record.rows, record.device, record.encoding) == (5, "cpu", None)
    assert record.placement is not None
    assert record.placement.replace(" ", "") == "S(1,sections=[2,1])/tp,R/dp"
