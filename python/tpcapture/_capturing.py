"""Switching a capture on for the time of a block."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tpcapture import _native


@contextmanager
def capturing(
    dir: str | os.PathLike[str] = "tpcapture",
    *,
    select: str | None = None,
    ranks: str = "all",
    steps: str = "all",
    run: str | None = None,
) -> Iterator[Path]:
    """Capture for the time of a `with` block, whose value is the directory of the run.

    dir: where runs go; the run is a directory in it, made at the first record. select: what to capture, everything if
    None. ranks, steps: as in TPCAPTURE_RANKS and TPCAPTURE_STEPS. run: the run's name, equal on all ranks; derived if
    None. Everything is sealed when the block is left.

    ValueError: an argument does not parse. RuntimeError: a capture is on already, or TPCAPTURE=never.
    """
    path = _native.switch_on(os.fspath(dir), select, ranks, steps, run)
    try:
        yield Path(path)
    finally:
        _native.switch_off("off")
