"""`tpcapture.compare` says what the command says, in types; what is not there or does not parse raises."""

import signal
import subprocess
import sys
import time
import types
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Launch, clean_env

import tpcapture
from tpcapture import Divergence, Verdict, Worst

HOSTILE = "</td><script>alert(1)</script>"
CODE = f"""
import numpy as np, tpcapture
from tpcapture import capture
capture("ids", np.arange(4), placement="R")
q = np.random.default_rng(1).standard_normal((32, 16), dtype="float32")
q[1, 1] = FAULT
capture("q", q, placement="S(1)")
capture({HOSTILE!r}, np.ones(3, dtype="float32"), placement="R")
tpcapture.step()
capture("ids", np.arange(4), placement="R")
"""


def f32(x: float) -> float:
    return float(np.float32(x))


@pytest.fixture
def runs(rank: Launch) -> tuple[Path, Path]:
    """A reference, and a candidate that differs in one element of q."""
    a = rank(CODE.replace("FAULT", "8.1"), rank=0, run="a", TPCAPTURE="1").run_dir
    return a, rank(CODE.replace("FAULT", "9.9"), rank=0, run="b", TPCAPTURE="1").run_dir


def command(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "tpcapture", *arguments],
        env=clean_env(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_report_has_the_rows_in_types(runs: tuple[Path, Path]) -> None:
    report = tpcapture.compare(*runs)
    assert (report.verdict, report.ok, len(report)) == (Verdict.DIFFERENT, False, 4)
    assert report.first_divergence == Divergence("q", 0, 0, [0])
    assert report.counts[Verdict.IDENTICAL] == 3
    assert (report.runs, report.errors) == ([str(run) for run in runs], [])
    assert [(row.tap, row.step, row.verdict) for row in report] == [
        ("ids", 0, "IDENTICAL"),
        ("q", 0, "DIFFERENT"),
        (HOSTILE, 0, "IDENTICAL"),
        ("ids", 1, "IDENTICAL"),
    ]
    q = report.rows[1]
    assert (q.worst, q.max_abs, q.n) == (Worst([1, 1], f32(8.1), f32(9.9), 0), f32(9.9) - f32(8.1), 512)
    assert (q.placement, q.placement_from) == ("S(1)", "capture")
    assert (report.rows[0].max_units, report.rows[0].worst) == (None, None)
    assert repr(report) == "Report(DIFFERENT, first at 'q', step 0, 4 rows)"


def test_words_and_json_are_the_commands(runs: tuple[Path, Path]) -> None:
    report = tpcapture.compare(*runs)
    assert str(report) == command("compare", *runs).stdout
    assert report.to_json() + "\n" == command("compare", "--json", *runs).stdout


def test_options_are_those_of_the_command(runs: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = map(tpcapture.open, runs)
    assert tpcapture.compare(a, b, tap="ids").ok
    assert [row.step for row in tpcapture.compare(a, b, step=1)] == [1]
    assert [row.step for row in tpcapture.compare(a, b, step="0-1", tap="ids", mmap=False)] == [0, 1]
    assert tpcapture.compare(a).ok is False  # one rank alone: nothing was compared
    layouts = tmp_path / "layouts.toml"
    layouts.write_text('[[tap]]\nmatch = "q"\nprecision = "bf16"\n[[tap]]\nmatch = "none"\n')
    report = tpcapture.compare(a, b, layouts=layouts)
    told = report.rows[1].max_units
    assert told is not None
    assert 1 < told < 64  # of bf16; of fp32 it is some million
    assert str(report).endswith(f'tpcapture: {layouts}: match "none" fits no tap\n')


def test_what_cannot_be_done_raises(runs: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        tpcapture.compare(tmp_path / "nowhere")
    with pytest.raises(OSError, match="cannot read layouts file"):
        tpcapture.compare(*runs, layouts=tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[[tap]]\nmatsch = 1\n")
    with pytest.raises(ValueError, match=r"bad\.toml:2: "):
        tpcapture.compare(*runs, layouts=tmp_path / "bad.toml")
    with pytest.raises(ValueError, match='no tap matches "k"; there are'):
        tpcapture.compare(*runs, tap="k")
    with pytest.raises(ValueError, match='step="x": '):
        tpcapture.compare(*runs, step="x")


def test_a_signal_stops_it(rank: Launch) -> None:
    code = """
import numpy as np, tpcapture
for i in range(60):
    tpcapture.capture(f"t{i}", np.random.default_rng(SEED + i).standard_normal((512, 512)), placement="R")
"""
    a, b = (
        rank(code.replace("SEED", seed), rank=0, run=f"of{seed}", TPCAPTURE="1").run_dir
        for seed in ("0", "100")
    )
    since = time.monotonic()
    tpcapture.compare(a, b)
    full = time.monotonic() - since

    def stop(*_: object) -> None:
        raise InterruptedError("stopped")

    before = signal.signal(signal.SIGALRM, stop)
    try:
        since = time.monotonic()
        signal.setitimer(signal.ITIMER_REAL, full / 20)
        with pytest.raises(InterruptedError, match="stopped"):
            tpcapture.compare(a, b)
        assert time.monotonic() - since < full * 0.7 + 0.1
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_unreadable_file_is_listed(runs: tuple[Path, Path]) -> None:
    [segment] = runs[1].glob("*.safetensors")
    segment.write_bytes(segment.read_bytes()[:40])
    report = tpcapture.compare(*runs)
    [error] = report.errors
    assert error.file == str(segment)
    assert str(report).endswith(f"{segment}\n")


class Cells(HTMLParser):
    """The tags that are there, and the text in the first cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.data: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.data.append(data)


def test_a_notebook_gets_a_table_with_names_escaped(runs: tuple[Path, Path]) -> None:
    cells = Cells(tpcapture.compare(*runs)._repr_html_())
    assert {"table", "tr", "td"} <= cells.tags
    assert "script" not in cells.tags
    assert {"✕ DIFFERENT", "q", HOSTILE, "S(1)"} <= set(cells.data)


def test_pandas_is_asked_for_only_when_it_is_used(
    runs: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tpcapture.compare(*runs)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        report.to_pandas()

    class Frame(dict[str, Any]):
        def __init__(self, rows: list[dict[str, Any]], columns: list[str]) -> None:
            super().__init__({name: [row[name] for row in rows] for name in columns})

    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=Frame))
    frame: Any = report.to_pandas()
    assert frame["tap"] == ["ids", "q", HOSTILE, "ids"]
    assert frame["verdict"][1] == "DIFFERENT"
    assert frame["worst"][1] == {"index": [1, 1], "reference": f32(8.1), "candidate": f32(9.9), "rank": 0}
