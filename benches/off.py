"""The hook while off: calls beside a builtin that does nothing, and beside what people paste instead of it."""

import random
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import torch
from figure import Figure, ratio, seconds
from stage import bench, load_floor

import tpcapture

floor = load_floor()

# So many calls in a row in the source, so that the loop around them costs next to nothing.
UNROLLED = 20


class Model:
    """What the calls find around them: taps are attributes of a module, or globals."""

    def __init__(self) -> None:
        self._n = 0


class TorchModel(torch.nn.Module):
    """The same as a torch module, whose attributes go through nn.Module.__setattr__."""

    def __init__(self) -> None:
        super().__init__()
        self._n = 0


BODIES = {
    "nothing('x', t)": "nothing('x', t)",
    "capture('x', t)": "capture('x', t)",
    "nothing(t)": "bound_nothing(t)",
    "tap(t)": "tap(t)",
    "capture, f-string": "capture(f'layers.{i}.attn.q', t)",
    "capture, placement": "capture('x', t, placement='S(1)')",
    "nothing, placement": "nothing('x', t, placement='S(1)')",
    "counter, nn.Module": "module._n += 1",
    "counter, plain object": "model._n += 1",
    "step()": "step()",
}


def loop(body: str) -> Callable[[int], float]:
    """A function of a number of rounds: seconds of one execution of the body in them."""
    source = "def timed(n, t, i, model, module):\n    start = clock()\n    for _ in range(n):\n"
    source += f"        {body}\n" * UNROLLED
    source += f"    return (clock() - start) * 1e-9 / n / {UNROLLED}\n"
    tap = tpcapture.tap("x")
    names: dict[str, Any] = {
        "clock": time.perf_counter_ns,
        "capture": tpcapture.capture,
        "step": tpcapture.step,
        "tap": tap,
        "nothing": floor.nothing,
        "bound_nothing": floor.bound_nothing(tap.__self__),
    }
    exec(source, names)
    tensor, model, module = torch.zeros(5, 128), Model(), TorchModel()
    return lambda n: names["timed"](n, tensor, 17, model, module)


def figures(quick: bool) -> Iterator[Figure]:
    loops = {name: loop(body) for name, body in BODIES.items()}
    times: dict[str, list[float]] = {name: [] for name in loops}
    order = list(loops)
    for _ in range(20 if quick else 1000):
        random.shuffle(order)
        for name in order:
            times[name].append(loops[name](50))

    capture, tap = times["capture('x', t)"], times["tap(t)"]
    yield ratio(
        'off: `capture("x", t)`', capture, "a builtin that does nothing", times["nothing('x', t)"], 1.10
    )
    yield ratio("off: `tap(t)`", tap, "a builtin that does nothing", times["nothing(t)"], 1.10)
    yield ratio(
        'off: `capture("x", t, placement="S(1)")`',
        times["capture, placement"],
        "a builtin that does nothing",
        times["nothing, placement"],
        1.10,
    )
    counter = "`self._n += 1`, the counter of an ad-hoc block in a torch module"
    yield ratio('off: `capture("x", t)`', capture, counter, times["counter, nn.Module"], 1.0)
    yield ratio("off: `tap(t)`", tap, counter, times["counter, nn.Module"], 1.0)
    yield ratio("off: `tap(t)`", tap, "`self._n += 1` of a plain object", times["counter, plain object"])
    built = times["capture, f-string"]
    yield ratio('off: `capture(f"layers.{i}.attn.q", t)`', built, "`tap(t)`", tap)
    yield Figure("off: `step()`", seconds(median(times["step()"])))


if __name__ == "__main__":
    bench(figures)
