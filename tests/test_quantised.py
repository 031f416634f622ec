"""Quantised tensors of real ranks: compared with what torch dequantises, bit by bit, and every fault of a scale named.

The reference holds numbers that torch made of codes and scales, by the formulas of the checkpoints' loaders. The
candidate's ranks hold the codes and scales.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import Launch, clean_env

Runs = Callable[[str, str, int], Path]

TORCH = """
import torch
from tpcapture import capture
import ml_dtypes, numpy as np

torch.manual_seed(11)
E2M1 = torch.tensor(np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32))

def unpack(pairs):
    return E2M1[torch.stack([pairs & 15, pairs >> 4], -1).flatten(-2).long()]

def blocks(scale, rows, columns):
    return scale.float().repeat_interleave(rows, -2).repeat_interleave(columns, -1)

def tiled(scale):
    # Padded to whole tiles of 128 x 4 with NaN, and each tile as cuBLAS wants it.
    rows, columns = -(-scale.shape[0] // 128) * 128, -(-scale.shape[1] // 4) * 4
    padded = torch.full((rows, columns), 0x7F, dtype=torch.uint8)
    padded[: scale.shape[0], : scale.shape[1]] = scale.view(torch.uint8)
    tiles = padded.view(rows // 128, 4, 32, columns // 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.reshape(rows, columns)

def ranks(tensor, dim=0):
    return tensor.chunk(WORLD, dim)[RANK].contiguous()
"""


def compare(a: Path, b: Path, layouts: str, tmp_path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a comparison by tap."""
    file = tmp_path / "layouts.toml"
    file.write_text(layouts)
    done = subprocess.run(
        [sys.executable, "-m", "tpcapture", "compare", "--json", "--layouts", str(file), str(a), str(b)],
        env=clean_env(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return {row["tap"]: row for row in json.loads(done.stdout)["rows"]}


@pytest.fixture
def runs(rank: Launch) -> Runs:
    """`runs("a", code, world)` runs code as ranks that know RANK and WORLD, into one run."""

    def run(name: str, code: str, world: int) -> Path:
        def one(r: int) -> Path:
            head = f"RANK, WORLD = {r}, {world}\n"
            return rank(head + TORCH + code, rank=r, world=world, run=name, TPCAPTURE="1").run_dir

        with ThreadPoolExecutor(world) as pool:
            return next(iter(list(pool.map(one, range(world)))))

    return run


def check_identical(rows: dict[str, dict[str, Any]], tap: str) -> None:
    row = rows[tap]
    assert (row["verdict"], row["diagnoses"]) == ("IDENTICAL", []), row


def test_nvfp4_with_scales_in_tiles(runs: Runs, tmp_path: Path) -> None:
    tensors = """
w = torch.randint(0, 256, (264, 64), dtype=torch.uint8)
s = torch.rand(264, 8).mul(400).to(torch.float8_e4m3fn)
g = torch.tensor([0.0123])
"""
    a = runs("a", tensors + "capture('m.w', unpack(w) * blocks(s, 1, 16) * g)", 1)
    packed = "ranks(w).view(torch.float4_e2m1fn_x2) if FOUR else ranks(w)"
    layouts = """
[[tap]]
match = "*.w"
placement = "S(0)"
[[tap]]
match = "*.w"
side = "candidate"
transforms = ["dequant(nvfp4, scale=*.s, global=*.g)"]
[[tap]]
match = "*.s"
transforms = ["unswizzle(128x4)"]
"""
    candidate = f"capture('m.w', {packed}); capture('m.s', tiled(ranks(s))); capture('m.g', g)"
    for name, four in (("b", "False"), ("c", "hasattr(torch, 'float4_e2m1fn_x2')")):
        b = runs(name, f"FOUR = {four}\n" + tensors + candidate, 2)
        check_identical(compare(a, b, layouts, tmp_path), "m.w")
    # compressed-tensors divides by its global scale, which rounds otherwise.
    over = tensors + "capture('m.w', unpack(w) * (s.float() / g).repeat_interleave(16, 1))"
    rows = compare(runs("d", over, 1), b, layouts.replace("global=*", "global=1/*"), tmp_path)
    check_identical(rows, "m.w")


def test_microscaling(runs: Runs, tmp_path: Path) -> None:
    tensors = """
w = torch.randint(0, 0x7F, (4, 96), dtype=torch.uint8)
s = torch.randint(100, 140, (4, 3), dtype=torch.uint8)
e8m0 = blocks(torch.tensor(s.numpy().view(ml_dtypes.float8_e8m0fnu).astype(np.float32)), 1, 32)
"""
    whole = "capture('e4m3', w.view(torch.float8_e4m3fn).float() * e8m0); capture('e2m1', unpack(w[:, :48]) * e8m0)"
    parts = """
scale = ranks(s, 0)
capture('s', scale.view(torch.float8_e8m0fnu) if hasattr(torch, 'float8_e8m0fnu') else scale)
capture('e4m3', ranks(w).view(torch.float8_e4m3fn)); capture('e2m1', ranks(w[:, :48]))
"""
    layouts = """
[[tap]]
match = "e4m3"
side = "candidate"
transforms = ["dequant(mxfp8, scale=s)"]
[[tap]]
match = "e2m1"
side = "candidate"
transforms = ["dequant(mxfp4, scale=s)"]
[[tap]]
match = "e*"
placement = "S(0)"
"""
    rows = compare(runs("a", tensors + whole, 1), runs("b", tensors + parts, 2), layouts, tmp_path)
    check_identical(rows, "e4m3")
    check_identical(rows, "e2m1")


def test_block_scales_that_ranks_share(runs: Runs, tmp_path: Path) -> None:
    """64 rows a rank and blocks of 128; then a rank holds another block's scale."""
    tensors = """
w = torch.randn(256, 200).to(torch.float8_e4m3fn)
s = torch.tensor([[0.5, 0.75], [3.0, 2.5]])
"""
    full = "capture('q.w', w.float() * blocks(s, 128, 128)[:256, :200]); capture('q.s', s)"
    a = runs("a", tensors + full, 1)
    layouts = """
[[tap]]
match = "*.w"
side = "candidate"
transforms = ["dequant(fp8-block, scale=*.s, block=[128,128])"]
"""
    captured = """
capture('q.w', ranks(w), placement='S(0)')
capture('q.s', s[[HELD[RANK]]], placement='scale_of(q.w, block=[128,128])')
"""
    b = runs("b", "HELD = [0, 0, 1, 1]\n" + tensors + captured, 4)
    rows = compare(a, b, layouts, tmp_path)
    check_identical(rows, "q.w")
    check_identical(rows, "q.s")
    c = runs("c", "HELD = [0, 0, 0, 1]\n" + tensors + captured, 4)
    rows = compare(a, c, layouts, tmp_path)
    assert (rows["q.s"]["verdict"], rows["q.s"]["ranks"]) == ("DIFFERENT", [2])
    texts = [d["text"] for d in rows["q.s"]["diagnoses"]]
    assert "rank 2 holds scale row 0, expected row 1" in texts, texts
    assert (rows["q.w"]["verdict"], rows["q.w"]["ranks"]) == ("DIFFERENT", [2])


def test_int4_of_gptq_and_awq(runs: Runs, tmp_path: Path) -> None:
    """With act-order the scales are the whole table on every rank."""
    tensors = """
K, N, G = 32, 16, 8
q, z = torch.randint(0, 16, (K, N)), torch.randint(1, 16, (K // G, N))
s = (torch.rand(K // G, N) + 0.1).half()
g_idx = torch.randperm(K, dtype=torch.int32) // G

def words(q, dim, order=range(8)):
    parts = q.movedim(dim, -1).unflatten(-1, (-1, 8))[..., list(order)]
    packed = sum(parts[..., i] << (4 * i) for i in range(8))
    return torch.from_numpy(packed.numpy().astype(np.uint32).view(np.int32)).movedim(-1, dim).contiguous()

AWQ = [0, 2, 4, 6, 1, 3, 5, 7]
value = lambda g: (q - z[g]).float() * s.float()[g]
"""
    whole = """
capture('gptq', value(torch.arange(K) // G)); capture('awq', value(torch.arange(K) // G).T)
capture('act', value(g_idx.long()))
"""
    parts = """
capture('s', s.chunk(WORLD)[RANK].contiguous()); capture('all_s', s)
capture('z1', words((z - 1) & 15, 1).chunk(WORLD)[RANK].contiguous()); capture('z2', words(z, 1))
capture('za', words(z, 1, AWQ).chunk(WORLD)[RANK].contiguous())
capture('gptq', ranks(words(q, 0))); capture('awq', ranks(words(q, 1, AWQ)))
capture('act', ranks(words(q, 0))); capture('g_idx', g_idx.chunk(WORLD)[RANK].contiguous())
"""
    layouts = """
[[tap]]
match = "gptq"
side = "candidate"
transforms = ["dequant(int4-group, scale=s, zero=z1, group=8, order=gptq)"]
[[tap]]
match = "awq"
side = "candidate"
transforms = ["dequant(int4-group, scale=s, zero=za, group=8, order=awq)", "transpose(0, 1)"]
[[tap]]
match = "act"
side = "candidate"
transforms = ["dequant(int4-group, scale=all_s, zero=z2, g_idx=g_idx, group=8, order=gptq_v2)"]
[[tap]]
match = "gptq, act"
placement = "S(0)"
[[tap]]
match = "awq"
placement = "S(1)"
"""
    rows = compare(runs("a", tensors + whole, 1), runs("b", tensors + parts, 2), layouts, tmp_path)
    for tap in ("gptq", "awq", "act"):
        check_identical(rows, tap)
    # A v1 checkpoint read as v2: every zero is off by one, under codes that are all the same.
    packed = tmp_path / "runs" / "b"
    one = layouts.split("[[tap]]")[1]
    other = one.replace('"candidate"', '"reference"').replace("order=gptq)", "order=gptq_v2)")
    row = compare(packed, packed, f"{layouts}[[tap]]{other}", tmp_path)["gptq"]
    assert (row["verdict"], row["test"]["name"]) == ("DIFFERENT", "scale")
    assert row["diagnoses"][0]["text"] == "the codes are equal: only scales or zeros differ"
