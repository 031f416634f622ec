"""Two runs compared, beside memcmp over their files, an allclose loop in PyTorch and SGLang's comparator.

With as many threads as there are cores, and the files in the page cache. BENCH_GIB: how large a side
is, in GiB, a quarter if unset. SGLang's rows are left out where `sglang` is not installed.
"""

import contextlib
import functools
import importlib
import importlib.util
import io
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import torch
from figure import Figure, ratio
from safetensors import safe_open
from stage import GIB, KIB, MIB, bench, load_floor, scratch

import tpcapture

FLOOR = load_floor()
THREADS = len(os.sched_getaffinity(0))
WIDTH = 4096
# Of their size: what a matrix product in another order is off by.
NOISE = {torch.bfloat16: 2e-3, torch.float32: 1e-7}

Tensors = dict[str, torch.Tensor]


def record(directory: Path, tensors: Tensors) -> Path:
    """A run that holds these tensors."""
    with tpcapture.capturing(directory) as run:
        for name, tensor in tensors.items():
            tpcapture.capture(name, tensor)
        tpcapture.flush()
    return Path(run)


def segments(run: Path) -> list[Path]:
    """The files of a run that hold tensors."""
    return sorted(run.glob("*.safetensors"))


def drawn(dtype: torch.dtype, n_tensors: int, n_bytes: int) -> Tensors:
    """Tensors of about `n_bytes` in all."""
    rows = n_bytes // n_tensors // dtype.itemsize // WIDTH
    return {f"layers.{i}.out": torch.randn(rows, WIDTH).to(dtype) for i in range(n_tensors)}


def rounded(tensors: Tensors) -> Tensors:
    """The same, each number off by as much as rounding makes."""
    return {
        name: (x.float() * (1 + NOISE[x.dtype] * torch.randn(x.shape))).to(x.dtype)
        for name, x in tensors.items()
    }


def seconds_of(function: Callable[[], object]) -> float:
    """How long a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compared(a: Path, b: Path, verdict: str) -> float:
    """Seconds to compare two runs, of which that is to be found."""
    start = time.perf_counter()
    report = tpcapture.compare(a, b)
    seconds = time.perf_counter() - start
    assert report.verdict == verdict, report
    return seconds


def all_close(a: Path, b: Path) -> None:
    """What people write: every tensor of both runs through `allclose`."""
    for file_a, file_b in zip(segments(a), segments(b), strict=True):
        with safe_open(file_a, "pt") as x, safe_open(file_b, "pt") as y:
            for name in x.keys():  # noqa: SIM118  (no mapping)
                torch.allclose(x.get_tensor(name), y.get_tensor(name), rtol=1e-2, atol=1e-2)


def peak_above(work: Callable[[], object]) -> int:
    """The most anonymous memory that the work takes beyond what there is before: mapped files are not counted."""

    def anonymous() -> int:
        status = Path("/proc/self/status").read_text()
        return int(status.split("RssAnon:")[1].split()[0]) * KIB

    before, peak, done = anonymous(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(1e-3):
            peak = max(peak, anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return max(0, peak - before)


def dumped(directory: Path, tensors: Tensors) -> Path:
    """The tensors as SGLang's dumper writes them."""
    directory.mkdir()
    for i, (name, tensor) in enumerate(tensors.items()):
        file = f"forward_pass_id=0___rank=0___name={name}___dump_index={i}.pt"
        torch.save(tensor, directory / file)
    return directory


class Absent(ModuleType):
    """A module of which anything can be imported and nothing used."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


@functools.cache
def comparator() -> ModuleType | None:
    """SGLang's dump comparator, without the packages around it that need a server's dependencies."""
    found = importlib.util.find_spec("sglang")
    if found is None or found.origin is None:
        print("sglang is not installed: its comparator's rows are left out", file=sys.stderr)
        return None
    root = Path(found.origin).parent
    for name in ("sglang", "sglang.srt", "sglang.srt.debug_utils"):
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    # What the dumper, of which the comparator takes a helper, has of the server.
    for name in ("sglang.srt.utils", "sglang.srt.managers.io_struct", "sglang.srt.runtime_context"):
        sys.modules[name] = Absent(name)
    sys.modules["sglang.srt.utils"].get_device = lambda: "cpu"  # type: ignore[attr-defined]
    try:
        return importlib.import_module("sglang.srt.debug_utils.dump_comparator")
    except ImportError as error:
        print(f"sglang's comparator lacks something: {error}; its rows are left out", file=sys.stderr)
        return None


def sglang(directory: Path, a: Tensors, b: Tensors) -> float | None:
    """Seconds that SGLang's comparator takes for the same tensors; None where it is not there."""
    if (theirs := comparator()) is None:
        return None
    dumps = [dumped(directory / name, tensors) for name, tensors in (("a", a), ("b", b))]
    pairs = list(zip(*(sorted(dump.iterdir()) for dump in dumps), strict=True))
    with contextlib.redirect_stdout(io.StringIO()):
        return seconds_of(lambda: [theirs.check_tensor_pair(*pair) for pair in pairs])


def memcmp(a: Path, b: Path) -> float:
    """Seconds of memcmp over the files of two runs, mapping them included."""
    pairs = zip(segments(a), segments(b), strict=True)
    return sum(FLOOR.memcmp(x, y, THREADS) for x, y in pairs) * 1e-9


def runs(dtype: torch.dtype, n_tensors: int, n_bytes: int, rounds: int) -> Iterator[Figure]:
    """A run beside an equal one and one that is off by rounding."""
    case = f"{str(dtype).removeprefix('torch.')}, {n_tensors} x {n_bytes // n_tensors // MIB} MiB"
    with scratch() as directory:
        tensors = drawn(dtype, n_tensors, n_bytes)
        other = rounded(tensors)
        a, same, off = (record(directory, t) for t in (tensors, tensors, other))
        kinds: dict[str, Callable[[], float]] = {
            "memcmp": lambda: memcmp(a, same),
            "identical": lambda: compared(a, same, "IDENTICAL"),
            "differing": lambda: compared(a, off, "ROUNDING"),
            "allclose": lambda: seconds_of(lambda: all_close(a, off)),
        }
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(rounds):
            for kind, measure in kinds.items():
                times[kind].append(measure())
        peak = peak_above(lambda: compared(a, off, "ROUNDING")) / MIB
        theirs = sglang(directory, tensors, other)
    yield ratio(f"identical: {case}", times["identical"], "`memcmp`", times["memcmp"], 1.25)
    yield ratio(f"differing: {case}", times["differing"], "`memcmp`", times["memcmp"], 5.0)
    yield ratio(f"differing: {case}", times["differing"], "`torch.allclose`", times["allclose"], 0.2)
    if theirs is not None:
        yield ratio(f"differing: {case}", times["differing"], "SGLang", [theirs] * rounds, 0.05)
    yield Figure(f"memory: {case}", f"{peak:.1f} MiB", result=peak, at_most=256.0, unit="MiB")


def figures(quick: bool) -> Iterator[Figure]:
    torch.set_num_threads(THREADS)
    n_bytes = 16 * MIB if quick else int(float(os.environ.get("BENCH_GIB", "0.25")) * GIB)
    for dtype in (torch.bfloat16, torch.float32):
        for n_tensors in (16, 1):
            yield from runs(dtype, n_tensors, n_bytes, 2 if quick else 9)
    n_taps = 500 if quick else 20_000
    with scratch() as directory:
        tensors = {f"taps.{i}": torch.randn(512).bfloat16() for i in range(n_taps)}
        a, off = record(directory, tensors), record(directory, rounded(tensors))
        seconds = min(compared(a, off, "ROUNDING") for _ in range(3))
    yield Figure(f"{n_taps} taps of 1 KiB", f"{seconds:.2f} s", result=seconds, at_most=5.0, unit="s")


if __name__ == "__main__":
    bench(figures)
