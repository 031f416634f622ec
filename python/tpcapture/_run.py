"""Reading a run: `open(path)["layers.0.attn.q", 12].ranks[3].numpy()`."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpcapture import _native
from tpcapture._dtype import NAMES, SUB_BYTE_BITS, numpy_dtype, unpacked

if TYPE_CHECKING:
    import numpy
    import torch


def _ranges(numbers: Iterable[int]) -> str:
    """`0-3,7` of numbers in any order."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _named(what: str, numbers: Iterable[int | None]) -> str:
    """`rank 3`, `ranks 0-3`, `ranks 0,?`: None is unknown."""
    distinct = set(numbers)
    parts = [_ranges(n for n in distinct if n is not None), "?" if None in distinct else ""]
    return f"{what}{'s' if len(distinct) != 1 else ''} {','.join(filter(None, parts)) or 'none'}"


class _Ranks(dict[int | None, "Record"]):
    """Records by rank; a KeyError says which there are."""

    def __missing__(self, rank: object) -> "Record":
        verb = "is" if len(self) == 1 else "are"
        raise KeyError(f"no record of rank {rank}; there {verb} {_named('rank', self)}")


@dataclass(frozen=True)
class Record:
    """One tensor captured on one rank."""

    tap: str
    step: int
    abs_step: int
    call: int
    seq: int
    time_ns: int
    placement: str | None
    rows: int | None
    full_rows: int | None
    strides: list[int]
    device: str
    encoding: str | None
    crc32: int | None
    """None where only statistics or a hash were kept."""
    dtype: str
    """safetensors' name: BF16, F8_E4M3, …"""
    shape: list[int]
    """As stored: packed dtypes in elements, complex128 with a trailing 2."""
    rank: int | None
    """Global rank; None is unknown."""
    world: int | None
    mesh: dict[str, tuple[int, int]]
    """Coordinate and size by dimension."""
    process: str
    mode: str
    """How much was kept: full, stats or hash."""
    stats: dict[str, Any] | None
    """n, nan, pos_inf, neg_inf, zero and, of the finite numbers, min, max, mean, rms and absmax."""
    hash: str | None
    """16 hex digits; equal hashes of one dtype and shape are equal bytes."""
    _run: _native.Run = field(repr=False, compare=False)
    _number: int = field(repr=False, compare=False)
    _mmap: bool = field(repr=False, compare=False)

    def __repr__(self) -> str:
        """Which one it is, its dtype and shape."""
        call = f", call {self.call}" if self.call else ""
        rank = "?" if self.rank is None else self.rank
        mode = "" if self.mode == "full" else f", only {self.mode}"
        return f"Record({self.tap!r}, step {self.step}{call}, rank {rank}, {self.dtype} {self.shape}{mode})"

    def _expect_bytes(self) -> None:
        if self.mode != "full":
            kept = "statistics were" if self.mode == "stats" else "a hash was"
            raise ValueError(f"of tap {self.tap!r} only {kept} kept: see its .{self.mode}")

    def bytes(self) -> bytearray:
        """The record's bytes: little-endian, C-ordered, copied.

        OSError where they cannot be read, ValueError where only statistics or a hash were kept.
        """
        self._expect_bytes()
        return self._run.read(self._number)

    def numpy(self) -> "numpy.ndarray[Any, Any]":
        """The tensor as a NumPy array.

        A read-only view of the file where the run is mapped and elements are whole bytes, a copy otherwise. bf16, fp8,
        fp6 and fp4 are ml_dtypes' (ImportError where that package is missing); fp6 and fp4 are unpacked to one element
        per byte, as ml_dtypes has them.
        """
        self._expect_bytes()
        try:
            import numpy as np
        except ImportError as error:
            raise ImportError(
                "numpy() needs the package numpy: pip install 'tpcapture[numpy]', or use .torch()"
            ) from error

        is_complex128 = self.encoding == "complex128"
        dtype = np.dtype("complex128") if is_complex128 else numpy_dtype(self.dtype)
        shape = self.shape[:-1] if is_complex128 else self.shape
        if self.dtype in SUB_BYTE_BITS:
            return unpacked(self.bytes(), SUB_BYTE_BITS[self.dtype]).view(dtype).reshape(shape)
        path, offset, length = self._run.place(self._number)
        if self._mmap and length > 0:
            # A plain array: a memmap would pass its class on to everything computed from it.
            mapped = np.memmap(path, mode="r", dtype=np.uint8, offset=offset, shape=(length,))
            return np.asarray(mapped).view(dtype).reshape(shape)
        return np.frombuffer(self.bytes(), dtype=np.uint8).view(dtype).reshape(shape)

    def torch(self) -> "torch.Tensor":
        """The tensor as a torch tensor on the CPU, copied.

        fp4 is torch's `float4_e2m1fn_x2`, two elements in one. TypeError where torch has no such dtype (fp6), or an odd
        last dimension of fp4.
        """
        self._expect_bytes()
        try:
            import torch
        except ImportError as error:
            raise ImportError(
                "torch() needs the package torch: pip install torch, or use .numpy()"
            ) from error

        name, shape = NAMES[self.dtype], self.shape
        if self.encoding == "complex128":
            name, shape = "complex128", shape[:-1]
        elif self.dtype == "F4":
            if shape[-1] % 2:
                raise TypeError(f"torch has fp4 in pairs along the last dimension, found the shape {shape}")
            name, shape = "float4_e2m1fn_x2", [*shape[:-1], shape[-1] // 2]
        dtype = getattr(torch, name, None)
        if dtype is None:
            raise TypeError(f"torch {torch.__version__} has no dtype for {self.dtype}")
        if 0 in shape:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(self.bytes(), dtype=torch.uint8).view(dtype).reshape(shape)


@dataclass(frozen=True)
class Point:
    """What one tap captured at one call of one step, on all ranks."""

    tap: str
    step: int
    call: int
    records: list[Record]
    """More than one of a rank where its process was restarted."""

    def __repr__(self) -> str:
        """Which one it is, and the ranks it is of."""
        call = f", call {self.call}" if self.call else ""
        ranks = _named("rank", (record.rank for record in self.records))
        return f"Point({self.tap!r}, step {self.step}{call}, {ranks})"

    @property
    def ranks(self) -> dict[int | None, Record]:
        """The records by global rank, of several of one rank the latest; None is an unknown rank."""
        ordered = sorted(self.records, key=lambda record: record.time_ns)
        return _Ranks((record.rank, record) for record in ordered)


class Run:
    """An open run: `run[tap]`, `run[tap, step]` or `run[tap, step, call]` is a `Point`."""

    def __init__(self, path: str | os.PathLike[str], *, mmap: bool = True) -> None:
        """See `open`."""
        native = _native.Run(os.fspath(path), mmap)
        self.path = Path(native.path)
        """The run directory."""
        self.errors: list[tuple[str, str]] = [(str(file), reason) for file, reason in native.errors()]
        """Files that could not be read, wholly or in part, and why."""
        self.manifests: dict[str, dict[str, Any]] = {
            process: json.loads(text) for process, text in native.manifests()
        }
        """By process."""
        self._points: dict[tuple[str, int, int], Point] = {}
        for number, known in enumerate(native.records()):
            record = Record(**known, _run=native, _number=number, _mmap=mmap)
            key = (record.tap, record.step, record.call)
            self._points.setdefault(key, Point(*key, [])).records.append(record)

    @property
    def taps(self) -> list[str]:
        """The taps, in capture order."""
        return list(dict.fromkeys(tap for tap, _, _ in self._points))

    @property
    def steps(self) -> list[int]:
        """The steps that captured anything."""
        return sorted({step for _, step, _ in self._points})

    def __repr__(self) -> str:
        """How much is in it."""
        ranks = len({record.rank for point in self for record in point.records})
        counts = [
            f"{n} {what}{'s' if n != 1 else ''}" for n, what in ((ranks, "rank"), (len(self.taps), "tap"))
        ]
        return f"Run({str(self.path)!r}, {', '.join(counts)}, {_named('step', self.steps)})"

    def __iter__(self) -> Iterator[Point]:
        """All points, in capture order."""
        return iter(self._points.values())

    def __len__(self) -> int:
        """How many points there are."""
        return len(self._points)

    def __getitem__(self, key: str | tuple[str, int] | tuple[str, int, int]) -> Point:
        """The point of a tap, step (its first if left out) and call (0 if left out). KeyError says what there is."""
        tap, step, call = (*key, *(None, None, 0)[len(key) :]) if isinstance(key, tuple) else (key, None, 0)
        steps = sorted({s for t, s, _ in self._points if t == tap})
        if not steps:
            raise KeyError(f"no tap {tap!r} in {self.path}; its taps are {self.taps[:20]}")
        point = self._points.get((tap, steps[0] if step is None else step, call))
        if point is None:
            raise KeyError(f"tap {tap!r} has no call {call} in step {step}; its steps are {steps[:20]}")
        return point


def open(path: str | os.PathLike[str], *, mmap: bool = True) -> Run:
    """Open a run directory, or a directory that holds one run.

    mmap: map the files rather than read them; say False on network file systems. Files that cannot be read are listed
    in `errors`, the rest is there. OSError where there is no run.
    """
    return Run(path, mmap=mmap)
