"""Full capture at the disk's pace, beside write(2) of the same bytes to the same disk. Both end in fsync."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from figure import Figure, ratio
from stage import MIB, RING_BYTES, bench, scratch

import tpcapture

PIECE = MIB


def captured(directory: Path, tensor: torch.Tensor, n: int) -> float:
    """Seconds from switching on until n records are sealed."""
    tap = tpcapture.tap("sustained")
    start = time.perf_counter()
    with tpcapture.capturing(directory) as run:
        for _ in range(n):
            tap(tensor)
            tpcapture.step()
    spent = time.perf_counter() - start
    status = tpcapture.status()
    assert status["counters"]["bytes"] == n * tensor.nbytes, status
    shutil.rmtree(run)
    return spent


def written(directory: Path, tensor: torch.Tensor, n: int) -> float:
    """Seconds of write(2) of as many bytes in pieces of 1 MiB, and one fsync."""
    pieces = memoryview(tensor.view(torch.uint8).numpy())
    path = directory / "written"
    start = time.perf_counter()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    for _ in range(n):
        for at in range(0, len(pieces), PIECE):
            assert os.write(fd, pieces[at : at + PIECE]) == PIECE
    os.fsync(fd)
    os.close(fd)
    spent = time.perf_counter() - start
    path.unlink()
    return spent


def figures(quick: bool) -> Iterator[Figure]:
    n_mib, n = (4, 8) if quick else (16, 64)
    tensor = torch.ones(n_mib * MIB // 2, dtype=torch.bfloat16)
    ways = {"captured": captured, "written": written}
    times: dict[str, list[float]] = {name: [] for name in ways}
    with scratch() as directory:
        for turn in range(2 if quick else 6):
            for name in sorted(ways, reverse=turn % 2 == 1):
                # Has the kernel, and where this is a virtual machine its host, bring up the memory for the files and
                # the ring; what is free for seconds may be taken away again.
                written(directory, tensor, n + RING_BYTES // tensor.nbytes)
                times[name].append(ways[name](directory, tensor, n))
    what = f"sustained full capture: {n * n_mib / 1024:.3g} GiB in records of {n_mib} MiB"
    against = "write(2) in pieces of 1 MiB, one fsync"
    yield ratio(what, times["captured"], against, times["written"], 1.2)


if __name__ == "__main__":
    bench(figures)
