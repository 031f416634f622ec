"""How much memory a capture takes beside its ring."""

from collections.abc import Iterator
from pathlib import Path

import torch
from figure import Figure
from stage import GIB, MIB, RING_BYTES, bench, capturing, scratch

import tpcapture


def resident(key: str) -> int:
    """VmRSS, or VmHWM, the most there was, of this process in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def figures(quick: bool) -> Iterator[Figure]:
    n_bytes = GIB // 2 if quick else 4 * GIB
    sizes = [64 * MIB, MIB]
    tensors = [torch.ones(size // 2, dtype=torch.bfloat16) for size in sizes]
    tap = tpcapture.tap("memory")
    with scratch() as directory:
        Path("/proc/self/clear_refs").write_text("5")  # VmHWM begins anew
        before = resident("VmRSS")
        with capturing(directory) as capture:
            for tensor in tensors:
                for i in range(n_bytes // 2 // tensor.nbytes):
                    capture.timed(tap, tensor)
                    tpcapture.step()
                    if i % 64 == 0:
                        capture.drain()
            capture.drain()
            above = resident("VmHWM") - before - RING_BYTES
    yield Figure(
        f"memory above the ring, {n_bytes / GIB:g} GiB captured",
        f"{above / MIB:.1f} MiB",
        result=above / MIB,
        at_most=32.0,
        unit="MiB",
    )


if __name__ == "__main__":
    bench(figures)
