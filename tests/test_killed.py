"""kill -9 costs what was not yet written, never what was: every record whose journal line is complete is readable."""

import json
import random
import signal
import subprocess
import sys
import time
import zlib
from pathlib import Path

import numpy as np
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


@pytest.mark.parametrize("seed", range(20))
def test_kill_9_at_any_moment_leaves_every_journalled_record_readable(tmp_path: Path, seed: int) -> None:
    env = clean_env(TPCAPTURE="1", TPCAPTURE_DIR=str(tmp_path), TPCAPTURE_RUN="run", TPCAPTURE_RING="1MiB")
    with subprocess.Popen([sys.executable, "-c", UNDER_LOAD], env=env, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(random.Random(seed).uniform(0.0, 0.25))
        process.kill()
    run_dir = tmp_path / "run"
    # Killed before the writer thread had made the directory: nothing was promised.
    if not list(run_dir.glob("*.safetensors*")):
        return
    expected = journalled(run_dir)
    run = tpcapture.open(run_dir)
    keys = {(point.tap, point.step, point.call) for point in run}
    assert expected <= keys
    assert run.errors == []
    sizes = [3, 1000, 70_000, 0, 20, 400_001]
    seqs = []
    for point in run:
        [record] = point.records
        array = record.numpy()
        assert record.crc32 == zlib.crc32(array.tobytes())
        assert (point.tap, array.size) == (f"tap{record.seq % 7}", sizes[record.seq % 6])
        assert (array == record.seq % 251).all()
        seqs.append(record.seq)
    # What is there is everything up to some record: nothing is missing in between.
    assert np.array_equal(sorted(seqs), np.arange(len(seqs)))
