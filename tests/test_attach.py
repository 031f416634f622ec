"""`attach`: taps on modules by hooks, named by what they take and return, and placed as parallel layers say."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from conftest import Launch

import tpcapture


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> tuple[torch.Tensor, dict[str, Any]]:
        y = self.proj(x) * scale
        return y, {"pair": Pair(y + 1, y + 2), "note": "no tensor"}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x, _ = layer(x, scale=2.0)
        return x


def captured(tmp_path: Path, model: torch.nn.Module, passes: int = 1) -> dict[str, list[tuple[int, int]]]:
    """By tap, the steps and calls that were captured."""
    with tpcapture.capturing(tmp_path) as path:
        for _ in range(passes):
            model(torch.ones(2, 4)).sum().backward()
    if not path.exists():
        return {}
    return {
        name: [(p.step, p.call) for p in tpcapture.open(path) if p.tap == name]
        for name in tpcapture.open(path).taps
    }


def test_outputs_are_named_by_where_they_are(tmp_path: Path) -> None:
    model = Model()
    with tpcapture.attach(model, "layers.{0,2}*") as attached:
        assert attached.names == ["layers.0", "layers.0.proj", "layers.2", "layers.2.proj"]
        found = captured(tmp_path, model, passes=2)
    names = [f"layers.{i}{part}" for i in (0, 2) for part in (".proj", ".0", ".1.pair.0", ".1.pair.1")]
    assert sorted(found) == sorted(names)
    assert set(map(tuple, found.values())) == {((1, 0), (2, 0))}
    assert captured(tmp_path, model) == {}, "they are detached"


def test_inputs_gradients_and_parameters(tmp_path: Path) -> None:
    model = Model()
    with tpcapture.attach(model, "layers.1*", what="input|grad|params"):
        found = captured(tmp_path, model, passes=2)
    once, twice = [(1, 0)], [(1, 0), (2, 0)]
    assert found == {
        "layers.1.in.0": twice,
        "layers.1.proj.in.0": twice,
        "layers.1.grad.0": twice,
        "layers.1.proj.grad": twice,
        "layers.1.proj.param.weight": once,
        "layers.1.proj.param.bias": once,
    }


def test_attaching_again_changes_nothing_and_detaching_takes_only_its_own(tmp_path: Path) -> None:
    model = Model()
    first, second = tpcapture.attach(model, "layers.0"), tpcapture.attach(model, "layers.0, layers.1")
    assert captured(tmp_path, model)["layers.0.0"] == [(1, 0)]
    first.detach()
    first.detach()
    assert sorted({name[:8] for name in captured(tmp_path, model)}) == ["layers.0", "layers.1"]
    second.detach()
    assert captured(tmp_path, model) == {}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("layers.9",), "patterns='layers.9': expected a module's name, such as 'layers.2.proj'"),
        (("layers.{",), 'patterns="layers.{": '),
        (("*", "outputs"), "what: expected output, input, grad, params or several of them, found 'outputs'"),
    ],
)
def test_what_does_not_parse_is_said(arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(ValueError) as raised:
        tpcapture.attach(Model(), *arguments)
    assert str(raised.value).startswith(said)
    with pytest.raises(TypeError, match=r"expected a torch\.nn\.Module, found int"):
        tpcapture.attach(3)


def test_attached_modules_are_captured_in_compiled_code(rank: Launch) -> None:
    code = """
import sys; sys.path.insert(0, "tests")
import torch, tpcapture
from test_attach import Model
model = Model()
tpcapture.attach(model, "layers.*", what=["output", "params"])
compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
with torch.no_grad():
    for _ in range(2): compiled(torch.ones(2, 4))
"""
    done = rank(code, TPCAPTURE="1")
    assert done.complaints == ""
    run = tpcapture.open(done.run_dir)
    assert len(run.taps) == 12
    assert {point.step for point in run} == {1, 2}


SHARDED = """
import sys, torch, tpcapture, torch.distributed as dist
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
class ColumnParallelLinear(torch.nn.Module):
    gather_output = False
    def __init__(self, full):
        super().__init__()
        self.weight = torch.nn.Parameter(self.shard(full))
    def shard(self, full):
        return full.chunk(world)[rank].clone()
    def forward(self, x):
        return x @ self.weight.T, None
class MergedColumnParallelLinear(ColumnParallelLinear):
    output_sizes = [16, 16]
    def shard(self, full):
        return torch.cat([part.chunk(world)[rank] for part in full.split(self.output_sizes)])
class QKVParallelLinear(ColumnParallelLinear):
    total_num_heads, total_num_kv_heads, head_size, tp_size = 4, 1, 4, world
    def shard(self, full):
        q, k, v = full.split([16, 4, 4])
        return torch.cat([q.chunk(world)[rank], k, v])
class RowParallelLinear(torch.nn.Module):
    input_is_parallel, reduce_results = True, True
    def __init__(self, full):
        super().__init__()
        self.weight = torch.nn.Parameter(full.chunk(world, 1)[rank].clone())
    def forward(self, x):
        y = x @ self.weight.T
        dist.all_reduce(y)
        return y
class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        full = lambda *shape: torch.randn(*shape, dtype=torch.float64)
        self.up, self.down = MergedColumnParallelLinear(full(32, 8)), RowParallelLinear(full(8, 32))
        self.qkv = QKVParallelLinear(full(24, 8))
        # What the merged rows are to the columns of the next.
        with torch.no_grad():
            order = torch.cat([torch.arange(16).chunk(world)[rank], 16 + torch.arange(16).chunk(world)[rank]])
    def forward(self, x):
        self.qkv(x)
        h, _ = self.up(x)
        if world > 1:
            parts = [torch.empty_like(h) for _ in range(world)]
            dist.all_gather(parts, h.contiguous())
            gate, value = (torch.cat([p.chunk(2, -1)[i] for p in parts], -1) for i in (0, 1))
            h = torch.cat([gate, value], -1).chunk(world, -1)[rank]
        return self.down(h)
torch.manual_seed(1)
model = Layer()
tpcapture.attach(model, "*", what="output|input|params")
with torch.no_grad():
    for _ in range(2): model(torch.randn(3, 8, dtype=torch.float64))
dist.destroy_process_group()
"""


def test_parallel_layers_say_how_they_are_sharded(torchrun: Launch) -> None:
    """One rank against two, with no layout given by anybody: outputs, inputs, and weights."""
    one = torchrun(SHARDED, ranks=1, run="one", TPCAPTURE="1")
    two = torchrun(SHARDED, ranks=2, run="two", TPCAPTURE="1")
    report = tpcapture.compare(one.run_dir, two.run_dir)
    verdicts = {row.tap: row.verdict for row in report if row.step == 1}
    assert report.ok, report
    placements = {row.tap: row.placement for row in report if row.step == 1}
    assert placements["up.0"] == "S(-1, sections=[16,16])"
    assert placements["qkv.param.weight"] == "S(0, sections=[16,4/1,4/1])"
    assert (placements["down"], placements["down.in.0"]) == ("R", "S(-1)")
    assert placements["down.param.weight"] == "S(1)"
    assert len(verdicts) == 11
