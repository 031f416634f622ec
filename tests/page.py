"""A process's control page, read and written as docs/control-page.md says and by nothing else of this project.

The twin of the Rust half: what the two do not agree on, one of them or the documentation has wrong.
"""

import fcntl
import json
import mmap
import os
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

F_GET_SEALS, SHRINK_AND_GROW = 1034, 0x2 | 0x4
NEVER = 2**64 - 1


class Page:
    """The page of the process `pid`."""

    def __init__(self, pid: int) -> None:
        [path] = [
            link
            for link in Path(f"/proc/{pid}/fd").iterdir()
            if os.path.lexists(link) and _target(link) == "/memfd:tpcapture (deleted)"
        ]
        self.file = path.open("r+b", buffering=0)
        assert os.fstat(self.file.fileno()).st_size == 65536
        seals = fcntl.fcntl(self.file.fileno(), F_GET_SEALS)
        assert seals & SHRINK_AND_GROW == SHRINK_AND_GROW
        self.map = mmap.mmap(self.file.fileno(), 65536)
        assert self.map[:8] == b"TPCAPTUR"
        assert struct.unpack("<II", self.map[8:16]) == (2, pid)

    def close(self) -> None:
        self.map.close()
        self.file.close()

    def word(self, at: int) -> int:
        (value,) = struct.unpack_from("<Q", self.map, at)
        return int(value)

    def store(self, at: int, value: int) -> None:
        struct.pack_into("<Q", self.map, at, value)

    @property
    def switch(self) -> int:
        return self.word(0x10)

    @property
    def steps(self) -> int:
        return self.word(0x18)

    @property
    def due(self) -> int:
        return self.word(0x20)

    def block(self, current: int, slots: int, size: int) -> bytes | None:
        """The text of a block; None where nothing was written."""
        for _ in range(2):
            generation = self.word(current)
            if generation == 0:
                return None
            at = slots + generation % 2 * size
            slot = self.map[at : at + size]
            its, length, crc = struct.unpack_from("<QII", slot)
            text = slot[16 : 16 + length]
            if its == generation and length <= size - 16 and zlib.crc32(slot[:12] + text) == crc:
                return text
        raise ValueError("no whole text is there")

    def answer(self) -> dict[str, Any]:
        text = self.block(0xC0, 0x8000, 0x3000)
        return {} if text is None else json.loads(text)

    def last_tap(self) -> tuple[str, int, int, int] | None:
        """Name, step, call and number of the tap that fired last."""
        text = self.block(0x100, 0x1000, 0x800)
        if text is None:
            return None
        step, call, seq, time_ns = struct.unpack_from("<QQQQ", text)
        assert abs(time_ns - time.time_ns()) < 600e9
        return text[32:].decode(), step, call, seq

    def ask(self, **request: Any) -> int:
        """Write a request and knock; its generation. Nobody else writes to `switch` at that moment in these tests."""
        fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        text = json.dumps(request).encode()
        generation = self.word(0x80) + 1
        at = 0x2000 + generation % 2 * 0x3000
        head = struct.pack("<QI", generation, len(text))
        self.map[at : at + 16 + len(text)] = head + struct.pack("<I", zlib.crc32(head + text)) + text
        self.store(0x80, generation)
        self.store(0x10, self.switch | 2)
        self.store(0x20, request.get("first") or 0)
        fcntl.flock(self.file, fcntl.LOCK_UN)
        return generation


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:
        return ""


def until(what: Callable[[], Any], seconds: float = 30) -> Any:
    """What it returns once that is true."""
    deadline = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < deadline, "nothing came of it"
        time.sleep(0.002)
    return found
