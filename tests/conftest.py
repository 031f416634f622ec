"""Run a program in processes of its own, as capture is a matter of whole processes, and find what they wrote."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from job import Jobs, Runs

# What may stand in the environment of a test run and must not reach the processes under test.
LAUNCHERS = (
    "TPCAPTURE",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_",
    "MASTER_",
    "TORCHELASTIC_",
    "OMPI_",
    "PMI_",
    "SLURM_",
    "VLLM_",
)


# This process captures, too, and reads its environment when it first imports tpcapture. The ring's memory is taken
# and given back hundreds of times here: less of it is more tests a second.
for variable in [name for name in os.environ if name.startswith(LAUNCHERS)]:
    del os.environ[variable]
os.environ["TPCAPTURE_RING"] = "16MiB"
# A shell has what it starts in the background ignore Ctrl-C, which tests press.
signal.signal(signal.SIGINT, signal.default_int_handler)


def clean_env(**variables: str) -> dict[str, str]:
    """This environment without any launcher's or tpcapture's variables, and with `variables`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return kept | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"} | variables


@dataclass(frozen=True)
class Finished:
    """A program that ran: its run directory (which is there only if something was captured) and what it said."""

    run_dir: Path
    returncode: int
    stdout: str
    stderr: str

    @property
    def complaints(self) -> str:
        """What it said on stderr, but for where the run is and which rank says so."""
        text = re.sub(r"^\[tpcapture rank \d+\]", "[tpcapture]", self.stderr, flags=re.MULTILINE)
        return re.sub(r"^\[tpcapture\] capturing to .*\n", "", text, flags=re.MULTILINE)

    def files(self, pattern: str = "*.safetensors") -> list[Path]:
        """The run's files that match, by name."""
        return sorted(self.run_dir.glob(pattern))


Launch = Callable[..., Finished]


def launch(command: list[str], run_dir: Path, timeout: float, check: bool, env: dict[str, str]) -> Finished:
    where = {"TPCAPTURE_DIR": str(run_dir.parent), "TPCAPTURE_RUN": run_dir.name}
    done = subprocess.run(
        command, env=clean_env(**(where | env)), capture_output=True, text=True, timeout=timeout, check=False
    )
    if check:
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return Finished(run_dir, done.returncode, done.stdout, done.stderr)


@pytest.fixture
def rank(tmp_path: Path) -> Launch:
    """`rank(code, rank=1, world=2, TPCAPTURE="1")` runs Python code as one process of a job.

    The rank is told through RANK and WORLD_SIZE, or not at all. Ranks of one test write into one run. `under` is a
    command that runs the process, such as strace.
    """

    def run(
        code: str,
        *,
        rank: int | None = None,
        world: int = 1,
        run: str = "run",
        timeout: float = 120,
        check: bool = True,
        under: Sequence[str] = (),
        **env: str,
    ) -> Finished:
        launcher = {} if rank is None else {"RANK": str(rank), "WORLD_SIZE": str(world)}
        return launch(
            [*under, sys.executable, "-c", code], tmp_path / "runs" / run, timeout, check, launcher | env
        )

    return run


@pytest.fixture
def torchrun(tmp_path: Path) -> Launch:
    """`torchrun(code, ranks=2, TPCAPTURE="1")` runs Python code as a job of torch ranks."""

    def run(
        code: str, *, ranks: int, run: str = "run", timeout: float = 240, check: bool = True, **env: str
    ) -> Finished:
        script = tmp_path / f"{run}.py"
        script.write_text(code)
        launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1"]
        command = [sys.executable, *launcher, f"--nproc-per-node={ranks}", str(script)]
        return launch(command, tmp_path / "runs" / run, timeout, check, env)

    return run


@pytest.fixture(scope="session")
def jobs() -> Iterator["Jobs"]:
    from job import Jobs  # imports tpcapture, which reads the environment that is cleared above

    jobs = Jobs()
    yield jobs
    jobs.end()


@pytest.fixture
def runs(jobs: "Jobs", tmp_path: Path) -> "Runs":
    """`runs.record(Tap("q", [part of rank 0, part of rank 1], "S(1)"))` captures a run by processes that stay."""
    from job import Runs

    return Runs(jobs, tmp_path)
