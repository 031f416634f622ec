"""Tensors of torch on a CUDA device, on streams of its own: where there is one (`make test-gpu`)."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tpcapture

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")

DTYPES = [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES += [torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2]


def bits(tensor: Any) -> Any:
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_and_layout(tmp_path: Path, dtype: torch.dtype) -> None:
    base = torch.randint(0, 2, (6, 8, 10), device="cuda").to(torch.float32).to(dtype)
    views = {
        "whole": base,
        "rows": base[:, 2:5],
        "columns": base[..., 1:9:2],
        "turned": base.permute(2, 0, 1),
    }
    with tpcapture.capturing(tmp_path) as path:
        for name, view in views.items():
            tpcapture.capture(name, view)
    run = tpcapture.open(path)
    for name, view in views.items():
        assert (bits(run[name].ranks[None].torch()) == bits(view)).all(), name


def test_the_stream_that_is_current_is_the_tensors(tmp_path: Path) -> None:
    stream = torch.cuda.Stream()
    with tpcapture.capturing(tmp_path) as path, torch.cuda.stream(stream):
        for i in range(50):
            x = torch.full((1 << 20,), float(i), device="cuda")
            torch.cuda._sleep(2_000_000)
            x += 0.5
            tpcapture.capture(f"x{i}", x)
            x.fill_(-1)
            del x
    run = tpcapture.open(path)
    for i in range(50):
        assert (run[f"x{i}"].ranks[None].numpy() == np.float32(i + 0.5)).all()


@pytest.mark.parametrize("mode", ["stats", "hash"])
def test_digests_are_those_of_the_host(tmp_path: Path, mode: str) -> None:
    x = torch.randn(1000, 777, device="cuda", dtype=torch.bfloat16)
    with tpcapture.capturing(tmp_path, select=f"*={mode}") as path:
        for name, tensor in {"a": x, "b": x.cpu(), "c": x.t(), "d": x.t().cpu()}.items():
            tpcapture.capture(name, tensor)
    (lines,) = path.glob("*.jsonl")
    found = {line["tap"]: line for line in map(json.loads, lines.read_text().splitlines()[1:])}
    for ours, host in (("a", "b"), ("c", "d")):
        if mode == "hash":
            assert found[ours]["hash"] == found[host]["hash"]
        else:
            for figure, value in found[host]["stats"].items():
                assert found[ours]["stats"][figure] == pytest.approx(value, rel=1e-9)
