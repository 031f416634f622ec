"""`tpcapture.testing.assert_same` fails with the terminal report, at the caller's line."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Launch, clean_env

import tpcapture
from tpcapture.testing import assert_same

CODE = """
import numpy as np
from tpcapture import capture
q = np.random.default_rng(1).standard_normal((32, 16), dtype="float32")
q[0, 1] = FAULT
capture("q", q, placement="R")
"""


@pytest.fixture
def runs(rank: Launch) -> tuple[Path, Path]:
    a = rank(CODE.replace("FAULT", "8.1"), rank=0, run="a", TPCAPTURE="1").run_dir
    return a, rank(CODE.replace("FAULT", "9.9"), rank=0, run="b", TPCAPTURE="1").run_dir


def test_what_is_the_same_passes(runs: tuple[Path, Path]) -> None:
    assert assert_same(runs[0], runs[0]).verdict == "IDENTICAL"


def test_a_difference_fails_with_the_terminal_report(runs: tuple[Path, Path]) -> None:
    with pytest.raises(AssertionError) as caught:
        assert_same(*runs)
    assert str(caught.value) == str(tpcapture.compare(*runs))
    assert str(caught.value).startswith(
        "DIFFERENT, first at q, step 0, rank 0 (element: 1.65e+06 times its limit)\n"
        "at [0, 1]: reference 8.1, candidate 9.9\n"
    )
    assert "\x1b" not in str(caught.value)


def test_nothing_compared_is_not_the_same(runs: tuple[Path, Path]) -> None:
    with pytest.raises(AssertionError, match="nothing was compared: the run has one rank; give a second run"):
        assert_same(runs[0])


def test_pytest_shows_the_callers_line(runs: tuple[Path, Path], tmp_path: Path) -> None:
    test = tmp_path / "test_theirs.py"
    a, b = map(str, runs)
    test.write_text(
        f"from tpcapture.testing import assert_same\n\ndef test_it():\n    assert_same({a!r}, {b!r})\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", test.name]
    done = subprocess.run(command, cwd=tmp_path, env=clean_env(), capture_output=True, text=True, check=False)
    assert ">       assert_same(" in done.stdout
    assert "E       AssertionError: DIFFERENT, first at q, step 0, rank 0" in done.stdout
    assert "raise AssertionError" not in done.stdout
