"""Processes of one job write into one run, each its own files, which any safetensors reader opens."""

import json
import re

import numpy as np
from conftest import Launch
from safetensors import safe_open

CODE = """
import os, numpy as np, tpcapture
rank = int(os.environ.get("RANK", 0))
tap = tpcapture.tap("q", placement="S(-1)")
for step in range(2):
    tpcapture.step()
    tap(np.arange(6, dtype="float32").reshape(2, 3) + 10 * rank + 100 * step)
"""

HEX = "[0-9a-f]{8}"


def test_off_leaves_no_trace(rank: Launch) -> None:
    done = rank(CODE)
    assert not done.run_dir.exists()
    assert done.complaints == ""


def test_a_lone_process_does_not_call_itself_rank_0(rank: Launch) -> None:
    [segment] = rank(CODE, TPCAPTURE="1").files()
    assert re.fullmatch(rf"rankunknown\.pid\d+-{HEX}\.000000\.safetensors", segment.name)


def test_ranks_told_by_the_launcher_share_a_run(rank: Launch) -> None:
    rank(CODE, rank=0, world=2, TPCAPTURE="1")
    first, second = rank(CODE, rank=1, world=2, TPCAPTURE="1").files()
    assert re.fullmatch(rf"rank0\.tp0of2\.pid\d+-{HEX}\.000000\.safetensors", first.name)
    assert re.fullmatch(rf"rank1\.tp1of2\.pid\d+-{HEX}\.000000\.safetensors", second.name)

    with safe_open(second, framework="np") as segment:
        assert sorted(segment.keys()) == ["step1/q", "step2/q"]
        found = segment.get_tensor("step2/q")
        metadata = segment.metadata()
    assert found.dtype == np.float32
    assert found.tolist() == [[110, 111, 112], [113, 114, 115]]
    assert (metadata["run"], metadata["rank"], metadata["world"]) == ("run", "1", "2")
    mesh = {"dims": [{"name": "tp", "coord": 1, "size": 2}], "assumed": True}
    assert json.loads(metadata["mesh"]) == mesh
    assert [(r["tap"], r["step"], r["placement"]) for r in json.loads(metadata["records"])] == [
        ("q", 1, "S(-1)"),
        ("q", 2, "S(-1)"),
    ]


def test_torch_ranks_are_known_by_torch(torchrun: Launch) -> None:
    code = "import torch.distributed as dist\ndist.init_process_group('gloo')\n" + CODE
    done = torchrun(code, ranks=2, TPCAPTURE="*[rank=1]")
    [manifest] = [json.loads(path.read_text()) for path in done.files("rank1.*.json")]
    assert (manifest["rank"], manifest["world"], manifest["identity_from"]) == (1, 2, "torch.distributed")
    assert manifest["counters"]["records"] == 2
    assert [path.name[:12] for path in done.files()] == ["rank1.tp1of2"]
