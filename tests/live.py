"""Live ranks to be switched on and off from outside, and the command that does it.

A rank makes forward passes as its test says: freely, so many, or none. Each pass is a step and a tap.
"""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import clean_env

# Lines on stdin: `run`, `hold`, `call` for the tap alone, or a number of passes; the latter two are answered once done.
RANK = """
import sys, threading, time, numpy as np, tpcapture
period, mode, rank, todo = float(sys.argv[1]), sys.argv[2], int(sys.argv[3]), 0
together = np.memmap(sys.argv[4], np.int64, "r+") if sys.argv[4:] else None
def listen():
    global mode, todo
    for line in sys.stdin:
        word = line.strip()
        if word.isdigit():
            mode, todo = "hold", int(word)
        else:
            mode = word
    mode = "end"
threading.Thread(target=listen, daemon=True).start()
tap, x = tpcapture.tap("layers.0.q", placement="R"), np.zeros(16, np.int64)
passes = 0
print("ready", flush=True)
while mode != "end":
    if mode == "call":
        mode = "hold"
        tap(x)
        print("done", flush=True)
    elif mode == "run" or todo:
        passes += 1
        tpcapture.step()
        x[:] = passes
        tap(x)
        time.sleep(period)
        if together is not None:
            together[rank] = passes
            while mode != "end" and together.min() < passes: time.sleep(0.0001)
        if todo:
            todo -= 1
            if not todo: print("done", flush=True)
    else:
        time.sleep(0.001)
"""


class Rank:
    """A process of a job."""

    def __init__(
        self, rank: int, world: int, period: float, mode: str, together: Path | None = None, **env: str
    ) -> None:
        launcher = {"RANK": str(rank), "WORLD_SIZE": str(world)} if world > 1 else {}
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                RANK,
                str(period),
                mode,
                str(rank),
                *([str(together)] if together else []),
            ],
            env=clean_env(**(launcher | {"TPCAPTURE_RING": "16MiB"} | env)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def tell(self, word: str | int) -> None:
        assert self.process.stdin is not None
        print(word, file=self.process.stdin, flush=True)

    def expect(self, answer: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == answer

    def make(self, passes: int) -> None:
        """Make so many forward passes."""
        self.tell(passes)
        self.expect("done")

    def end(self) -> None:
        self.process.communicate(timeout=60)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self.process.send_signal(signal.SIGSTOP)
        until(lambda: Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


@dataclass(frozen=True)
class Done:
    """What a command did."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        assert self.stderr == ""
        return json.loads(self.stdout)


class Live:
    """A job's ranks, and commands that are for them alone, as other processes of this machine capture, too."""

    def __init__(self, ranks: list[Rank], directory: Path) -> None:
        self.ranks, self.directory = ranks, directory

    def command(self, *arguments: str, check: int | None = 0) -> Done:
        done = subprocess.run(
            self.line(*arguments), env=clean_env(), capture_output=True, text=True, check=False
        )
        if check is not None:
            assert done.returncode == check, done.stdout + done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    def begin(self, *arguments: str) -> "subprocess.Popen[str]":
        """A command that goes on meanwhile."""
        line, pipe = self.line(*arguments), subprocess.PIPE
        return subprocess.Popen(line, env=clean_env(), stdout=pipe, stderr=pipe, text=True)

    def line(self, *arguments: str) -> list[str]:
        pids = [f"--pid={rank.pid}" for rank in self.ranks]
        return [sys.executable, "-m", "tpcapture", arguments[0], *pids, *arguments[1:]]

    def on(self, *arguments: str, run: str = "run", check: int | None = 0) -> Any:
        """Switches on and returns the report."""
        where = ["--dir", str(self.directory), "--run", run, "--json"]
        return json.loads(self.command("on", *where, *arguments, check=check).stdout)

    def ps(self) -> list[Any]:
        return list(self.command("ps", "--json").json["processes"])

    def tell(self, word: str | int) -> None:
        for rank in self.ranks:
            rank.tell(word)

    def make(self, passes: int) -> None:
        self.tell(passes)
        for rank in self.ranks:
            rank.expect("done")


@contextmanager
def live(
    directory: Path,
    world: int = 2,
    *,
    period: float = 0.001,
    mode: str = "run",
    together: bool = False,
    **env: str,
) -> Iterator[Live]:
    """Ranks that run until the block ends, with what they captured sealed then.

    `together`: none begins a pass before all have ended the last one, as in a model with collectives.
    """
    counts = None
    if together:
        counts = directory / "counts"
        counts.write_bytes(bytes(8 * world))
    ranks = [Rank(rank, world, period, mode, counts, **env) for rank in range(world)]
    try:
        for rank in ranks:
            rank.expect("ready")
        yield Live(ranks, directory)
    finally:
        for rank in ranks:
            rank.end()


def until(is_so: Callable[[], bool], seconds: float = 30) -> None:
    """Waits until it is so."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not come to be"
        time.sleep(0.005)
