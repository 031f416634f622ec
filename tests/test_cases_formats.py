"""Formats, names and files that users found other tools to fail on: every dtype is decoded, every name comes back, a
torn file costs what is in it and no more, a million records are no trouble."""

import json
import subprocess
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from conftest import Launch, clean_env
from job import Array, Runs, Tap, whole

import tpcapture

# --- dtypes that many readers do not know ----------------------------------------------------------------------------

FLOATS = {
    "float8_e4m3fn": 8, "float8_e5m2": 8, "float8_e4m3fnuz": 8, "float8_e5m2fnuz": 8, "float8_e8m0fnu": 8,
    "float6_e2m3fn": 6, "float6_e3m2fn": 6, "float4_e2m1fn": 4, "bfloat16": 16, "float16": 16,
}  # fmt: skip


def every_code(name: str) -> Array:
    """Every number of a format, once."""
    bits = FLOATS[name]
    codes = np.arange(1 << bits, dtype=np.uint16 if bits == 16 else np.uint8)
    return codes.view(np.dtype(getattr(ml_dtypes, name, name)))


@pytest.mark.parametrize("name", FLOATS)
def test_every_code_is_the_number_that_ml_dtypes_says(runs: Runs, name: str) -> None:
    codes = every_code(name)
    numbers = codes.astype(np.float32)
    row = tpcapture.compare(runs.record(whole("x", codes)), runs.record(whole("x", numbers))).rows[0]
    assert (row.max_abs, row.nan, row.both_nan) == (0.0, 0, int(np.isnan(numbers).sum()))
    assert (row.n, row.verdict) == (len(codes), "ROUNDING")


@pytest.mark.parametrize("name", FLOATS)
def test_the_distance_is_counted_in_codes(runs: Runs, name: str) -> None:
    one = np.full(64, 1, np.float32).astype(every_code(name).dtype)
    other = one.copy()
    other.view(np.uint16 if FLOATS[name] == 16 else np.uint8)[17] += 1
    row = tpcapture.compare(runs.record(whole("x", one)), runs.record(whole("x", other))).rows[0]
    assert row.worst is not None
    assert (row.max_ulp, row.worst.index) == (1, [17])
    assert (row.worst.reference, row.worst.candidate) == (1.0, float(other[17]))


INTEGERS = [
    "bool",
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "uint64",
    "int64",
    "complex64",
    "complex128",
]


@pytest.mark.parametrize("name", [*INTEGERS, "float64"])
@pytest.mark.parametrize("shape", [(), (0, 7), (2, 8)], ids=str)
def test_scalars_and_empty_tensors_compare(runs: Runs, name: str, shape: tuple[int, ...]) -> None:
    array = np.ones(shape, dtype=name)
    assert (
        tpcapture.compare(runs.record(whole("x", array)), runs.record(whole("x", array))).verdict
        == "IDENTICAL"
    )
    if shape == (0, 7):
        other = runs.record(whole("x", np.ones((0, 6), dtype=name)))
        assert tpcapture.compare(runs.record(whole("x", array)), other).verdict == "LAYOUT"
    else:
        other = runs.record(whole("x", np.zeros(shape, dtype=name)))
        assert tpcapture.compare(runs.record(whole("x", array)), other).verdict in ("DIFFERENT", "SUSPECT")


# --- names -----------------------------------------------------------------------------------------------------------

NAMES = [
    "__metadata__", "layers.0/attn\n\0", "n" * 300, "😀.out", "../x", "a b", "a%20b", "x#1", "step0/x", "\\", '"', "*",
    "a{0..3}", "\x1b[31m", "</script>",
]  # fmt: skip


def test_every_odd_name_is_compared_and_told(runs: Runs) -> None:
    x = np.arange(32, dtype=np.int32)
    reference = runs.record(*[Tap(name, [x, x], "R") for name in NAMES])
    candidate = runs.record(*[Tap(name, [x, x + (name == "../x")], "R") for name in NAMES])
    report = tpcapture.compare(reference, candidate)
    assert [row.tap for row in report] == NAMES
    assert [row.tap for row in report if row.verdict == "DIFFERENT"] == ["../x"]
    assert "\x1b[31m" not in str(report)
    assert [row.tap for row in tpcapture.compare(candidate)] == NAMES


def test_one_name_twice_is_two_calls(runs: Runs) -> None:
    x = np.arange(4, dtype=np.int32)
    a, b = runs.record(whole("a", x), whole("a", x)), runs.record(whole("a", x), whole("a", x + 1))
    assert [(row.call, row.verdict) for row in tpcapture.compare(a, b)] == [
        (0, "IDENTICAL"),
        (1, "DIFFERENT"),
    ]


MANY = 20_000
CAPTURE_MANY = f"""
import numpy as np, tpcapture
nothing = np.empty((0,), dtype="float32")
taps = [tpcapture.tap(f"t{{i}}") for i in range(1000)]
for _ in range({MANY} // 1000):
    tpcapture.step()
    for tap in taps:
        tap(nothing)
"""


def test_very_many_records_without_bytes(rank: Launch) -> None:
    run = rank(CAPTURE_MANY, rank=0, TPCAPTURE="1").run_dir
    begun = time.monotonic()
    report = tpcapture.compare(run, run)
    assert (report.verdict, len(report)) == ("IDENTICAL", MANY)
    # It is linear in their number: the million of the report takes 50 times as long, less in a release build.
    assert time.monotonic() - begun < 60


# --- torn files, and reading without a map ---------------------------------------------------------------------------


@pytest.fixture
def torn(runs: Runs) -> tuple[Path, Path]:
    """A reference, and a run of two ranks of which rank 1's file is torn."""
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    parts: list[Array | None] = [x[:4], x[4:]]
    reference = runs.record(whole("x", x), whole("r", x))
    candidate = runs.record(Tap("x", parts, "S(0)"), Tap("r", [x, x], "R"))
    return reference, candidate


@pytest.mark.parametrize("change", [-1, 1, -200], ids=["a byte short", "a byte too long", "half gone"])
def test_a_torn_file_is_told_and_the_others_are_compared(torn: tuple[Path, Path], change: int) -> None:
    reference, candidate = torn
    (segment,) = candidate.glob("run/rank1.*.safetensors")
    data = segment.read_bytes()
    segment.write_bytes(data[:change] if change < 0 else data + b"x" * change)
    report = tpcapture.compare(reference, candidate)
    assert [Path(error.file).name for error in report.errors] == [segment.name]
    assert (report.ok, {row.tap: row.verdict for row in report}["r"]) == (False, "IDENTICAL")


def test_without_a_map_the_report_is_the_same(torn: tuple[Path, Path]) -> None:
    reports = []
    for options in ([], ["--no-mmap"]):
        command = [sys.executable, "-m", "tpcapture", "compare", "--json", *torn, *options]
        done = subprocess.run(command, env=clean_env(), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        reports.append(json.loads(done.stdout))
    assert reports[0] == reports[1]
