"""A loop of 1 ms steps that captures 1 MiB in each, beside the same loop while off."""

import statistics
import time
from collections.abc import Iterator

import torch
from figure import Figure, percentile, seconds
from stage import MIB, RING_BYTES, Capture, Tap, bench, capturing, load_floor, pinned, scratch, timed

import tpcapture

floor = load_floor()

STEP_S = 1e-3


class Work:
    """About 1 ms of matrix multiplication on one thread."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.a, self.out = torch.rand(128, 128), torch.empty(128, 128)
        self.n = 1
        spent = min(timed(Work.do, self) for _ in range(200))
        self.n = max(1, round(STEP_S / spent))

    def do(self) -> None:
        for _ in range(self.n):
            torch.mm(self.a, self.a, out=self.out)


def steps(n: int, work: Work, tap: Tap, tensor: torch.Tensor, capture: Capture | None) -> list[float]:
    """Seconds of each of n steps."""
    times = []
    for _ in range(n):
        start = time.perf_counter_ns()
        work.do()
        tap(tensor)
        tpcapture.step()
        times.append((time.perf_counter_ns() - start) * 1e-9)
    if capture:
        capture.n_records += n
        capture.drain()
    return times


def figures(quick: bool) -> Iterator[Figure]:
    work, tap = Work(), tpcapture.tap("step")
    tensor = torch.ones(MIB // 2, dtype=torch.bfloat16)
    warm = floor.warm_memory(RING_BYTES)
    n_turns, n = (2, 50) if quick else (10, 500)
    off: list[float] = []
    on: list[float] = []
    copies: list[float] = []
    with scratch() as directory:
        for _ in range(n_turns):
            with capturing(directory) as capture:
                on += steps(n, work, tap, tensor, capture)
            # On the core that the capture had.
            with pinned():
                off += steps(n, work, tap, tensor, None)
                copies += [floor.memcpy(warm + i * MIB, tensor.data_ptr(), MIB) * 1e-9 for i in range(256)]
    memcpy = statistics.median(copies)
    half_off, half_on = percentile(off, 50), percentile(on, 50)
    tail_off, tail_on = percentile(off, 99.9), percentile(on, 99.9)
    what = f"{len(on)} steps of 1 ms, 1 MiB captured in each:"
    yield Figure(
        f"{what} p50",
        seconds(half_on),
        "p50 while off + memcpy",
        f"{seconds(half_off)} + {seconds(memcpy)}",
        half_on / (half_off + memcpy),
        1.0,
    )
    yield Figure(
        f"{what} p99.9", seconds(tail_on), "p99.9 while off", seconds(tail_off), tail_on / tail_off, 2.0
    )


if __name__ == "__main__":
    bench(figures)
