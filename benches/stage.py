"""What a bench needs around what it measures: the floor module, a core of its own, and a capture whose writer can be
waited for.

A bench is a process of its own, started by run.py: switching captures on and pinning threads are matters of a process.
"""

import argparse
import contextlib
import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from figure import Figure

import tpcapture

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
RING_BYTES = 256 * MIB  # TPCAPTURE_RING's default

Tap = Callable[[Any], None]


def load_floor() -> ModuleType:
    """The module of benches/src/lib.rs, from where run.py built it."""
    loader = importlib.machinery.ExtensionFileLoader("floor", os.environ["BENCH_FLOOR"])
    spec = importlib.util.spec_from_loader("floor", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def bench(figures: Callable[[bool], Iterable[Figure]]) -> None:
    """A bench's main: its figures as lines of JSON."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds of small work")
    for figure in figures(parser.parse_args().quick):
        print(figure.as_json(), flush=True)


def timed(function: Callable[[Any], Any], argument: Any) -> float:
    """Seconds of one call."""
    start = time.perf_counter_ns()
    function(argument)
    return (time.perf_counter_ns() - start) * 1e-9


class Copier:
    """memcpy into memory of the ring's size, touched before, from its beginning to its end and over again."""

    def __init__(self) -> None:
        self.floor = load_floor()
        self.start = self.floor.warm_memory(RING_BYTES)
        self.at = 0

    def cycled(self, tensor: Any) -> float:
        """Seconds of memcpy by itself, the call from Python left out."""
        n_bytes = tensor.nbytes
        if self.at + n_bytes > RING_BYTES:
            self.at = 0
        nanoseconds = self.floor.memcpy(self.start + self.at, tensor.data_ptr(), n_bytes)
        self.at += n_bytes
        return nanoseconds * 1e-9

    def hot(self, tensor: Any) -> float:
        """The same, always to the same place."""
        return self.floor.memcpy(self.start, tensor.data_ptr(), tensor.nbytes) * 1e-9


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A directory on the disk that TMPDIR names, deleted in the end."""
    path = Path(tempfile.mkdtemp(prefix="tpcapture-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


class Capture:
    """A capture of everything, whose caller has one core and whose writer the others, where there are several."""

    def __init__(self) -> None:
        self.n_records = 0

    def timed(self, tap: Tap, tensor: Any) -> float:
        """Seconds of one call of the tap."""
        self.n_records += 1
        return timed(tap, tensor)

    def drain(self) -> None:
        """Returns once the writer has written all that was captured, so that it is at rest while others are timed."""
        while True:
            status = tpcapture.status()
            assert not status["losses"], status["losses"]
            assert status["end_reason"] is None, status["end_reason"]
            if status["counters"]["records"] == self.n_records:
                return
            time.sleep(1e-4)


@contextlib.contextmanager
def pinned() -> Iterator[set[int]]:
    """Keeps this thread on one core; the value is the others, or that one where it is alone."""
    cores = os.sched_getaffinity(0)
    first = {min(cores)}
    os.sched_setaffinity(0, first)
    try:
        yield cores - first or first
    finally:
        os.sched_setaffinity(0, cores)


@contextlib.contextmanager
def capturing(directory: Path, select: str = "*") -> Iterator[Capture]:
    """Captures the tap `first` and what is selected into that directory; the run is deleted afterwards."""
    capture = Capture()
    with pinned() as others, tpcapture.capturing(directory, select=f"first,{select}") as run:
        # The writer starts with the first record, on the cores of the thread that starts it.
        mine = os.sched_getaffinity(0)
        os.sched_setaffinity(0, others)
        capture.timed(tpcapture.tap("first"), np.zeros(1, np.uint8))
        capture.drain()
        os.sched_setaffinity(0, mine)
        yield capture
    shutil.rmtree(run)
