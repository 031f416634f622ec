"""Ranks that stay: a process for each rank of a job, which captures one small run after another as it is told.

Most tests of a comparison want many runs of a few tensors, and a process takes longer to start than to capture them.
"""

import pickle
import subprocess
import sys
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from conftest import clean_env
from numpy.typing import NDArray

import tpcapture

Array = NDArray[Any]

# What a rank runs: each line of stdin is the file of a run, and its answer is a line, too.
RANK = """
import pickle, sys, ml_dtypes, tpcapture
print("ready", flush=True)
for line in sys.stdin:
    out, run, steps = pickle.loads(open(line.strip(), "rb").read())
    with tpcapture.capturing(out, run=run):
        for number, step in enumerate(steps):
            if number > 0:
                tpcapture.step()
            for tap, tensor, placement, rows in step:
                tpcapture.capture(tap, tensor, placement=placement, rows=rows)
    status = tpcapture.status()
    print([status["losses"], status["last_error"]] if status["losses"] or status["last_error"] else "done", flush=True)
"""


@dataclass(frozen=True)
class Tap:
    """A tap that fires on every rank with a part, in rank order; one part is a job of one rank."""

    name: str
    parts: list[Array | None]
    placement: str | None = None
    rows: int | None = None


def whole(name: str, array: Array, placement: str | None = None) -> Tap:
    """A tap of a job of one rank."""
    return Tap(name, [array], placement)


class Job:
    """The ranks of one world size."""

    def __init__(self, world: int) -> None:
        def start(rank: int) -> "subprocess.Popen[str]":
            return subprocess.Popen(
                [sys.executable, "-c", RANK],
                env=clean_env(RANK=str(rank), WORLD_SIZE=str(world), TPCAPTURE_RING="16MiB"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )

        self.ranks = [start(rank) for rank in range(world)]
        for rank in self.ranks:
            self.expect(rank, "ready")

    @staticmethod
    def expect(rank: "subprocess.Popen[str]", answer: str) -> None:
        assert rank.stdout is not None
        said = rank.stdout.readline().strip()
        assert said == answer, said

    def record(self, out: Path, steps: list[list[Tap]]) -> None:
        for rank, process in enumerate(self.ranks):
            mine = [
                [
                    (tap.name, part, tap.placement, tap.rows)
                    for tap in step
                    if (part := tap.parts[rank]) is not None
                ]
                for step in steps
            ]
            told = out.parent / f"{out.name}.{rank}.pickle"
            told.write_bytes(pickle.dumps((str(out), "run", mine)))
            assert process.stdin is not None
            print(told, file=process.stdin, flush=True)
        for process in self.ranks:
            self.expect(process, "done")

    def end(self) -> None:
        for process in self.ranks:
            process.communicate(timeout=20)


class Jobs:
    """Jobs of every size that was asked for, for as long as the tests run."""

    def __init__(self) -> None:
        self.jobs: dict[int, Job] = {}

    def of(self, world: int) -> Job:
        return self.jobs.setdefault(world, Job(world)) if world not in self.jobs else self.jobs[world]

    def end(self) -> None:
        for job in self.jobs.values():
            job.end()


class Runs:
    """The runs of one test."""

    def __init__(self, jobs: Jobs, directory: Path) -> None:
        self.jobs, self.directory, self.number = jobs, directory, count()

    def record(self, *taps: Tap, steps: list[list[Tap]] | None = None) -> Path:
        """The directory of a run of one step, or of several."""
        all_steps = [list(taps)] if steps is None else steps
        (world,) = {len(tap.parts) for step in all_steps for tap in step}
        out = self.directory / f"run-{next(self.number)}"
        self.jobs.of(world).record(out, all_steps)
        return out

    def layouts(self, text: str) -> Path:
        path = self.directory / f"layouts-{next(self.number)}.toml"
        path.write_text(text)
        return path

    def placed(self, tap: str, placement: str) -> Path:
        """A layouts file that says one placement."""
        return self.layouts(f'[[tap]]\nmatch = "{tap}"\nplacement = "{placement}"\n')


def kinds(row: tpcapture.Row) -> list[str]:
    """What kinds of findings a row has."""
    return [diagnosis.kind for diagnosis in row.diagnoses]


def text_of(row: tpcapture.Row, kind: str) -> str:
    """The only finding of a kind, in words."""
    (text,) = [diagnosis.text for diagnosis in row.diagnoses if diagnosis.kind == kind]
    return text


def suggested(row: tpcapture.Row, kind: str) -> str:
    """The placement that the only finding of a kind suggests."""
    (suggest,) = [diagnosis.suggest for diagnosis in row.diagnoses if diagnosis.kind == kind]
    assert suggest is not None
    return suggest
