"""What the hook costs the model's thread, beside its floor and beside torch.save.

    python benches/hook.py

Off: nanoseconds a call, beside a builtin that does nothing. On: microseconds a tensor until the model may go on, beside
a copy in memory and beside torch.save of the same tensor into the same folder; and the rate at which the disk gets it.
Each time is the best of several, as other work on the machine only ever adds.
"""

import tempfile
import timeit
from collections.abc import Callable
from pathlib import Path

import torch

import tpcapture

REPEATS = 7


def best(call: Callable[[], object], number: int) -> float:
    """Seconds a call, the loop around it included."""
    return min(timeit.repeat(call, number=number, repeat=REPEATS)) / number


def best_of_text(text: str, names: dict[str, object], number: int) -> float:
    """Seconds a run of `text`, the bare loop left out."""
    empty = min(timeit.repeat("pass", number=number, repeat=REPEATS))
    return (min(timeit.repeat(text, globals=names, number=number, repeat=REPEATS)) - empty) / number


def off() -> None:
    names = {"x": torch.ones(5, 128), "i": 17, "tap": tpcapture.tap("layers.17.q"), "tpcapture": tpcapture}
    rows = [
        ("callable(x), a builtin that does nothing", "callable(x)"),
        ("tap(x)", "tap(x)"),
        ("tpcapture.capture('layers.17.q', x)", "tpcapture.capture('layers.17.q', x)"),
        ("tpcapture.capture(f'layers.{i}.q', x)", "tpcapture.capture(f'layers.{i}.q', x)"),
        ("tpcapture.step()", "tpcapture.step()"),
    ]
    print("off                                               ns/call")
    for label, text in rows:
        print(f"  {label:44} {1e9 * best_of_text(text, names, 1_000_000):10.1f}")


def on(folder: Path) -> None:
    tap = tpcapture.tap("q")
    print("\non, bf16                 us/tensor: clone        tap torch.save    to disk, MB/s")
    for n_bytes in (1 << 10, 1 << 16, 1 << 20, 1 << 24):
        x = torch.randn(n_bytes // 2 // 128, 128).to(torch.bfloat16)
        # All repeats of a size fit the ring, so that this is the copy into it and not the disk.
        number = max(1, min(200, (64 << 20) // n_bytes // REPEATS))
        clone = best(x.clone, number)
        save = best(lambda x=x: torch.save(x, folder / "x.pt"), number)
        with tpcapture.capturing(folder, run=f"run{n_bytes}"):
            tpcapture.step()
            tap(x)  # the first one starts the writer
            tpcapture.flush()
            staged = best(lambda x=x: tap(x), number)
            tpcapture.flush()
            written = min(timeit.repeat(lambda x=x: (tap(x), tpcapture.flush()), number=1, repeat=REPEATS))
            lost = tpcapture.status()["counters"]["lost"]
        assert lost == 0, f"{lost} records lost: the figures are not of whole captures"
        times = f"{1e6 * clone:10.1f} {1e6 * staged:10.1f} {1e6 * save:10.1f}"
        print(f"  {n_bytes >> 10:8} KiB                   {times} {n_bytes / written / 1e6:15.0f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    off()
    with tempfile.TemporaryDirectory(prefix="tpcapture-bench-") as name:
        on(Path(name))
