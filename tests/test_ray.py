"""A comparison spread over a real Ray cluster of two nodes, each with the files of some ranks: the report is the local
one, byte for byte."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray
from conftest import Launch, clean_env
from safetensors.numpy import save_file

import tpcapture

# 24 tensors of a layer that ends in a sum, in bf16's precision, on one rank or cut over four, and a router a step.
# `fault` zeroes a row of what rank 2 holds of the last layers, `tie` makes the router choose otherwise for a token.
MODEL = """
import os, numpy as np, tpcapture

rank, world, fault = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["FAULT"] == "fault"
scores = np.arange(1, 9, dtype=np.float32)[:, None] * np.array([4, 2, 1, 0.5], np.float32)
scores[3] = (4, 1, 1.0078125, 0.5) if os.environ["FAULT"] == "tie" else (4, 1.0078125, 1, 0.5)
chosen = np.argsort(-scores)[:, :2].astype(np.int32)
valid = tpcapture.tap("num_tokens", placement="R")
for step in range(2):
    tpcapture.step()
    valid(np.array([7]))
    for layer in range(6):
        random = np.random.default_rng(100 * step + layer)
        x = random.standard_normal((8, 64)).astype(np.float32)
        weight = random.standard_normal((64, 32)).astype(np.float32)
        columns = np.array_split(np.arange(64), world)[rank]
        part = x[:, columns] @ weight[columns]
        if fault and rank == 2 and layer > 3:
            x[1] = 0
        tpcapture.capture(f"layers.{layer}.x", x[:, columns].copy(), placement="S(1)")
        tpcapture.capture(f"layers.{layer}.partial", part, placement="P")
    tpcapture.capture("gate", scores, placement="R")
    tpcapture.capture("topk_ids", chosen, placement="R")
    experts = x[chosen[:, 1]] * np.arange(1, 9, dtype=np.float32)[:, None]
    tpcapture.capture("experts", experts[:, columns].copy(), placement="S(1)")
    if step == 0:
        rows = columns[::-1] if fault and rank == 1 else columns
        tpcapture.capture("mlp.param.weight", weight[rows], placement="S(0)")
    tpcapture.capture("input_ids", np.arange(8) + 100 * step, placement="R")
    tpcapture.capture("seed", np.array([step + (fault and rank == 3)]), placement="R")
"""

LAYOUTS = """
[[tap]]
match = "*.x"
rows = "num_tokens"
"""


@pytest.fixture
def split(rank: Launch, tmp_path: Path) -> dict[str, Path]:
    """Runs `one`, `right`, `tied` and `wrong` as a whole, and split by rank over two directories: odd ranks on b."""
    for run, world, fault in [("one", 1, ""), ("right", 4, ""), ("tied", 4, "tie"), ("wrong", 4, "fault")]:
        for r in range(world):
            rank(MODEL, rank=r, world=world, run=run, TPCAPTURE="1", FAULT=fault)
    whole = tmp_path / "runs"
    for run in ("one", "right", "tied", "wrong"):
        for file in sorted((whole / run).iterdir()):
            node = "b" if file.name.startswith(("rank1.", "rank3.")) else "a"
            (tmp_path / node / run).mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, tmp_path / node / run)
    random = np.random.default_rng(5)
    random.standard_normal((8, 64))
    tensors = {"mlp.weight": random.standard_normal((64, 32)).astype(np.float32), "other": np.zeros(3)}
    for place in (whole, tmp_path / "b"):
        (place / "checkpoint").mkdir()
        save_file(tensors, place / "checkpoint" / "model.safetensors")
    return {"whole": whole, "a": tmp_path / "a", "b": tmp_path / "b"}


@pytest.fixture
def cluster(split: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Two nodes of one core, each with its own $SCRATCH."""
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    nodes = Cluster()
    try:
        for node in ("a", "b"):
            nodes.add_node(
                num_cpus=1,
                include_dashboard=False,
                object_store_memory=100 << 20,
                env_vars={"SCRATCH": str(split[node])},
            )
        nodes.wait_for_nodes()
        yield nodes.address
    finally:
        nodes.shutdown()


def compare(arguments: list[str], cwd: Path, address: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tpcapture", "compare", *arguments]
    env = clean_env(RAY_ADDRESS=address)
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_a_spread_comparison_reports_what_a_local_one_does(
    split: dict[str, Path], cluster: str, tmp_path: Path
) -> None:
    # Here $SCRATCH is a directory of that name, which holds all files.
    here = tmp_path / "here"
    here.mkdir()
    (here / "$SCRATCH").symlink_to(split["whole"])
    (here / "layouts.toml").write_text(LAYOUTS)
    for candidate, status in [("right", 0), ("tied", 1), ("wrong", 1)]:
        paths = ["$SCRATCH/one", f"$SCRATCH/{candidate}", "--layouts", "layouts.toml", "--json"]
        local = compare(paths, here, cluster)
        spread = compare([*paths, "--engine", "ray"], here, cluster)
        assert (local.returncode, local.stderr) == (status, "")
        assert (spread.returncode, spread.stdout) == (status, local.stdout), spread.stderr
        report = json.loads(local.stdout)
        assert len(report["rows"]) == 37
        if candidate == "tied":
            assert report["verdict"] == "SUSPECT"
            assert [row["padded"] for row in report["rows"][13:16]] == [0, 0, 1]
        assert report["rows"][1]["padded"] == 1
    assert report["first_divergence"] == {"tap": "layers.4.x", "step": 1, "call": 0, "ranks": [2]}

    # No machine has all of it.
    half = compare([str(split["whole"] / "one"), str(split["b"] / "right"), "--json"], here, cluster)
    assert half.returncode == 1
    assert json.loads(half.stdout)["counts"]["LAYOUT"] > 0

    missing = compare(["$SCRATCH/one", "$SCRATCH/none", "--engine", "ray"], here, cluster)
    assert missing.returncode == 2
    assert "(on each of 2 machines)" in missing.stderr
    assert str(split["a"] / "none") in missing.stderr or str(split["b"] / "none") in missing.stderr


def test_a_run_alone_a_checkpoint_and_steps_paired_by_inputs_report_what_they_do_locally(
    split: dict[str, Path], cluster: str, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "$SCRATCH").symlink_to(split["whole"])
    (here / "layouts.toml").write_text(LAYOUTS + '[align]\nby = "input_ids"\n')
    for arguments, status in [
        (["$SCRATCH/right"], 0),
        (["$SCRATCH/wrong"], 1),
        (["$SCRATCH/one", "$SCRATCH/right", "--pair", "inputs"], 0),
        (["$SCRATCH/one", "$SCRATCH/wrong", "--pair", "inputs"], 1),
        (["$SCRATCH/right", "--checkpoint", "$SCRATCH/checkpoint"], 0),
        (["$SCRATCH/wrong", "--checkpoint", "$SCRATCH/checkpoint"], 1),
    ]:
        arguments += ["--layouts", "layouts.toml", "--json"]
        local = compare(arguments, here, cluster)
        spread = compare([*arguments, "--engine", "ray"], here, cluster)
        assert local.returncode == status, local.stderr
        assert (spread.returncode, spread.stdout) == (status, local.stdout), spread.stderr
        assert spread.stderr == local.stderr
        rows = json.loads(local.stdout)["rows"]
        assert any(row["verdict"] for row in rows)


# The command, with tasks that compute for long as native code does, without looking for signals.
BUSY = """
import pathlib, signal, sys, time
from tpcapture import _command, _ray

def work(*_):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    pathlib.Path(began).touch()
    time.sleep(100)

began = sys.argv.pop(1)
_ray._work = work
sys.exit(_command.main())
"""


def press_ctrl_c(pid: int, began: Path) -> float:
    """Interrupt the process once a task has begun; when."""
    while not began.exists():
        time.sleep(0.05)
    os.kill(pid, signal.SIGINT)
    return time.monotonic()


def check_idle() -> None:
    """All cores of the cluster are free again."""
    deadline = time.monotonic() + 20
    while ray.available_resources().get("CPU", 0) < 2:
        assert time.monotonic() < deadline, ray.available_resources()
        time.sleep(0.1)


def test_ctrl_c_ends_the_tasks_too(
    split: dict[str, Path], cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tpcapture import _ray

    began, again = tmp_path / "began", tmp_path / "again"

    def work(*_: Any) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        began.touch()
        time.sleep(100)

    ray.init(address=cluster, log_to_driver=False)
    try:
        monkeypatch.setattr(_ray, "_work", work)
        pressed: list[float] = []
        press = threading.Thread(target=lambda: pressed.append(press_ctrl_c(os.getpid(), began)))
        press.start()
        with pytest.raises(KeyboardInterrupt):
            tpcapture.compare("$SCRATCH/one", "$SCRATCH/right", engine="ray")
        press.join()
        assert time.monotonic() - pressed[0] < 5
        check_idle()

        arguments = [str(again), "compare", "$SCRATCH/one", "$SCRATCH/right", "--engine", "ray"]
        command = [sys.executable, "-c", BUSY, *arguments]
        with subprocess.Popen(command, env=clean_env(RAY_ADDRESS=cluster)) as process:
            pressed.append(press_ctrl_c(process.pid, again))
            assert process.wait(timeout=60) == -signal.SIGINT
            assert time.monotonic() - pressed[1] < 5
        check_idle()
    finally:
        ray.shutdown()


def test_each_task_runs_where_its_files_are(split: dict[str, Path], cluster: str) -> None:
    from tpcapture import _ray

    ray.init(address=cluster, log_to_driver=False)
    try:
        machines = _ray.Cluster()
        listed = machines.results(machines.start_list(Path("$SCRATCH/right"), checkpoint=False))
        assert [reason for _, reason in listed] == ["", ""]
        # Only one machine has the reference.
        listed = machines.results(machines.start_list(Path("$SCRATCH/one"), checkpoint=False))
        assert sorted(found is None for found, _ in listed) == [False, True]
        report = tpcapture.compare("$SCRATCH/one", "$SCRATCH/right", engine="ray")
        assert report.ok
        assert np.isfinite([row.rel_l2 for row in report.rows if row.rel_l2 is not None]).all()
    finally:
        ray.shutdown()


def test_without_a_cluster_it_says_so(split: dict[str, Path], tmp_path: Path) -> None:
    done = compare(
        [str(split["whole"] / "one"), str(split["whole"] / "right"), "--engine", "ray"], tmp_path, ""
    )
    assert done.returncode == 2
    assert "ray" in done.stderr.lower()
    assert os.linesep not in done.stderr.strip()
