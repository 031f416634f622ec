"""Parameters captured on the ranks are held against the checkpoint's files; what is loaded wrongly is named."""

import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import sharded
from checkpoint import make_weights
from config import Config
from conftest import Launch, clean_env
from demo import HERE, TPCAPTURE
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch

import tpcapture

CAPTURE = """
import sys
sys.path.insert(0, {here!r})
from pathlib import Path
import os, torch, tpcapture
from config import Config
from loader import load_shard
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
for name, weight in load_shard(Path({path!r}), Config(), rank, world, {split!r}).items():
    module, leaf = name.rsplit(".", 1)
    tpcapture.capture(f"{{module}}.param.{{leaf}}", weight)
"""


def compare(*args: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [TPCAPTURE, "compare", *args]
    return subprocess.run(command, env=clean_env(), capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("split", "status"), [("heads", 0), ("rows", 1)])
def test_a_wrongly_cut_weight_is_found_without_a_forward_pass(
    rank: Launch, tmp_path: Path, split: str, status: int
) -> None:
    path = tmp_path / "checkpoint.safetensors"
    save_torch(make_weights(Config()), path)
    for r in range(2):
        code = CAPTURE.format(here=str(HERE), path=str(path), split=split)
        done = rank(code, rank=r, world=2, TPCAPTURE="1")
    layouts = ["--layouts", HERE / "checkpoint.toml", "--layouts", "hf"]
    said = compare("--json", "--checkpoint", path, *layouts, done.run_dir)
    assert (said.returncode, said.stderr) == (status, "")
    report = json.loads(said.stdout)
    assert report["runs"] == [str(path), str(done.run_dir)]
    assert len(report["rows"]) == len(make_weights(Config()))
    wrong = {row["tap"]: row["ranks"] for row in report["rows"] if row["verdict"] != "IDENTICAL"}
    faulty = {f"layers.{i}.self_attn.kv_b_proj.weight": [0, 1] for i in range(4)}
    assert wrong == (faulty if status else {})


@pytest.mark.parametrize("kv_heads", [8, 4, 2])
def test_fused_and_padded_parameters_are_those_of_the_checkpoint(tmp_path: Path, kv_heads: int) -> None:
    weights = sharded.checkpoint(kv_heads, 4)
    folder = tmp_path / "hub"
    folder.mkdir()
    names = list(weights)
    # In two files, of which the hub's cache has links; what the index does not name is not the checkpoint's.
    files = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, of in files.items():
        save_file({name: weights[name] for name in of}, tmp_path / f"blob-{file}")
        (folder / file).symlink_to(tmp_path / f"blob-{file}")
    save_file({"model.embed_tokens.weight": np.zeros(3)}, folder / "consolidated.safetensors")
    index = {"weight_map": {name: file for file, of in files.items() for name in of}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    run = sharded.run(tmp_path / "tp8", 8, kv_heads=kv_heads)
    report = tpcapture.compare(run, checkpoint=folder, layouts="vllm")
    assert {row.tap: row.verdict for row in report if row.verdict != "IDENTICAL"} == {}
    assert (len(report), report.ok, report.left_out.reference) == (10, True, 14)
    placed = {row.tap.removeprefix("model.layers.0."): row.placement for row in report}
    kv = 4 * kv_heads
    shared = f"{kv}/{kv_heads}" if kv_heads < 8 else f"{kv}"
    assert placed["self_attn.qkv_proj.weight"] == f"S(0, sections=[32,{shared},{shared}])"
    assert placed["mlp.gate_up_proj.weight"] == "S(0, sections=[24,24])"
    assert placed["model.embed_tokens.weight"] == "S(0, size=50)"
    assert "14 of 30 tensors of the checkpoint were not captured" in str(report)
    assert report.rows[0].padded == sharded.PADDED - sharded.VOCAB


def test_a_weight_under_its_own_name_is_a_parameter_and_others_are_not(rank: Launch, tmp_path: Path) -> None:
    save_file({"a.weight": np.arange(6.0), "b.weight": np.arange(3.0)}, tmp_path / "c.safetensors")
    code = """
import numpy as np, tpcapture
tpcapture.capture("a.weight", np.arange(6.0))
tpcapture.capture("hidden", np.arange(3.0))
tpcapture.step()
tpcapture.capture("a.weight", np.zeros(6))  # the first counts
tpcapture.capture("x.param.weight", np.zeros(6))
"""
    run = rank(code, rank=0, TPCAPTURE="1").run_dir
    said = compare("--checkpoint", tmp_path / "c.safetensors", run, "--json")
    report = json.loads(said.stdout)
    rows = {row["tap"]: row["verdict"] for row in report["rows"]}
    assert rows == {"a.weight": "IDENTICAL", "x.weight": "MISSING"}
    assert (said.returncode, report["left_out"]) == (1, {"reference": 1, "candidate": 0})
    empty = rank(
        "import tpcapture\ntpcapture.capture('h', __import__('numpy').zeros(3))", run="e", TPCAPTURE="1"
    )
    said = compare("--checkpoint", tmp_path / "c.safetensors", empty.run_dir)
    assert said.returncode == 2
    assert "the run holds no parameters; capture them, as a tap NAME.param.weight" in said.stderr


def hostile(folder: Path) -> None:
    good = (folder / "good.safetensors").read_bytes()
    (folder / "cut.safetensors").write_bytes(good[:-1])
    (folder / "long.safetensors").write_bytes(b"\xff" * 8 + good[8:])
    (folder / "text.safetensors").write_text("hello")
    (folder / "twice.safetensors").write_bytes(good)
    header = b'{"t":{"dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,4]}}'
    (folder / "huge.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))


def test_files_that_cannot_be_read_are_listed_and_the_rest_is_compared(rank: Launch, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    save_file({"a.weight": np.arange(6.0)}, folder / "good.safetensors")
    hostile(folder)
    run = rank(
        "import numpy, tpcapture\ntpcapture.capture('a.weight', numpy.arange(6.0))", TPCAPTURE="1"
    ).run_dir
    report = tpcapture.compare(run, checkpoint=folder)
    assert ([row.verdict for row in report], report.ok) == (["IDENTICAL"], False)
    reasons = {Path(error.file).name: error.reason for error in report.errors}
    assert reasons["cut.safetensors"] == "expected 48 bytes of tensors, found 47"
    assert reasons["text.safetensors"] == "expected at least 8 bytes, found 5"
    assert reasons["twice.safetensors"] == 'tensor "a.weight" is in another file of the checkpoint, too'
    assert set(reasons) == {f"{name}.safetensors" for name in ("cut", "long", "text", "twice", "huge")}

    (folder / "model.safetensors.index.json").write_text(
        '{"weight_map": {"a": "../x", "a.weight": "good.safetensors"}}'
    )
    [error] = tpcapture.compare(run, checkpoint=folder).errors
    assert error.reason == 'expected names of files beside it, found "../x"'
    (tmp_path / "none").mkdir()
    with pytest.raises(
        OSError, match=re.escape("expected a safetensors file, or a directory of them, found none")
    ):
        tpcapture.compare(run, checkpoint=tmp_path / "none")
    with pytest.raises(ValueError, match="found both"):
        tpcapture.compare(run, run, checkpoint=folder)


def experts(rank: Launch, tmp_path: Path, wrong: str = "") -> tuple[Path, Path]:
    """A checkpoint of four experts one by one, and two ranks with their columns of all of them in one tensor."""
    rng = np.random.default_rng(3)
    gate, up = rng.standard_normal((2, 4, 6, 8)).astype(np.float32)
    down = rng.standard_normal((4, 8, 6)).astype(np.float32)
    single = {"gate_proj": gate, "up_proj": up, "down_proj": down}
    one_by_one = {
        f"mlp.experts.{i}.{name}.weight": weights[i] for name, weights in single.items() for i in range(4)
    }
    path = tmp_path / "checkpoint.safetensors"
    save_file(one_by_one, path)
    np.savez(tmp_path / "single.npz", **single)
    code = f"""
import os, numpy as np, tpcapture
single = np.load({str(tmp_path / "single.npz")!r})
r = int(os.environ["RANK"])
gate, up, down = single["gate_proj"], single["up_proj"], single["down_proj"]
mine = slice(3 * r, 3 * r + 3)
w13, w2 = np.concatenate([gate[:, mine], up[:, mine]], 1), np.ascontiguousarray(down[:, :, mine])
{wrong}
tpcapture.capture("mlp.experts.routed_experts.param.w13_weight", w13)
tpcapture.capture("mlp.experts.routed_experts.param.w2_weight", w2)
"""
    for r in range(2):
        done = rank(code, rank=r, world=2, TPCAPTURE="1")
    return path, done.run_dir


def test_experts_of_a_checkpoint_are_stacked(rank: Launch, tmp_path: Path) -> None:
    said = compare("--json", "--layouts", "vllm", "--checkpoint", *experts(rank, tmp_path))
    assert (said.returncode, said.stderr) == (0, "")
    rows = {row["tap"].rpartition(".")[2]: row for row in json.loads(said.stdout)["rows"]}
    assert {tap: (row["verdict"], row["placement"]) for tap, row in rows.items()} == {
        "w13_weight": ("IDENTICAL", "S(1, sections=2)"),
        "w2_weight": ("IDENTICAL", "S(2)"),
    }
    down = ", ".join(f"mlp.experts.{i}.down_proj.weight S(1)" for i in range(4))
    texts = [found["text"] for found in rows["w2_weight"]["diagnoses"]]
    assert texts == [f"reference: 4 stacked, each joined along dim 0 of {down}"]


def test_an_expert_of_another_is_found(rank: Launch, tmp_path: Path) -> None:
    wrong = "if r == 1: w13[2] = w13[3]"
    said = compare("--json", "--layouts", "vllm", "--checkpoint", *experts(rank, tmp_path, wrong))
    [differs] = [row for row in json.loads(said.stdout)["rows"] if row["verdict"] == "DIFFERENT"]
    assert (differs["tap"], differs["ranks"]) == ("mlp.experts.routed_experts.w13_weight", [1])
    # Expert 2, rows of the second half of gate.
    assert differs["worst"]["index"][0] == 2
    assert said.returncode == 1


def test_an_expert_that_the_checkpoint_lacks_is_named(rank: Launch, tmp_path: Path) -> None:
    path, run = experts(rank, tmp_path)
    weights = load_file(path)
    del weights["mlp.experts.1.up_proj.weight"]
    save_file(weights, path)
    said = compare("--json", "--layouts", "vllm", "--checkpoint", path, run)
    [missing] = [row for row in json.loads(said.stdout)["rows"] if row["verdict"] != "IDENTICAL"]
    assert missing["verdict"] == "MISSING"
    assert "mlp.experts.1.up_proj.weight" in missing["diagnoses"][0]["text"]
