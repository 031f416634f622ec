"""What a run, its points and records say of themselves in a Python prompt, and what a missing one says."""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tpcapture


@pytest.fixture
def run(tmp_path: Path) -> tpcapture.Run:
    with tpcapture.capturing(tmp_path):
        for step in range(3):
            if step:
                tpcapture.step()
            tpcapture.capture("layers.0.q", np.zeros((2, 3), ml_dtypes.bfloat16))
    return tpcapture.open(tmp_path)


def test_what_is_printed_is_short(run: tpcapture.Run) -> None:
    point = run["layers.0.q", 1]
    rank = point.records[0].rank
    of = "?" if rank is None else rank
    assert repr(run) == f"Run({str(run.path)!r}, 1 rank, 1 tap, steps 0-2)"
    assert repr(point) == f"Point('layers.0.q', step 1, rank {of})"
    assert repr(point.ranks[rank]) == f"Record('layers.0.q', step 1, rank {of}, BF16 [2, 3])"


def test_a_rank_that_is_not_there_says_which_are(run: tpcapture.Run) -> None:
    ranks = run["layers.0.q"].ranks
    (rank,) = ranks
    with pytest.raises(
        KeyError, match=rf"no record of rank 7; there is rank {'[?]' if rank is None else rank}"
    ):
        ranks[7]
    assert ranks.get(7) is None
    with pytest.raises(KeyError, match="no record of rank 7; there are ranks 0-1"):
        type(ranks)({0: ranks[rank], 1: ranks[rank]})[7]


@pytest.mark.parametrize(
    ("package", "cure"), [("ml_dtypes", r"tpcapture\[numpy\]"), ("numpy", r"tpcapture\[numpy\]")]
)
def test_a_missing_package_says_how_to_get_it(
    run: tpcapture.Run, monkeypatch: pytest.MonkeyPatch, package: str, cure: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    if package == "ml_dtypes":
        monkeypatch.setattr("tpcapture._dtype.NAMES", {"BF16": "no_such_dtype"})
    with pytest.raises(ImportError, match=rf"{package}: pip install '{cure}', or use .torch\(\)"):
        run["layers.0.q"].records[0].numpy()


def test_torch_missing_says_so(run: tpcapture.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"pip install torch, or use .numpy\(\)"):
        run["layers.0.q"].records[0].torch()
