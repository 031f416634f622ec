"""Modes stats and hash: the figures are those of NumPy in float64 and of the formula of docs/format.md in plain Python.

For every dtype and layout; and whoever reads a run finds them where the tensors would be.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import Launch

import tpcapture

Array = np.ndarray[Any, Any]

MASK = (1 << 64) - 1
SUMS = ("mean", "rms")


def mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def hash_of(data: bytes) -> str:
    words = (int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8))
    total = sum(mix(word ^ mix(i)) for i, word in enumerate(words)) & MASK
    return f"{mix(total ^ len(data)):016x}"


def stats_of(tensor: Array) -> dict[str, Any]:
    parts = [tensor.real, tensor.imag] if np.iscomplexobj(tensor) else [tensor]
    x = np.concatenate([part.astype(np.float64).ravel() for part in parts])
    f = x[np.isfinite(x)]
    finite: dict[str, Any] = dict.fromkeys(("min", "max", "mean", "rms", "absmax"))
    if f.size:
        rms = np.sqrt(np.mean(f * f))
        finite = {"min": f.min(), "max": f.max(), "mean": f.mean(), "rms": rms, "absmax": np.abs(f).max()}
    return {
        "n": x.size,
        "nan": np.isnan(x).sum(),
        "pos_inf": (x == np.inf).sum(),
        "neg_inf": (x == -np.inf).sum(),
        "zero": (x == 0).sum(),
    } | finite


def check(tmp_path: Path, tensor: Array, *, packed: bytes | None = None, **given: Any) -> None:
    """Both modes against the twins. `packed`: the record's bytes where elements share a byte."""
    dtype = tensor.dtype
    for mode in ("stats", "hash"):
        with tpcapture.capturing(tmp_path / mode, select=f"*={mode}"):
            tpcapture.capture("t", tensor, **given)
        [record] = tpcapture.open(tmp_path / mode)["t"].records
        assert record.mode == mode
        valid = np.ascontiguousarray(tensor[: given["rows"]] if given else tensor).reshape(-1)
        if mode == "hash":
            assert record.hash == hash_of(valid.tobytes() if packed is None else packed), dtype
            continue
        assert record.stats is not None
        for key, expected in stats_of(valid).items():
            found = record.stats[key]
            # NumPy's sums differ in their last bits.
            near = (
                pytest.approx(expected, rel=1e-9, abs=1e-12)
                if key in SUMS and expected is not None
                else expected
            )
            assert found == near, f"{dtype} {key}: {found}, {expected}"


def pattern(dtype: Any, n: int) -> Array:
    """Bytes that are every code of a small dtype, NaN and infinities among them."""
    bits = np.random.default_rng(1).integers(0, 256, n * np.dtype(dtype).itemsize, dtype=np.uint8)
    return bits.view(dtype)


WHOLE = ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "c8"]
SMALL = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [*WHOLE, *SMALL])
def test_every_dtype_has_the_figures_of_numpy(tmp_path: Path, name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name) if name in SMALL else name)
    # Two chunks, the last block of numbers and the last word cut short.
    n = 100_003 // dtype.itemsize
    check(tmp_path, pattern(dtype, n))


def test_f64_complex128_and_bool(tmp_path: Path) -> None:
    numbers = np.random.default_rng(2).standard_normal((37, 1001))
    check(tmp_path / "f8", numbers)
    check(tmp_path / "c16", numbers[:20] + 1j * numbers[-20:])
    check(tmp_path / "bool", numbers > 0.3)


@pytest.mark.parametrize(("name", "bits"), [("float4_e2m1fn", 4), ("float6_e2m3fn", 6), ("float6_e3m2fn", 6)])
def test_elements_that_share_bytes(tmp_path: Path, name: str, bits: int) -> None:
    codes = np.random.default_rng(3).integers(0, 1 << bits, 4096, dtype=np.uint8)
    stream = sum(int(code) << bits * i for i, code in enumerate(codes))
    packed = stream.to_bytes(4096 * bits // 8, "little")
    check(tmp_path, codes.view(getattr(ml_dtypes, name)), packed=packed)


def test_layouts_do_not_show(tmp_path: Path) -> None:
    numbers = np.random.default_rng(4).standard_normal((90, 70, 50)).astype("f4")
    for name, tensor in {
        "transposed": numbers.transpose(2, 0, 1),
        "sliced": numbers[::3, 5:-1:2, ::-1],
        "expanded": np.broadcast_to(numbers[:, :1], numbers.shape),
        "scalar": np.array(-3.5),
        "empty": numbers[:0],
        "padded": numbers,
    }.items():
        check(tmp_path / name, tensor, **({"rows": 31} if name == "padded" else {}))


THREE_MODES = """
import os, signal, numpy as np, tpcapture
q = np.array([[1, -2, np.nan], [np.inf, 0, 4]], np.float32)
for step in range(3):
    for tap in ("a.full", "a.stats", "a.hash"):
        tpcapture.capture(tap, q, placement="R")
    tpcapture.step()
if os.environ.get("KILL"):
    tpcapture.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""
SELECT = "*.full, *.stats=stats, *.hash=hash"


def command(*args: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tpcapture", *map(str, args)], capture_output=True, text=True, check=False
    )


def test_whoever_reads_finds_them(rank: Launch) -> None:
    done = rank(THREE_MODES, TPCAPTURE=SELECT)
    run = tpcapture.open(done.run_dir)
    assert (run.taps, run.steps, run.errors) == (["a.full", "a.stats", "a.hash"], [0, 1, 2], [])
    record = run["a.stats", 1].ranks[None]
    assert (record.shape, record.strides, record.placement, record.crc32) == ([2, 3], [3, 1], "R", None)
    assert repr(record) == "Record('a.stats', step 1, rank ?, F32 [2, 3], only stats)"
    with pytest.raises(ValueError, match=r"of tap 'a.stats' only statistics were kept: see its .stats"):
        record.numpy()
    with pytest.raises(ValueError, match=r"of tap 'a.hash' only a hash was kept: see its .hash"):
        run["a.hash"].ranks[None].torch()

    taps = {tap["tap"]: tap for tap in json.loads(command("ls", done.run_dir, "--json").stdout)["taps"]}
    assert [taps[tap]["modes"] for tap in run.taps] == [["full"], ["stats"], ["hash"]]
    listed = command("ls", done.run_dir).stdout.splitlines()
    assert [line.split()[-2] for line in listed[-3:]] == ["B", "stats", "hash"], listed

    [shown] = json.loads(command("show", done.run_dir, "a.stats", "--step", "2", "--json").stdout)["records"]
    full = run["a.full"].ranks[None].numpy()
    assert (shown["mode"], shown["step"]) == ("stats", 2)
    assert {key: shown["summary"][key] for key in stats_of(full)} == pytest.approx(stats_of(full))
    text = command("show", done.run_dir, "a.*").stdout
    assert "only statistics were kept" in text
    assert f"only a hash was kept: {hash_of(full.tobytes())}" in text
    checked = command("verify", done.run_dir)
    assert (checked.returncode, "6 records of statistics or hashes have no bytes" in checked.stdout) == (
        0,
        True,
    )


def test_what_was_flushed_before_kill_9_is_there(rank: Launch) -> None:
    done = rank(THREE_MODES, TPCAPTURE=SELECT, KILL="1", check=False)
    assert done.returncode == -signal.SIGKILL
    assert [(p.tap, p.step) for p in tpcapture.open(done.run_dir) if p.tap == "a.hash"] == [
        ("a.hash", step) for step in range(3)
    ]
    # A line torn by what killed it is passed over, one that makes no sense costs no other.
    [lines] = done.files("*.stats.jsonl")
    whole = lines.read_text()
    lines.write_text(whole.replace('"mode":"stats"', '"mode":"guess"', 1) + '{"tap":"x"')
    run = tpcapture.open(done.run_dir)
    assert len(run) == 8
    [(file, reason)] = run.errors
    assert file == str(lines)
    assert "unknown variant `guess`" in reason


def test_the_file_is_made_for_its_first_record_and_its_owner(rank: Launch) -> None:
    done = rank(THREE_MODES, TPCAPTURE="*.full")
    assert done.files("*.stats.jsonl") == []
    code = "import os, numpy as np, tpcapture\n"
    code += "tpcapture.capture('t', np.ones(3))\ntpcapture.flush()\n"
    code += "child = os.fork()\ntpcapture.capture('t', np.ones(3))\n"
    code += "if child: os.waitpid(child, 0)\n"
    done = rank(code, run="forked", TPCAPTURE="*=stats")
    assert [len(file.read_text().splitlines()) for file in done.files("*.stats.jsonl")] in ([3, 2], [2, 3])


def test_lines_count_in_the_budget(rank: Launch) -> None:
    code = "import numpy as np, tpcapture\nfor _ in range(1000): tpcapture.capture('t', np.ones(1 << 16))\n"
    done = rank(code, TPCAPTURE="*=stats", TPCAPTURE_BUDGET="100KiB")
    [manifest] = tpcapture.open(done.run_dir).manifests.values()
    assert manifest["end_reason"].startswith("budget reached")
    [lines] = done.files("*.stats.jsonl")
    assert 10_000 < lines.stat().st_size <= 100 << 10
    assert manifest["counters"]["records"] == len(tpcapture.open(done.run_dir))


ONE_RANK = """
import os, numpy as np, tpcapture
rank, change = int(os.environ["RANK"]), os.environ.get("CHANGE", "")
x = np.arange(24, dtype=os.environ.get("DTYPE", "f4")).reshape(4, 6)
part = x if os.environ.get("PLACEMENT") == "R" else x[:, 3 * rank : 3 * rank + 3]
if change == str(rank):
    part = part + np.ones((), part.dtype)
elif change == "nan":
    part = np.where(part == 5, np.nan, part)
elif change == "shuffle":
    part = part[::-1]
tpcapture.capture("t", part, placement=os.environ.get("PLACEMENT", "S(1)"))
"""


@pytest.fixture
def pair(rank: Launch) -> Any:
    """The rows of two runs, the second one changed, and the exit status: `pair("hash", "full", CHANGE="1")`."""

    def compare(a: str, b: str, worlds: tuple[int, int] = (2, 2), **env: str) -> tuple[list[Any], int]:
        change = {key: env.pop(key) for key in ["CHANGE"] if key in env}
        where = []
        for name, mode, world, more in (("a", a, worlds[0], {}), ("b", b, worlds[1], change)):
            for i in range(world):
                done = rank(ONE_RANK, rank=i, world=world, run=name, TPCAPTURE=f"*={mode}", **env, **more)
            where.append(done.run_dir)
        done = command("compare", *where, "--json")
        assert done.stdout, done.stderr
        return json.loads(done.stdout)["rows"], done.returncode

    return compare


def verdict(rows: list[Any]) -> tuple[str, list[int], str]:
    [row] = rows
    return row["verdict"], row["ranks"], "; ".join(found["text"] for found in row["diagnoses"])


@pytest.mark.parametrize("modes", [("hash", "hash"), ("full", "hash"), ("hash", "full")])
def test_hashes_of_equal_parts_are_identical(pair: Any, modes: tuple[str, str]) -> None:
    rows, status = pair(*modes)
    assert (verdict(rows), status) == (("IDENTICAL", [], ""), 0)


def test_other_hashes_of_floats_are_suspect(pair: Any) -> None:
    rows, status = pair("hash", "full", CHANGE="1")
    text = "the hashes differ: other bits, whether by rounding or a fault a hash cannot tell"
    assert (verdict(rows), status) == (("SUSPECT", [1], text), 1)


def test_other_hashes_of_integers_are_different(pair: Any) -> None:
    rows, status = pair("hash", "hash", CHANGE="0", DTYPE="i4")
    assert (verdict(rows)[:2], status) == (("DIFFERENT", [0]), 1)


def test_statistics_never_pass(pair: Any) -> None:
    """Rows in another order have the same statistics."""
    rows, status = pair("stats", "stats", CHANGE="shuffle")
    assert (verdict(rows)[0], status) == ("SUSPECT", 1)
    assert "only statistics were kept, which ignore order: mean" in verdict(rows)[2]


def test_statistics_tell_other_classes(pair: Any) -> None:
    rows, _ = pair("stats", "stats", CHANGE="nan")
    assert verdict(rows)[:2] == ("DIFFERENT", [1])
    assert "0 NaN, 0 inf and 0 -inf on the reference, 1 NaN" in verdict(rows)[2]


def test_parts_of_other_worlds_are_not_compared(pair: Any) -> None:
    rows, status = pair("hash", "hash", (1, 2))
    assert (verdict(rows)[0], status) == ("SUSPECT", 1)
    assert "cut otherwise" in verdict(rows)[2]


def test_the_whole_is_compared_across_worlds(pair: Any) -> None:
    rows, status = pair("hash", "hash", (1, 2), PLACEMENT="R")
    assert (verdict(rows)[0], status) == ("IDENTICAL", 0)


def test_a_replica_with_another_hash_is_found_across_worlds(pair: Any) -> None:
    rows, _ = pair("hash", "hash", (1, 2), PLACEMENT="R", CHANGE="1")
    assert verdict(rows)[:2] == ("SUSPECT", [1])


@pytest.mark.parametrize(
    ("mode", "change", "expected"),
    [
        ("hash", "", ("IDENTICAL", [], 0)),
        ("hash", "2", ("DIFFERENT", [2], 1)),
        ("stats", "2", ("DIFFERENT", [2], 1)),
        ("stats", "", (None, [], 2)),
    ],
)
def test_replicas_of_one_run(rank: Launch, mode: str, change: str, expected: Any) -> None:
    for i in range(3):
        done = rank(ONE_RANK, rank=i, world=3, TPCAPTURE=f"*={mode}", PLACEMENT="R", CHANGE=change)
    found = command("compare", done.run_dir, "--json")
    [row] = json.loads(found.stdout)["rows"]
    assert (row["verdict"], row["ranks"], found.returncode) == expected
