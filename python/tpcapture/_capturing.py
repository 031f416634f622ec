"""Switching a capture on and off from inside the process."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tpcapture import _native


def on(
    select: str | None = None,
    *,
    ranks: str = "all",
    steps: str = "all",
    dir: str | os.PathLike[str] | None = None,
    run: str | None = None,
    limit_bytes: int | None = None,
    seconds: float | None = None,
) -> Path:
    """Switch a capture on, and return the directory of its run, which is made at the first record.

    select: what to capture, everything if None. ranks, steps: as in TPCAPTURE_RANKS and TPCAPTURE_STEPS, steps counted
    from now. dir: where runs go, TPCAPTURE_DIR if None; the run is a directory in it. run: the run's name, equal on all
    ranks; derived if None. limit_bytes, seconds: the capture ends by itself after so many bytes of records, or so long.

    ValueError: an argument does not parse. RuntimeError: a capture is on already, or TPCAPTURE=never.
    """
    where = None if dir is None else os.fspath(dir)
    return Path(_native.switch_on(where, select, ranks, steps, run, limit_bytes, seconds))


def off() -> str | None:
    """End the capture that is on, whoever switched it on, and return once it is sealed.

    What went wrong in it, or None; None as well where none was on.
    """
    return _native.switch_off("off")


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

    The arguments are those of `on()`. Everything is sealed when the block is left. A capture that was re-aimed from
    outside meanwhile goes on.
    """
    path = on(select, ranks=ranks, steps=steps, dir=dir, run=run)
    try:
        yield path
    finally:
        _native.switch_off("off", path)
