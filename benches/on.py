"""The hook while on: the time it takes of the model's thread, beside memcpy of as many bytes."""

import random
import time
from collections.abc import Iterator

import torch
from figure import Figure, percentile, ratio, seconds
from stage import KIB, MIB, RING_BYTES, Capture, bench, capturing, load_floor, scratch

import tpcapture

floor = load_floor()

SIZES = (1, 4, 16, 64)  # MiB


class Copier:
    """memcpy into memory of the ring's size, touched before, from its beginning to its end and over again."""

    def __init__(self) -> None:
        self.start = floor.warm_memory(RING_BYTES)
        self.at = 0

    def cycled(self, tensor: torch.Tensor) -> float:
        """Seconds of memcpy by itself, the call from Python left out."""
        n_bytes = tensor.nbytes
        if self.at + n_bytes > RING_BYTES:
            self.at = 0
        nanoseconds = floor.memcpy(self.start + self.at, tensor.data_ptr(), n_bytes)
        self.at += n_bytes
        return nanoseconds * 1e-9

    def hot(self, tensor: torch.Tensor) -> float:
        """The same, always to the same place."""
        return floor.memcpy(self.start, tensor.data_ptr(), tensor.nbytes) * 1e-9


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


def fixed_cost(capture: Capture, quick: bool) -> Iterator[Figure]:
    """A small tensor, whose bytes cost nothing to speak of. The caller spins between calls: what is measured is the
    hook and not a core that has to wake up."""
    tap, tensor = tpcapture.tap("small"), torch.ones(KIB, dtype=torch.uint8)
    for pause_s, n in {20e-6: 20_000, 0.1: 100}.items():
        times = []
        for _ in range(n // 50 if quick else n):
            until = time.perf_counter() + pause_s
            while time.perf_counter() < until:
                pass
            times.append(capture.timed(tap, tensor))
        capture.drain()
        p50, p99 = percentile(times, 50), percentile(times, 99)
        yield Figure(
            f"on, caller's fixed cost: 1 KiB, every {seconds(pause_s)}",
            f"p50 {seconds(p50)}, p99 {seconds(p99)}",
            result=p50 * 1e6,
            at_most=3.0,
            unit="µs",
        )


def figures(quick: bool) -> Iterator[Figure]:
    with scratch() as directory, capturing(directory) as capture:
        yield from contiguous(capture, quick)
        yield from fixed_cost(capture, quick)


if __name__ == "__main__":
    bench(figures)
