"""The hook while on: the time it takes of the model's thread, beside memcpy of as many bytes."""

import random
import time
from collections.abc import Callable, Iterator

import torch
from figure import Figure, percentile, ratio, seconds
from stage import KIB, MIB, Capture, Copier, bench, capturing, scratch, timed

import tpcapture

SIZES = (1, 4, 16, 64)  # MiB


def contiguous(capture: Capture, quick: bool) -> Iterator[Figure]:
    tap, copier = tpcapture.tap("contiguous"), Copier()
    for n_mib in SIZES[:2] if quick else SIZES:
        tensor = torch.ones(n_mib * MIB // 2, dtype=torch.bfloat16)
        times: dict[str, list[float]] = {"tap": [], "cycled": [], "hot": []}
        for _ in range(3 if quick else max(25, min(400, 2048 // n_mib))):
            for name in random.sample(sorted(times), 3):
                if name == "tap":
                    times[name].append(capture.timed(tap, tensor))
                    capture.drain()
                else:
                    times[name].append(getattr(copier, name)(tensor))
        what = f"on, caller's time: {n_mib} MiB contiguous"
        yield ratio(what, times["tap"], "memcpy into warm memory", times["cycled"], 1.15)
        yield ratio(what, times["tap"], "memcpy into one hot buffer", times["hot"])


def bursts(call: Callable[[], float], pause_s: float, n_bursts: int, n: int) -> Iterator[list[float]]:
    """Bursts of n calls, and what each takes. Between them the thread spins: what is measured is the hook and not a
    core that has to wake up."""
    for _ in range(n_bursts):
        until = time.perf_counter() + pause_s
        while time.perf_counter() < until:
            pass
        yield [call() for _ in range(n)]


def fixed_cost(capture: Capture, quick: bool) -> Iterator[Figure]:
    """A small tensor, whose bytes cost nothing to speak of."""
    tap, tensor = tpcapture.tap("small"), torch.ones(KIB, dtype=torch.uint8)
    calls = {"tap": lambda: capture.timed(tap, tensor), "clone": lambda: timed(torch.clone, tensor)}
    n_often, n_rarely = (400, 3) if quick else (20_000, 100)
    often, first, later = {}, {}, {}
    for name, call in calls.items():
        often[name] = [times[0] for times in bursts(call, 20e-6, n_often, 1)]
        rarely = list(bursts(call, 0.1, n_rarely, 10))
        first[name] = [times[0] for times in rarely]
        later[name] = [t for times in rarely for t in times[1:]]
    capture.drain()
    for when, times in {
        "every 20 µs": often,
        "every 100 ms, the first of ten": first,
        "every 100 ms, the others of the ten": later,
    }.items():
        texts = {
            name: f"p50 {seconds(percentile(taken, 50))}, p99 {seconds(percentile(taken, 99))}"
            for name, taken in times.items()
        }
        p50 = percentile(times["tap"], 50) * 1e6
        what = f"on, caller's fixed cost: 1 KiB, {when}"
        yield Figure(what, texts["tap"], "`Tensor.clone()` in its place", texts["clone"], p50, 3.0, "µs")


def figures(quick: bool) -> Iterator[Figure]:
    with scratch() as directory:
        with capturing(directory, "contiguous") as capture:
            yield from contiguous(capture, quick)
        with capturing(directory, "small") as capture:
            yield from fixed_cost(capture, quick)


if __name__ == "__main__":
    bench(figures)
