"""The demo says what it promises, and would notice if it did not."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import demo
import pytest
import torch
from config import Config
from conftest import clean_env
from loader import shard_kv_b

STEPS = 3
TAPS = 4 * 9 + 3  # nine in a layer; embedding, last norm, head


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one whole `make demo`."""
    out = tmp_path_factory.mktemp("demo")
    command = [sys.executable, demo.HERE / "demo.py", "--out", out]
    done = subprocess.run(command, env=clean_env(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def compare(a: Path, b: Path) -> tuple[int, dict[str, Any]]:
    done = demo.tpcapture("compare", "--json", a, b)
    return done.returncode, json.loads(done.stdout)


def test_two_ranks_differ_from_one_by_rounding_alone(out: Path) -> None:
    status, report = compare(out / "tp1", out / "tp2")
    assert (status, report["verdict"], report["first_divergence"]) == (0, "ROUNDING", None)
    assert len(report["rows"]) == TAPS * STEPS
    assert {row["verdict"] for row in report["rows"]} == {"IDENTICAL", "ROUNDING"}
    # Nothing was summed over ranks before this tap of the first layer, so not a bit may differ.
    [before_sums] = [row for row in report["rows"] if (row["tap"], row["step"]) == (demo.FAULTY_TAP, 1)]
    assert before_sums["verdict"] == "IDENTICAL"


def test_the_fault_shows_first_where_the_weight_is_used(out: Path) -> None:
    status, report = compare(out / "tp1", out / "tp2-faulty")
    assert (status, report["verdict"]) == (1, "DIFFERENT")
    first = report["first_divergence"]
    assert (first["tap"], first["step"], first["call"]) == (demo.FAULTY_TAP, 1, 0)
    assert first["ranks"] == [0, 1]


def test_the_demo_notices_another_verdict(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not demo.show("compare", out / "tp1", out / "tp2", status=1)
    assert not demo.show("compare", out / "tp1", out / "tp2-faulty", status=1, says="no such words")
    assert "expected 1 and the words 'no such words'" in capsys.readouterr().out


def test_the_demo_clears_only_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "tp1").mkdir()
    demo.fresh(tmp_path)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(SystemExit, match=r"notes\.txt"):
        demo.fresh(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("split", "world", "rows"),
    [
        ("heads", 1, [[0, 1, 4, 2, 3, 5]]),
        ("rows", 1, [[0, 1, 4, 2, 3, 5]]),
        ("heads", 2, [[0, 1, 4], [2, 3, 5]]),
        ("rows", 2, [[0, 1, 2], [3, 4, 5]]),
    ],
)
def test_kv_b_rows_reach_their_heads(split: Any, world: int, rows: list[list[int]]) -> None:
    """Two heads of two key rows and one value row: the checkpoint's rows are k0 k0 k1 k1 v0 v1."""
    config = Config(heads=2, qk_nope_dim=2, v_dim=1)
    weight = torch.arange(6)[:, None]
    assert [
        shard_kv_b(weight, config, rank, world, split).flatten().tolist() for rank in range(world)
    ] == rows
