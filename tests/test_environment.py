"""Each TPCAPTURE variable does what it says; a value that makes no sense is one warning, and capture is off."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import Finished, Launch

import tpcapture

FIVE_STEPS = """
import json, numpy as np, tpcapture
for step in range(5):
    for layer in range(2):
        tpcapture.capture(f"layers.{layer}.q", np.full((4, 3), step, np.float32))
        tpcapture.capture(f"layers.{layer}.mlp", np.full(8, step, np.int64))
    tpcapture.step()
print(json.dumps(tpcapture.status(), default=str))
"""
FLUSHED = FIVE_STEPS.replace("print(", "tpcapture.flush()\nprint(")


def status_of(done: Finished) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(done.stdout)
    return status


def manifest_of(done: Finished) -> dict[str, Any]:
    [path] = done.files("*.json")
    manifest: dict[str, Any] = json.loads(path.read_text())
    return manifest


def taps_of(done: Finished) -> Counter[str]:
    """How many records each tap has."""
    return Counter(point.tap for point in tpcapture.open(done.run_dir))


def steps_of(done: Finished) -> list[int]:
    return tpcapture.open(done.run_dir).steps


@pytest.mark.parametrize("value", [None, "", "0", "off", "OFF", "standby", "never"])
def test_off_writes_nothing(rank: Launch, value: str | None) -> None:
    done = rank(FIVE_STEPS, **({} if value is None else {"TPCAPTURE": value}))
    assert (status_of(done)["state"], status_of(done)["abs_step"]) == ("off", 5)
    assert (done.run_dir.parent.exists(), done.complaints) == (False, "")


@pytest.mark.parametrize("value", ["1", "on", "ON", " 1 "])
def test_on_captures_every_tap(rank: Launch, value: str) -> None:
    done = rank(FIVE_STEPS, TPCAPTURE=value)
    assert taps_of(done) == dict.fromkeys(("layers.0.q", "layers.0.mlp", "layers.1.q", "layers.1.mlp"), 5)
    assert manifest_of(done)["config"] == {
        "select": "*",
        "ranks": "all",
        "steps": "all",
        "budget": "10GiB",
        "min_free": "5%",
        "ring": "256MiB",
        "device_ring": "64MiB",
        "on_full": "wait:10s",
    }


def test_a_process_with_capture_off_can_be_switched_on_from_inside_unless_never(rank: Launch) -> None:
    code = """
import os, numpy as np, tpcapture
try:
    with tpcapture.capturing(os.environ["TPCAPTURE_DIR"]):
        tpcapture.capture("x", np.zeros(1))
except RuntimeError as error:
    print(error)
"""
    assert taps_of(rank(code, TPCAPTURE="off", run="off")) == {"x": 1}
    assert taps_of(rank(code, TPCAPTURE="standby", run="standby")) == {"x": 1}
    never = rank(code, TPCAPTURE="never", run="never")
    assert never.stdout == "TPCAPTURE=never: nothing can switch this process on\n"
    assert not never.run_dir.exists()


@pytest.mark.parametrize(
    ("ranks", "captures"),
    [("all", True), ("5", True), ("0,3-6", True), ("0-4", False), ("tp:1;pp:1", True), ("tp:1;pp:0", False)],
)
def test_ranks(rank: Launch, ranks: str, captures: bool) -> None:
    """Rank 5 of pp=2,dp=2,tp=2 is 101: pp 1, dp 0, tp 1."""
    place = {"TPCAPTURE_RANK": "5", "TPCAPTURE_MESH": "pp=2,dp=2,tp=2"}
    done = rank(FIVE_STEPS, TPCAPTURE="1", TPCAPTURE_RANKS=ranks, **place)
    assert done.run_dir.exists() == captures
    expected = ("capturing", None) if captures else ("ended", "this rank is not among TPCAPTURE_RANKS")
    assert (status_of(done)["state"], status_of(done)["end_reason"]) == expected
    if captures:
        assert manifest_of(done)["config"]["ranks"] == ranks


def test_an_unknown_rank_is_not_among_any_given(rank: Launch) -> None:
    done = rank(FIVE_STEPS, TPCAPTURE="1", TPCAPTURE_RANKS="0")
    assert (status_of(done)["rank"], done.run_dir.exists()) == (None, False)


@pytest.mark.parametrize(
    ("steps", "captured", "ends"),
    [
        ("all", [0, 1, 2, 3, 4], False),
        ("2", [2], True),
        ("1-3", [1, 2, 3], True),
        ("0-4/2", [0, 2, 4], True),
    ],
)
def test_steps(rank: Launch, steps: str, captured: list[int], ends: bool) -> None:
    done = rank(FIVE_STEPS, TPCAPTURE="1", TPCAPTURE_STEPS=steps)
    assert steps_of(done) == captured
    assert status_of(done)["end_reason"] == ("steps done" if ends else None)
    assert manifest_of(done)["end_reason"] == ("steps done" if ends else "exit")


def test_the_budget_ends_the_capture(rank: Launch) -> None:
    """A step is 2 x (48 + 64) bytes and a header of 64 KiB: after 4 there are 104 bytes left, for one of 48 alone."""
    code = FLUSHED.replace("    tpcapture.step()", "    tpcapture.step()\n    tpcapture.flush()")
    done = rank(code, TPCAPTURE="1", TPCAPTURE_BUDGET="263144")
    reason = (
        "budget reached: 263088 bytes captured, the next record of 64 would exceed TPCAPTURE_BUDGET=263144"
    )
    status = status_of(done)
    assert (status["state"], status["end_reason"]) == ("ended", reason)
    assert (status["counters"]["records"], status["counters"]["bytes"]) == (17, 944)
    assert done.complaints == f"[tpcapture] capture ended: {reason}\n"
    assert taps_of(done) == {"layers.0.q": 5, "layers.0.mlp": 4, "layers.1.q": 4, "layers.1.mlp": 4}
    assert manifest_of(done)["end_reason"] == reason


@pytest.mark.parametrize("limit", ["100TiB", "99.99%"])
def test_a_disk_too_full_ends_the_capture(rank: Launch, limit: str) -> None:
    done = rank(FLUSHED, TPCAPTURE="1", TPCAPTURE_MIN_FREE=limit)
    status = status_of(done)
    assert status["state"] == "ended"
    assert status["end_reason"].startswith("disk: ")
    assert status["end_reason"].split(", at ")[0].endswith(f"less than TPCAPTURE_MIN_FREE={limit}")
    assert status["last_error"] == status["end_reason"]
    assert done.complaints.count("capture ended: disk: ") == 1
    assert done.files() == []


@pytest.mark.parametrize("make", ["file", "link to a file", "file in the path"])
def test_a_run_that_cannot_be_made_is_said_and_the_model_goes_on(
    rank: Launch, tmp_path: Path, make: str
) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    out = {"file": file, "link to a file": tmp_path / "link", "file in the path": file / "deeper"}[make]
    if make == "link to a file":
        out.symlink_to(file)
    done = rank(FLUSHED, TPCAPTURE="1", TPCAPTURE_DIR=str(out))
    status = status_of(done)
    assert (status["state"], status["counters"]["records"]) == ("ended", 0)
    assert status["end_reason"].startswith("disk: ")
    assert status["end_reason"].endswith(str(out))
    assert sum(loss["count"] for loss in status["losses"]) == status["counters"]["lost"] > 0
    assert done.complaints.count("capture ended: disk: ") == 1
    assert file.read_text() == "mine"


def test_a_run_that_is_a_link_is_not_followed(rank: Launch, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/run").symlink_to(tmp_path / "elsewhere")
    done = rank(FLUSHED, TPCAPTURE="1")
    assert "expected a directory, for a run no symbolic link to one" in status_of(done)["end_reason"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_directory_that_is_a_link_is_followed(rank: Launch, tmp_path: Path) -> None:
    """The user's own choice of a scratch disk, unlike what stands in the run's place."""
    (tmp_path / "scratch").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "scratch")
    rank(FIVE_STEPS, TPCAPTURE="1")
    assert len(tpcapture.open(tmp_path / "scratch/run")) == 20
    assert (tmp_path / "scratch/run").stat().st_mode & 0o777 == 0o700


INVALID = {
    "TPCAPTURE": ("*.q[dim0=5,dtype=bf17]", "column 17: expected a dtype such as bf16"),
    "TPCAPTURE_RANKS": ("x", "expected"),
    "TPCAPTURE_RUN": ("../up", "expected one path component"),
    "TPCAPTURE_STEPS": ("20-10", "expected steps such as 10, 10-20 or 10-20/2, or all"),
    "TPCAPTURE_ATTACH": ("a[", "column 1: expected"),
    "TPCAPTURE_BUDGET": ("ten", "expected a size such as 10GiB"),
    "TPCAPTURE_MIN_FREE": ("100%", "expected a share from 0% to below 100%"),
    "TPCAPTURE_RING": ("1KiB", "expected a size of at least 64KiB"),
    "TPCAPTURE_DEVICE_RING": ("1B", "expected 0"),
    "TPCAPTURE_ON_FULL": ("wait", "expected wait:TIME"),
    "TPCAPTURE_STRICT": ("maybe", "expected 0 or 1"),
}


@pytest.mark.parametrize("variable", INVALID)
def test_a_value_that_makes_no_sense_is_one_warning_and_off(rank: Launch, variable: str) -> None:
    value, expected = INVALID[variable]
    done = rank(FIVE_STEPS, **({"TPCAPTURE": "1"} | {variable: value}))
    [line] = done.complaints.splitlines()
    assert line.startswith(f'[tpcapture] {variable}="{value}": {expected}')
    assert line.endswith("; capture is off")
    assert status_of(done)["state"] == "off"
    assert not done.run_dir.parent.exists()


SELECTIONS: dict[str, dict[str, int]] = {
    "*.q": {"layers.0.q": 5, "layers.1.q": 5},
    "layers.{1..7}.*": {"layers.1.q": 5, "layers.1.mlp": 5},
    "*[limit=2]": {"layers.0.q": 2, "layers.0.mlp": 2, "layers.1.q": 2, "layers.1.mlp": 2},
    "*.0.q[every=2]": {"layers.0.q": 3},
    "*[dim0=4]": {"layers.0.q": 5, "layers.1.q": 5},
    "*[ndim=1,dtype=int64]": {"layers.0.mlp": 5, "layers.1.mlp": 5},
    "*[numel>8]": {"layers.0.q": 5, "layers.1.q": 5},
    "*.1.*=off, *.q": {"layers.0.q": 5},
    "*.q[limit=1], *[limit=3]": {"layers.0.q": 1, "layers.1.q": 1, "layers.0.mlp": 3, "layers.1.mlp": 3},
    "*[rank=1]": {},
    "nothing.like.it": {},
}


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_selection_says_what_is_captured(rank: Launch, selection: str) -> None:
    done = rank(FIVE_STEPS, TPCAPTURE=selection)
    expected = SELECTIONS[selection]
    if expected:
        assert taps_of(done) == expected
        assert done.complaints == ""
    else:
        nothing = f'run "run": nothing was captured, no call of a tap met "{selection}" and its steps'
        assert (done.run_dir.exists(), done.complaints) == (False, f"[tpcapture] {nothing}\n")
    assert status_of(done)["losses"] == []


def test_head_keeps_the_first_rows(rank: Launch) -> None:
    done = rank(
        FIVE_STEPS.replace("np.full((4, 3), step, ", "np.arange(12).reshape(4, 3).astype("),
        TPCAPTURE="*.0.*[head=2]",
    )
    run = tpcapture.open(done.run_dir)
    record = run["layers.0.q", 3].ranks[None]
    assert (record.shape, record.full_rows) == ([2, 3], 4)
    assert record.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    short = run["layers.0.mlp", 3].ranks[None]
    assert (short.shape, short.full_rows) == ([2], 8)


def test_rules_that_captured_nothing_are_named(rank: Launch) -> None:
    done = rank(FIVE_STEPS, TPCAPTURE="*.q[dim0=5], *.0.q, *.k")
    counted = {"*.q[dim0=5]": 0, "*.0.q": 5, "*.k": 0}
    assert {rule["rule"]: rule["records"] for rule in manifest_of(done)["rules"]} == counted
    said = [f'[tpcapture] rule "{rule}" captured nothing' for rule in ("*.q[dim0=5]", "*.k")]
    assert done.complaints.splitlines() == said


def test_what_is_refused_outside_the_steps_is_no_loss(rank: Launch) -> None:
    code = FIVE_STEPS.replace("np.full(8, step, np.int64)", "None")
    status = status_of(rank(code, TPCAPTURE="1", TPCAPTURE_STEPS="1-3/2"))
    assert [(loss["tap"], loss["count"]) for loss in status["losses"]] == [
        ("layers.0.mlp", 2),
        ("layers.1.mlp", 2),
    ]


def test_the_environment_is_read_once(rank: Launch) -> None:
    code = "import os\nimport tpcapture\nos.environ['TPCAPTURE'] = '1'\n" + FIVE_STEPS
    done = rank(code, TPCAPTURE="off")
    assert (status_of(done)["state"], done.run_dir.exists()) == ("off", False)


def test_the_default_directory_is_beside_the_program(rank: Launch, tmp_path: Path) -> None:
    (tmp_path / "cwd").mkdir()
    code = f"import os; os.chdir({str(tmp_path / 'cwd')!r})\n" + FIVE_STEPS
    rank(code, TPCAPTURE="*.0.q", TPCAPTURE_DIR="")
    assert [path.name for path in (tmp_path / "cwd/tpcapture").iterdir()] == ["run"]
    assert len(tpcapture.open(tmp_path / "cwd/tpcapture")) == 5


def test_rank_0_says_where_the_run_is_and_an_earlier_process_of_a_rank_is_named(rank: Launch) -> None:
    code = "import tpcapture, numpy; tpcapture.capture('x', numpy.zeros(3))"
    first = rank(code, rank=0, world=2, TPCAPTURE="1")
    assert first.stderr == f'[tpcapture rank 0] capturing to "{first.run_dir}"\n'
    assert rank(code, rank=1, world=2, TPCAPTURE="1").stderr == ""
    again = rank(code, rank=1, world=2, TPCAPTURE="1").stderr
    assert again.startswith(
        f'[tpcapture rank 1] "{first.run_dir}" holds an earlier process of this rank already'
    )


def test_a_variable_that_is_none_is_named(rank: Launch) -> None:
    done = rank("import tpcapture", TPCAPTURE_BUGDET="1GiB")
    assert done.stderr.startswith(
        "[tpcapture] TPCAPTURE_BUGDET is no variable of tpcapture; there are TPCAPTURE_RANKS,"
    )


def test_ranks_are_asked_for_of_a_process_that_knows_none(rank: Launch) -> None:
    done = rank("import tpcapture; tpcapture.capture('x', [1])", TPCAPTURE="1", TPCAPTURE_RANKS="0,1")
    assert "TPCAPTURE_RANKS=0,1: the rank of this process is unknown, so nothing is captured" in done.stderr
