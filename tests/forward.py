"""A forward pass of two ranks with real collectives, whose outputs have a hash: whatever capture meets, the hash is
that of the same loop without it, and the loop ends.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conftest import clean_env

WORLD, STEPS = 2, 12

# Row-parallel layers: what is tapped is overwritten in place, viewed, and freed right after. `meet(step)` is a test's.
LOOP = """
import ctypes, hashlib, os, resource, shutil, signal, subprocess, sys, threading, time
import torch, torch.distributed as dist
{before_import}
import tpcapture
rank, world, n_steps = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), {steps}
run = os.path.join(os.environ["TPCAPTURE_DIR"], os.environ["TPCAPTURE_RUN"])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method="file://" + os.environ["STORE"], rank=rank, world_size=world)
g = torch.Generator().manual_seed(0)
layers = [(torch.randn(64, 256, generator=g) / 8, torch.randn(256, 64, generator=g) / 16) for _ in range(4)]
shard = 256 // world
layers = [(up[:, rank * shard : (rank + 1) * shard], down[rank * shard : (rank + 1) * shard]) for up, down in layers]
taps = [[tpcapture.tap(f"layers.{{i}}.{{name}}", placement=of)
         for name, of in (("hidden", "S(-1)"), ("partial", "P"), ("out", "R"))] for i in range(4)]
x = torch.randn(128, 64, generator=g)
outputs = hashlib.sha256()
def meet(step): pass
{meet}
print("ready", flush=True)
for step in range(1, n_steps + 1):
    tpcapture.step()
    meet(step)
    for (up, down), (hidden, partial, out) in zip(layers, taps):
        h = x @ up
        hidden(h)
        h.relu_()
        hidden(h.t())
        y = h @ down
        del h
        partial(y)
        dist.all_reduce(y)
        out(y)
        x = y.add_(x)
    x = x / x.abs().amax()
    outputs.update(x.numpy().tobytes())
dist.barrier()
print(outputs.hexdigest(), flush=True)
dist.destroy_process_group()
{after}
"""


@dataclass(frozen=True)
class Rank:
    """How a rank ended."""

    status: int
    outputs: str
    said: str


class Forward:
    """Runs the loop in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.n = 0

    def __call__(
        self,
        meet: str = "",
        *,
        before_import: str = "",
        after: str = "",
        steps: int = STEPS,
        under: Sequence[str] = (),
        beside: Callable[[list["subprocess.Popen[str]"]], None] | None = None,
        **variables: str,
    ) -> list[Rank]:
        """Runs it, and `beside` once both ranks are there. `under` is a command that runs each rank."""
        self.n += 1
        where = {"TPCAPTURE_DIR": str(self.directory), "TPCAPTURE_RUN": f"run{self.n}"}
        where |= {"STORE": str(self.directory / f"store{self.n}"), "TPCAPTURE_MIN_FREE": "0%"}
        code = LOOP.format(meet=meet, before_import=before_import, after=after, steps=steps)
        ranks = []
        pipe = subprocess.PIPE
        for rank in range(WORLD):
            env = clean_env(**(where | {"RANK": str(rank), "WORLD_SIZE": str(WORLD)} | variables))
            line = [*under, sys.executable, "-c", code]
            ranks.append(subprocess.Popen(line, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
        try:
            if beside:
                for process in ranks:
                    assert process.stdout is not None
                    assert process.stdout.readline() == "ready\n"
                beside(ranks)
            return [_end(process, 60 + steps / 50) for process in ranks]
        finally:
            for process in ranks:
                process.kill()
                process.wait()

    @property
    def run(self) -> Path:
        """The directory of the last run."""
        return self.directory / f"run{self.n}"


def _end(process: "subprocess.Popen[str]", timeout: float) -> Rank:
    stdout, stderr = process.communicate(timeout=timeout)
    lines = [line for line in stdout.splitlines() if line != "ready"]
    return Rank(process.returncode, lines[0] if lines else "", stderr)
