"""The hook while on, beside what people write tensors with: torch.save and safetensors."""

import random
from collections.abc import Callable, Iterator

import safetensors.torch
import torch
from figure import Figure, ratio
from stage import MIB, Copier, bench, capturing, scratch, timed

import tpcapture

AT_MOST = {4: 0.2, 64: 0.3}  # by MiB


def figures(quick: bool) -> Iterator[Figure]:
    tap, copier = tpcapture.tap("peers"), Copier()
    with scratch() as directory, capturing(directory) as capture:
        path = directory / "dump"
        savers: dict[str, Callable[[torch.Tensor], None]] = {
            "torch.save": lambda tensor: torch.save(tensor, path),
            "safetensors.torch.save_file": lambda tensor: safetensors.torch.save_file({"x": tensor}, path),
        }
        for n_mib in (4,) if quick else (4, 64):
            tensor = torch.ones(n_mib * MIB // 2, dtype=torch.bfloat16)
            times: dict[str, list[float]] = {name: [] for name in ("tap", "memcpy", *savers)}
            for _ in range(3 if quick else 400 // n_mib + 15):
                for name in random.sample(sorted(times), len(times)):
                    if name == "tap":
                        times[name].append(capture.timed(tap, tensor))
                        capture.drain()
                    elif name == "memcpy":
                        times[name].append(copier.cycled(tensor))
                    else:
                        times[name].append(timed(savers[name], tensor))
                        path.unlink()
            for name in savers:
                what = f"on, caller's time: {n_mib} MiB contiguous"
                yield ratio(what, times["tap"], f"`{name}`", times[name], AT_MOST[n_mib])
                yield ratio(f"`memcpy` alone: {n_mib} MiB", times["memcpy"], f"`{name}`", times[name])


if __name__ == "__main__":
    bench(figures)
