"""The hook while on, for tensors that are not contiguous, beside torch's own packing on one thread."""

import random
from collections.abc import Iterator

import torch
from figure import Figure, ratio
from stage import Capture, bench, capturing, scratch, timed

import tpcapture


def layouts(n: int) -> dict[str, torch.Tensor]:
    """Tensors of n by n bf16 items."""
    return {
        "transposed": torch.ones(n, n, dtype=torch.bfloat16).T,
        "columns of a wider matrix": torch.ones(n, 3 * n, dtype=torch.bfloat16)[:, n : 2 * n],
        "heads before tokens": torch.ones(n, n // 128, 128, dtype=torch.bfloat16).transpose(0, 1),
    }


def compared(capture: Capture, name: str, tensor: torch.Tensor, quick: bool) -> Iterator[Figure]:
    tap, warm = tpcapture.tap(name), tensor.contiguous()
    times: dict[str, list[float]] = {"tap": [], "contiguous": [], "copy": []}
    for _ in range(3 if quick else max(30, (2 << 30) // tensor.nbytes // 4)):
        for way in random.sample(sorted(times), 3):
            if way == "tap":
                times[way].append(capture.timed(tap, tensor))
                capture.drain()
            elif way == "contiguous":
                times[way].append(timed(torch.Tensor.contiguous, tensor))
            else:
                times[way].append(timed(warm.copy_, tensor))
    n_mib = tensor.nbytes >> 20
    what = f"on, caller's time: {n_mib} MiB bf16, {name}"
    at_most = 1.0 if name == "transposed" else None
    yield ratio(what, times["tap"], "`Tensor.contiguous()`, one thread", times["contiguous"], at_most)
    yield ratio(what, times["tap"], "`Tensor.copy_()` into warm memory", times["copy"])


def figures(quick: bool) -> Iterator[Figure]:
    torch.set_num_threads(1)
    with scratch() as directory, capturing(directory) as capture:
        for n in (1024,) if quick else (1024, 4096):
            for name, tensor in layouts(n).items():
                yield from compared(capture, name, tensor, quick)


if __name__ == "__main__":
    bench(figures)
