"""Ranks that are switched, aimed anew, stopped and killed at random, for as long as is asked for.

    python tests/soak.py [SECONDS] [SEED]      or: make soak

Ends with 0 where every run can be read and recovered, every record holds what the model had in that pass, ranks that
captured a step captured the same pass, and a rank that lived through it has no more descriptors than before.
"""

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from conftest import clean_env
from live import Rank

import tpcapture

WORLD = 4


class Soak:
    """One soak: its ranks, and what was done to them."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory, self.random = directory, random.Random(seed)
        self.together = directory / "passes"
        self.together.write_bytes(bytes(8 * WORLD))
        self.ranks = [self.rank(rank) for rank in range(WORLD)]
        self.n_runs = 0
        self.done: Counter[str] = Counter()
        self.stopped: set[int] = set()

    def rank(self, rank: int) -> Rank:
        """A process that makes forward passes, each with the others: a restarted one takes up where they are."""
        started = Rank(rank, WORLD, 0.0005, "run", self.together, TPCAPTURE_MIN_FREE="0%")
        started.expect("ready")
        return started

    def command(self, *arguments: str) -> None:
        """Does it for these ranks; whether it could is not the point, that it ends is."""
        pids = [f"--pid={rank.pid}" for rank in self.ranks]
        line = [sys.executable, "-m", "tpcapture", *arguments, *pids]
        done = subprocess.run(line, env=clean_env(), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode in (0, 1, 2), done.stderr
        assert "panicked" not in done.stderr, done.stderr

    def on(self) -> None:
        """Switches on, or aims anew what is on."""
        self.n_runs += 1
        line = ["on", "--dir", str(self.directory / "runs"), "--run", f"run{self.n_runs}"]
        some = [
            ["--steps", str(self.random.randint(1, 50))],
            ["--for", f"{self.random.randint(1, 900)}ms"],
            ["--limit-bytes", str(self.random.randint(0, 100_000))],
            ["--ranks", self.random.choice(["0", "1-2", "tp:0,3", "all"])],
            [
                "--select",
                self.random.choice(["*", "*=trace", "*=hash", "nothing", "*[every=3]", "*[limit=5]"]),
            ],
        ]
        for options in self.random.sample(some, self.random.randint(0, 3)):
            line += options
        self.command(*line)

    def off(self) -> None:
        self.command("off")

    def look(self) -> None:
        self.command("ps", "--json")

    def stop(self) -> None:
        """Stops a rank; the others wait for it, as in a collective."""
        rank = self.random.randrange(WORLD)
        self.ranks[rank].process.send_signal(signal.SIGSTOP)
        self.stopped.add(rank)

    def go_on(self) -> None:
        for rank in self.stopped:
            self.ranks[rank].process.send_signal(signal.SIGCONT)
        self.stopped.clear()

    def kill(self) -> None:
        """Kills all, as a server dies as a whole, and starts it again."""
        for rank in self.ranks:
            rank.process.kill()
            rank.process.communicate()
        self.stopped.clear()
        self.together.write_bytes(bytes(8 * WORLD))
        self.ranks = [self.rank(rank) for rank in range(WORLD)]

    def run(self, seconds: float) -> None:
        doings = (
            [self.on] * 6 + [self.off] * 3 + [self.look] * 2 + [self.stop, self.go_on, self.go_on, self.kill]
        )
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            doing = self.random.choice(doings)
            doing()
            self.done[doing.__name__] += 1
            time.sleep(self.random.random() * 0.05)
        self.go_on()
        self.off()
        for rank in self.ranks:
            assert rank.process.poll() is None, "a rank ended"

    def check(self) -> Counter[str]:
        """Looks through all runs; what there is in them."""
        found: Counter[str] = Counter()
        for path in sorted((self.directory / "runs").iterdir()):
            if not any(path.iterdir()):
                continue
            line = [sys.executable, "-m", "tpcapture", "recover", str(path)]
            done = subprocess.run(line, env=clean_env(), capture_output=True, text=True, check=False)
            assert done.returncode == 0 or "no run" in done.stderr, (path, done.stdout, done.stderr)
            if done.returncode:
                continue
            run = tpcapture.open(path)
            assert run.errors == [], run.errors
            found["runs"] += 1
            for point in run:
                passes = {record.rank: record for record in point.records if record.mode == "full"}
                numbers = {int(record.numpy()[0]) for record in passes.values()}
                assert len(numbers) <= 1, (path, point, numbers)
                assert all((record.numpy() == record.numpy()[0]).all() for record in passes.values())
                found["records"] += len(point.records)
        return found


def main(seconds: float, seed: int) -> None:
    directory = Path(tempfile.mkdtemp(prefix="tpcapture-soak-"))
    sys.stderr.write(f"{seconds:g} s, seed {seed}, in {directory}\n")
    soak = Soak(directory, seed)
    try:
        soak.run(seconds)
        survivors = {rank.pid: sum(1 for _ in Path(f"/proc/{rank.pid}/fd").iterdir()) for rank in soak.ranks}
        assert max(survivors.values()) < 16, survivors
    finally:
        for rank in soak.ranks:
            rank.process.send_signal(signal.SIGCONT)
            rank.process.kill()
            rank.process.communicate()
    found = soak.check()
    sys.stderr.write(f"did {dict(soak.done)}; found {dict(found)}\n")
    assert found["records"] > 0
    shutil.rmtree(directory)


if __name__ == "__main__":
    main(
        float(sys.argv[1]) if sys.argv[1:] else 600,
        int(sys.argv[2]) if sys.argv[2:] else random.randrange(10**6),
    )
