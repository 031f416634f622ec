"""kill -9 costs what was not yet written, never what was: every record whose journal line is complete is readable, and
`tpcapture recover` keeps each.

TEST_KILLS=200 for the long form.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest
from conftest import Launch, clean_env

import tpcapture

AFTER_FLUSH = """
import os, signal, numpy as np, tpcapture
for step in range(3):
    tpcapture.capture("a", np.full(1000, step, np.int32))
    tpcapture.step()
tpcapture.flush()
tpcapture.capture("late", np.zeros(8))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_flushed_before_kill_9_is_readable(rank: Launch) -> None:
    done = rank(AFTER_FLUSH, TPCAPTURE="1", check=False)
    assert done.returncode == -signal.SIGKILL
    run = tpcapture.open(done.run_dir)
    assert [set(run["a", step].ranks[None].numpy().tolist()) for step in range(3)] == [{0}, {1}, {2}]
    [manifest] = run.manifests.values()
    assert (manifest["state"], manifest["ended_ns"]) == ("capturing", None)


# Records of all sizes, each filled with a number that follows from its place in the order.
UNDER_LOAD = """
import numpy as np, tpcapture
sizes = [3, 1000, 70_000, 0, 20, 400_001]
for i in range(1_000_000):
    n = sizes[i % len(sizes)]
    tpcapture.capture(f"tap{i % 7}", np.full(n, i % 251, np.uint8))
    if i % 5 == 0:
        tpcapture.step()
    if i % 400 == 399:
        tpcapture.flush()
    if i == 0:
        print(flush=True)
"""


def journalled(run_dir: Path) -> set[tuple[str, int, int]]:
    """Taps, steps and calls of the complete lines of the journal, read as docs/format.md describes it."""
    found = set()
    for journal in run_dir.glob("*.journal"):
        sealed = journal.with_suffix(".safetensors")
        for number, line in enumerate(journal.read_bytes().split(b"\n")[:-1]):
            if zlib.crc32(line[9:]) != int(line[:8], 16):
                break
            record = json.loads(line[9:])
            if number > 0 and not sealed.exists():
                found.add((record["tap"], record["step"], record["call"]))
    return found


KILLS = range(int(os.environ.get("TEST_KILLS", "12")))
SIZES = [3, 1000, 70_000, 0, 20, 400_001]


def killed(code: str, directory: Path, seconds: float) -> None:
    """Runs the code and kills it so long after it has begun."""
    env = clean_env(TPCAPTURE="1", TPCAPTURE_DIR=str(directory), TPCAPTURE_RUN="run", TPCAPTURE_RING="1MiB")
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        process.kill()


def records(run_dir: Path) -> dict[int, tuple[str, int, int]]:
    """Taps, steps and calls of all records by their place in the order. Each has the bytes that were given."""
    run = tpcapture.open(run_dir)
    assert run.errors == []
    found = {}
    for point in run:
        [record] = point.records
        array = record.numpy()
        assert record.crc32 == zlib.crc32(array.tobytes())
        assert (point.tap, array.size) == (f"tap{record.seq % 7}", SIZES[record.seq % 6])
        assert (array == record.seq % 251).all()
        found[record.seq] = (point.tap, point.step, point.call)
    return found


def recover(run_dir: Path) -> None:
    """Seals what is left; nothing that can be read is lost, and nothing of it stays open."""
    before = records(run_dir)
    command = [sys.executable, "-m", "tpcapture", "recover", str(run_dir), "--json"]
    done = subprocess.run(command, env=clean_env(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(run_dir) == before
    left = [journal for journal in run_dir.glob("*.journal") if len(journal.read_bytes().splitlines()) > 1]
    assert left == []


@pytest.mark.parametrize("seed", KILLS)
def test_kill_9_at_any_moment_leaves_every_journalled_record_readable(tmp_path: Path, seed: int) -> None:
    killed(UNDER_LOAD, tmp_path, random.Random(seed).uniform(0.0, 0.25))
    run_dir = tmp_path / "run"
    # Killed before the writer thread had made the directory: nothing was promised.
    if not list(run_dir.glob("*.safetensors*")):
        return
    expected = journalled(run_dir)
    found = records(run_dir)
    assert expected <= set(found.values())
    # What is there is everything up to some record: nothing is missing in between.
    assert sorted(found) == list(range(len(found)))
    recover(run_dir)


# The same, in a run of its own each few records, so that most kills hit a beginning or a sealing.
SWITCHING = """
import numpy as np, tpcapture
tpcapture.off()
sizes = [3, 1000, 70_000, 0, 20, 400_001]
for run in range(100_000):
    tpcapture.on(run=f"run{run}")
    for i in range(20):
        tpcapture.step()
        tpcapture.capture(f"tap{i % 7}", np.full(sizes[i % 6], i, np.uint8))
    tpcapture.off()
    if run == 0:
        print(flush=True)
"""


@pytest.mark.parametrize("seed", KILLS)
def test_kill_9_while_captures_begin_and_end(tmp_path: Path, seed: int) -> None:
    killed(SWITCHING, tmp_path, random.Random(seed).uniform(0.0, 0.25))
    runs = sorted((path for path in tmp_path.iterdir()), key=lambda path: int(path.name[3:]))
    for run in runs[:-1]:
        assert sorted(records(run)) == list(range(20))
    if list(runs[-1].glob("*.safetensors*")):
        expected = journalled(runs[-1])
        found = records(runs[-1])
        assert expected <= set(found.values())
        assert sorted(found) == list(range(len(found)))
        recover(runs[-1])


def test_a_restart_that_has_the_pid_of_the_killed_leaves_its_files_alone(tmp_path: Path) -> None:
    """As in a container, where pids begin anew."""
    namespace = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a namespace of pids needs root")
    env = clean_env(TPCAPTURE="1", TPCAPTURE_DIR=str(tmp_path), TPCAPTURE_RUN="run", TPCAPTURE_RANK="0")
    for i in range(2):
        code = f"""
import os, signal, time, numpy as np, tpcapture
tpcapture.capture("a", np.full(100, {i}))
while tpcapture.status()["counters"]["records"] < 1: time.sleep(0.001)
assert os.getpid() == 1
open("/proc/self/fd/1", "w").write("done")
os.execv("/bin/true", ["true"])
"""
        done = subprocess.run(
            [*namespace, sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "done"), done.stderr
    run = tpcapture.open(tmp_path / "run")
    assert len(run.manifests) == 2
    assert {manifest["process"]["pid"] for manifest in run.manifests.values()} == {1}
    assert sorted(int(record.numpy()[0]) for point in run for record in point.records) == [0, 1]
