"""Every figure of a report's row against NumPy in float64, for every placement and kind of dtype.

The oracle is written from docs/format.md and the definitions in crates/capture-compare/src/measure.rs: it shares
nothing with the code that is tested, not even the order of its sums.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import clean_env
from job import Array, Runs, Tap, whole

BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2

# Bits of the significand, the implied one included, and the exponent of the smallest normal number.
FORMATS = {"float64": (53, -1022), "float32": (24, -126), "float16": (11, -14), "bfloat16": (8, -126)} | {
    "float8_e4m3fn": (4, -6),
    "float8_e5m2": (3, -14),
}


def compared(a: Path, b: Path, *options: str | Path) -> dict[str, Any]:
    """The only row that the command prints."""
    command = [sys.executable, "-m", "tpcapture", "compare", "--json", a, b, *options]
    done = subprocess.run(command, env=clean_env(), capture_output=True, text=True, check=False)
    (row,) = json.loads(done.stdout)["rows"]
    found: dict[str, Any] = row
    return found


def line(x: Array) -> Array:
    """Where floats of one format stand on its line, both zeros at 0."""
    bits = x.view(f"u{x.dtype.itemsize}").astype(np.uint64)
    sign = np.uint64(1 << (8 * x.dtype.itemsize - 1))
    magnitude = (bits & (sign - np.uint64(1))).astype(np.int64)
    return np.where(bits & sign, -magnitude, magnitude)


def rows_of(x: Array) -> Array:
    """As a matrix whose rows are the smallest block of trailing dims with at least 16 numbers."""
    width = 1
    for size in reversed(x.shape):
        if width >= 16:
            break
        width *= size
    return x.reshape(-1, width)


@dataclass
class Oracle:
    """Both sides in float64, the magnitudes of the terms of sums, and the format in which errors are counted."""

    r: Array
    c: Array
    name: str
    terms: Array | float = 0.0

    def units(self) -> Array:
        precision, exponent = FORMATS[self.name]
        u, underflow = 2.0**-precision, 2.0 ** (exponent - precision)
        r, c = rows_of(self.r), rows_of(self.c)
        finite = np.isfinite(r) & np.isfinite(c)
        # What is zero on both sides has no size to be measured by, and no error.
        there = finite & ((r != 0) | (c != 0))
        magnitude = np.where(there, np.abs(r), np.nan)
        row = np.nanmean(magnitude, axis=1, keepdims=True)
        n = there.sum(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            column = np.nanmean(np.where(row > 0, magnitude / row, np.where(there, 0.0, np.nan)), axis=0)
        row = np.maximum(row, np.median(row[row > 0]) / 4)
        column = np.maximum((column / np.median(column[column > 0]) * n + 4) / (n + 4), 0.25)
        terms = rows_of(np.broadcast_to(self.terms, self.r.shape)) if np.ndim(self.terms) else self.terms
        w = u * (np.abs(r) + row * column + terms) + underflow
        return np.where(finite & (c != r), np.abs(c - r) / w, np.where(there, 0.0, np.nan))

    def figures(self) -> dict[str, Any]:
        finite = np.isfinite(self.r) & np.isfinite(self.c)
        r, c = self.r[finite], self.c[finite]
        units = self.units()
        norm = np.linalg.norm
        return {
            "n": self.r.size,
            "nan": int(np.sum(np.isnan(self.r) != np.isnan(self.c))),
            "both_nan": int(np.sum(np.isnan(self.r) & np.isnan(self.c))),
            "max_abs": np.max(np.abs(c - r)),
            "rel_l2": norm(c - r) / norm(r),
            "cosine": r @ c / (norm(r) * norm(c)),
            "slope": r @ c / (r @ r),
            "max_units": np.nanmax(units),
            "row_units": np.sqrt(np.nanmax(np.nanmean(units**2, axis=1))),
        }

    def worst(self) -> list[int]:
        """The first place whose class differs, else that of the largest error in units."""
        classes = [
            np.where(np.isfinite(x), 0, np.where(np.isnan(x), 1, np.where(x > 0, 2, 3)))
            for x in (self.r, self.c)
        ]
        changed = np.flatnonzero(classes[0] != classes[1])
        units = np.nan_to_num(self.units(), nan=-1.0)
        at = changed[0] if len(changed) else np.argmax(units)
        return [int(i) for i in np.unravel_index(at, self.r.shape)]


def check(row: dict[str, Any], oracle: Oracle, max_ulp: int | None, placement: str) -> None:
    for name, expected in oracle.figures().items():
        assert row[name] == pytest.approx(expected, rel=1e-6, abs=1e-12), name
    assert (row["max_ulp"], row["placement"]) == (max_ulp, placement)
    worst = oracle.worst()
    assert row["worst"]["index"] == worst
    for side, of in (("reference", oracle.r), ("candidate", oracle.c)):
        x = of[tuple(worst)]
        assert row["worst"][side] == (pytest.approx(x, rel=1e-12) if np.isfinite(x) else None)


def pair(shape: tuple[int, ...], dtype: type, seed: int = 1, noise: float = 2e-3) -> tuple[Array, Array]:
    """A tensor, and the same with noise; one column is heavy and one row light."""
    random = np.random.default_rng(seed)
    x = random.standard_normal(shape)
    x[..., 1] *= 30
    x[0] /= 100
    y = x * (1 + noise * random.standard_normal(shape))
    return x.astype(dtype), y.astype(dtype)


def f64(x: Array) -> Array:
    return x.astype(np.float64)


DTYPES = {
    "bf16": BF16,
    "fp16": np.float16,
    "fp32": np.float32,
    "fp64": np.float64,
    "e4m3": E4M3,
    "e5m2": E5M2,
}


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(40, 24), (6, 7, 20), (50, 4, 3)], ids=str)
def test_floats_in_one_piece(runs: Runs, name: str, shape: tuple[int, ...]) -> None:
    dtype = DTYPES[name]
    noise = 0.1 if dtype in (E4M3, E5M2) else 2e-3
    a, b = pair(shape, dtype, noise=noise)
    row = compared(runs.record(whole("x", a)), runs.record(whole("x", b)))
    expected = Oracle(f64(a), f64(b), np.dtype(dtype).name)
    check(row, expected, int(np.max(np.abs(line(a) - line(b)))), "R")


@pytest.mark.parametrize("name", ["bf16", "fp32"])
def test_classes_are_left_out_of_figures_and_counted(runs: Runs, name: str) -> None:
    a, b = pair((32, 48), DTYPES[name])
    a[3, 5], b[3, 5] = np.nan, np.nan
    a[4, 6], b[4, 6] = np.inf, np.inf
    a[9, 9] = np.nan
    b[11, 2] = -np.inf
    row = compared(runs.record(whole("x", a)), runs.record(whole("x", b)))
    finite = np.isfinite(f64(a)) & np.isfinite(f64(b))
    ulp = int(np.max(np.abs(line(a) - line(b))[finite]))
    with np.errstate(invalid="ignore"):  # the oracle's own inf - inf, which it leaves out
        check(row, Oracle(f64(a), f64(b), np.dtype(DTYPES[name]).name), ulp, "R")


@pytest.mark.parametrize("placement", ["S(0)", "S(1)", "S(1, sections=[16,8,8])", "S(0, interleave=8)"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_slices_have_the_figures_of_the_whole_and_of_each_rank(
    runs: Runs, placement: str, ranks: int
) -> None:
    a, b = pair((48, 32), BF16)
    axis = int(placement[2])
    if "sections" in placement:
        columns = np.arange(32)
        sections = [np.split(s, ranks) for s in np.split(columns, [16, 24])]
        owned = [np.concatenate([s[rank] for s in sections]) for rank in range(ranks)]
    else:
        owned = np.split(np.arange(b.shape[axis]), ranks)
    parts: list[Array | None] = [np.take(b, own, axis) for own in owned]
    row = compared(runs.record(whole("x", a)), runs.record(Tap("x", parts, placement)))
    oracle = Oracle(f64(a), f64(b), "bfloat16")
    check(row, oracle, int(np.max(np.abs(line(a) - line(b)))), placement)
    worst = oracle.worst()[axis]
    assert row["worst"]["rank"] == next(rank for rank in range(ranks) if worst in owned[rank])
    units = oracle.units()
    for error, own in zip(row["by_rank"], owned, strict=True):
        assert error["max_units"] == pytest.approx(np.max(np.take(units, own, axis)), rel=1e-6)


def test_padding_is_left_out_and_counted(runs: Runs) -> None:
    a, b = pair((20, 44), np.float16)
    padded = np.concatenate([b, np.full((20, 4), np.nan, np.float16)], 1)
    parts: list[Array | None] = list(np.split(padded, 4, 1))
    row = compared(runs.record(whole("x", a)), runs.record(Tap("x", parts, "S(1, size=44)")))
    check(row, Oracle(f64(a), f64(b), "float16"), int(np.max(np.abs(line(a) - line(b)))), "S(1, size=44)")
    assert row["padded"] == 4
    # Rows past those that are valid.
    taller = np.concatenate([b, np.full((5, 44), 9, np.float16)])
    row = compared(runs.record(whole("x", a)), runs.record(Tap("x", [taller, taller], "R", rows=20)))
    check(row, Oracle(f64(a), f64(b), "float16"), int(np.max(np.abs(line(a) - line(b)))), "R")
    assert row["padded"] == 5


@pytest.mark.parametrize("ranks", [2, 8])
def test_a_sum_counts_the_size_of_its_terms(runs: Runs, ranks: int) -> None:
    terms = [pair((24, 40), BF16, seed=rank)[0] for rank in range(ranks)]
    total = np.asarray(sum(f64(t) for t in terms))
    a = total.astype(BF16)
    row = compared(runs.record(whole("y", a, "P")), runs.record(Tap("y", list(terms), "P")))
    magnitude = np.asarray(sum(np.abs(f64(t)) for t in terms))
    oracle = Oracle(f64(a), total, "bfloat16", magnitude)
    check(row, oracle, int(np.max(np.abs(line(a) - line(total.astype(BF16))))), "P")
    assert row["by_rank"] == []


@pytest.mark.parametrize("wider", [np.float32, np.float64], ids=["fp32", "fp64"])
def test_units_are_those_of_the_narrower_side(runs: Runs, wider: type) -> None:
    a, _ = pair((32, 32), BF16)
    _, b = pair((32, 32), wider)
    row = compared(runs.record(whole("x", a)), runs.record(whole("x", b)))
    ulp = int(np.max(np.abs(line(a) - line(b.astype(BF16)))))
    check(row, Oracle(f64(a), f64(b), "bfloat16"), ulp, "R")


def test_stored_wider_than_computed_is_told_by_zero_bits(runs: Runs) -> None:
    a, b = pair((32, 32), BF16)
    stored = [x.astype(np.float32) for x in (a, b)]
    row = compared(runs.record(whole("x", stored[0])), runs.record(whole("x", stored[1])))
    figures = Oracle(f64(a), f64(b), "bfloat16").figures()
    assert row["max_units"] == pytest.approx(figures["max_units"], rel=1e-6)
    assert row["row_units"] == pytest.approx(figures["row_units"], rel=1e-6)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.bool_], ids=lambda t: t.__name__)
def test_integers_are_exact_and_have_no_units(runs: Runs, dtype: type) -> None:
    random = np.random.default_rng(4)
    a = random.integers(0, 2 if dtype is np.bool_ else 100, (20, 30)).astype(dtype)
    b = a.copy()
    b[7, 11], b[15, 2] = (~a[7, 11], ~a[15, 2]) if dtype is np.bool_ else (a[7, 11] + 1, a[15, 2] + 5)
    parts: list[Array | None] = list(np.split(b, 2))
    row = compared(runs.record(whole("x", a)), runs.record(Tap("x", parts, "S(0)")))
    assert (row["verdict"], row["n"], row["ranks"]) == ("DIFFERENT", 600, [0, 1])
    assert row["max_abs"] == np.max(np.abs(f64(b) - f64(a)))
    assert [row[name] for name in ("max_units", "row_units", "max_ulp", "rel_l2", "cosine")] == [None] * 5
    at = [7, 11] if dtype is np.bool_ else [15, 2]
    worst = {
        "index": at,
        "reference": float(a[tuple(at)]),
        "candidate": float(b[tuple(at)]),
        "rank": at[0] // 10,
    }
    assert row["worst"] == worst


def test_integers_beyond_what_a_float_holds_still_differ(runs: Runs) -> None:
    a = np.full((4, 4), 2**62, dtype=np.int64)
    b = a.copy()
    b[2, 3] += 1
    row = compared(runs.record(whole("x", a)), runs.record(whole("x", b)))
    assert (row["verdict"], row["worst"]["index"]) == ("DIFFERENT", [2, 3])
