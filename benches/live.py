"""Processes switched from outside: how soon they capture, what looking at them takes among a thousand others, and what
waiting for a first step costs.

A command's time is that of the whole process, Python and the search through /proc included.
"""

import contextlib
import json
import random
import signal
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figure import Figure, percentile, ratio, seconds
from stage import bench, scratch

import tpcapture

WORLD, OTHERS = 8, 1000
COMMAND = Path(sysconfig.get_path("scripts")) / "tpcapture"

# Steps of a millisecond, none before all ranks have made the one before, until stdin ends.
RANK = """
import sys, threading, time, numpy as np, tpcapture
rank, passes = int(sys.argv[1]), np.memmap(sys.argv[2], np.int64, "r+")
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
tap, x = tpcapture.tap("layers.0.q", placement="R"), np.zeros(1024, np.float32)
while not over.is_set():
    tpcapture.step()
    tap(x)
    time.sleep(0.001)
    passes[rank] += 1
    while not over.is_set() and passes.min() < passes[rank]: time.sleep(0.0001)
"""


def command(*arguments: str) -> Any:
    """What `tpcapture … --json` says."""
    done = subprocess.run([COMMAND, *arguments, "--json"], stdout=subprocess.PIPE, check=False)
    assert done.returncode in (0, 1), arguments
    return json.loads(done.stdout)


@contextlib.contextmanager
def job(directory: Path) -> Iterator[list[str]]:
    """Ranks that make steps; the value is the options of a command that is for them alone."""
    path = directory / "passes"
    passes = np.memmap(path, np.int64, "w+", shape=WORLD)
    ranks = []
    with contextlib.ExitStack() as stack:
        for rank in range(WORLD):
            env = {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "TPCAPTURE_RING": "16MiB"}
            line = [sys.executable, "-c", RANK, str(rank), str(path)]
            process = stack.enter_context(subprocess.Popen(line, env=env, stdin=subprocess.PIPE))
            ranks.append(process)
            stack.callback(process.stdin.close)  # type: ignore[union-attr]
        while passes.min() < 10:
            time.sleep(0.01)
        yield [option for rank in ranks for option in ("--pid", str(rank.pid))]


@contextlib.contextmanager
def others(n: int) -> Iterator[None]:
    """Processes that have nothing to do with it."""
    sleeping = [subprocess.Popen(["sleep", "inf"]) for _ in range(n)]
    try:
        yield
    finally:
        for process in sleeping:
            process.send_signal(signal.SIGKILL)
        for process in sleeping:
            process.wait()


def first_records(directory: Path, ranks: Sequence[str], n: int) -> list[float]:
    """Seconds from calling `on` to the first record of the rank that is last."""
    found = []
    for i in range(n):
        called = time.time_ns()
        command("on", "--steps", "1", "--wait", "--dir", str(directory), "--run", f"run-{i}", *ranks)
        [point] = tpcapture.open(directory / f"run-{i}")
        assert len(point.records) == WORLD, point
        found.append(max(record.time_ns - called for record in point.records) * 1e-9)
    return found


def times(directory: Path, ranks: Sequence[str], n: int) -> dict[str, list[float]]:
    """Seconds of `ps` and of `on`, in turns."""
    found: dict[str, list[float]] = {"ps": [], "on": []}
    for i in range(n):
        start = time.perf_counter()
        command("ps")
        between = time.perf_counter()
        command("on", "--steps", "1", "--dir", str(directory), "--run", f"among-{i}", *ranks)
        found["ps"].append(between - start)
        found["on"].append(time.perf_counter() - between)
        command("off", "--wait", *ranks)
    return found


def step_times(directory: Path, n_turns: int, n: int) -> dict[str, list[float]]:
    """Seconds of a step of 32 taps, off and with a capture that begins at a step which is never reached."""
    taps, x, step = [tpcapture.tap(f"layers.{i}.q") for i in range(32)], np.zeros(1024), tpcapture.step
    found: dict[str, list[float]] = {"off": [], "armed": []}
    for _ in range(n_turns):
        for name in random.sample(sorted(found), 2):
            if name == "armed":
                tpcapture.on(steps=f"{10**12}-{10**12 + 1}", dir=directory)
                step()
                assert tpcapture.status()["state"] == "armed"
            start = time.perf_counter()
            for _ in range(n):
                step()
                for tap in taps:
                    tap(x)
            found[name].append((time.perf_counter() - start) / n)
            tpcapture.off()
    return found


def limited(what: str, taken: Sequence[float], at_most: float) -> Figure:
    spread = f"{percentile(taken, 10) * 1e3:.0f} to {percentile(taken, 90) * 1e3:.0f}"
    middle = statistics.median(taken)
    return Figure(what, seconds(middle), result=middle * 1e3, at_most=at_most * 1e3, unit="ms", spread=spread)


def figures(quick: bool) -> Iterator[Figure]:
    n = 3 if quick else 20
    with scratch() as directory:
        steps = step_times(directory, n, 100 if quick else 10_000)
        yield ratio("a step of 32 taps, armed and waiting", steps["armed"], "off", steps["off"], 1.05)
        with job(directory) as ranks:
            first = first_records(directory, ranks, n)
            yield limited(f"`on`, {WORLD} ranks, steps of 1 ms: until the first record", first, 0.1)
            n_others = 50 if quick else OTHERS
            with others(n_others):
                for name, taken in times(directory, ranks, n).items():
                    yield limited(f"`{name}`, {WORLD} ranks among {n_others} other processes", taken, 0.2)


if __name__ == "__main__":
    bench(figures)
