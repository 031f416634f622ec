"""`tpcapture recover` seals what killed processes left, and nothing else."""

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Launch, clean_env
from safetensors.numpy import load_file

import tpcapture

KILLED = """
import os, signal, sys, time, numpy as np, tpcapture
for step in range(3):
    tpcapture.step()
    tpcapture.capture("a", np.full(1000, step, np.int32))
    tpcapture.capture("b", np.arange(step, dtype=np.uint8))
while tpcapture.status()["counters"]["records"] < 6: time.sleep(0.001)
"""
KILL = "os.kill(os.getpid(), signal.SIGKILL)\n"


@pytest.fixture
def run(rank: Launch) -> Path:
    """The run of a process that was killed before it had sealed anything."""
    run = rank(KILLED + KILL, TPCAPTURE="1", check=False).run_dir
    assert sorted(path.suffix for path in run.iterdir()) == [".journal", ".json", ".partial"]
    return run


def command(name: str, run: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-m", "tpcapture", name, str(run), *options]
    return subprocess.run(line, env=clean_env(), capture_output=True, text=True, check=False)


def recover(run: Path, status: int = 0) -> Any:
    done = command("recover", run, "--json")
    assert done.returncode == status, done.stdout + done.stderr
    return json.loads(done.stdout)


def contents(run: Path) -> dict[tuple[str, int], tuple[bytes, str]]:
    opened = tpcapture.open(run)
    assert opened.errors == []
    return {
        (point.tap, point.step): (bytes(point.records[0].bytes()), point.records[0].dtype) for point in opened
    }


def files(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in run.iterdir() if path.is_file()}


def test_what_a_killed_process_left_becomes_a_segment_like_any_other(run: Path) -> None:
    before = contents(run)
    assert len(before) == 6
    [sealed] = recover(run)["sealed"]
    assert (sealed["rank"], sealed["records"], sealed["bytes"]) == (None, 6, 12_003)
    assert sorted(path.suffix for path in run.iterdir()) == [".json", ".safetensors"]
    assert contents(run) == before
    tensors = load_file(sealed["file"])
    assert {name: tensor.tolist() for name, tensor in tensors.items() if name.endswith("b")} == {
        f"step{step + 1}/b": list(range(step)) for step in range(3)
    }
    done = command("recover", run)
    assert (done.returncode, done.stdout) == (0, f"{run}: nothing to recover\n")
    assert command("verify", run).returncode == 0


def test_what_the_run_holds_is_said(run: Path) -> None:
    done = command("recover", run.parent)
    [file] = run.glob("*.safetensors")
    assert done.stdout == f"rank ?: 6 records, 11.7 KiB: {file}\n{run}: 1 segment recovered\n"
    assert (done.returncode, done.stderr) == (0, "")


@contextmanager
def writing(tmp_path: Path, code: str, **variables: str) -> Iterator["subprocess.Popen[str]"]:
    """A process that has its records and stays."""
    env = clean_env(TPCAPTURE="1", TPCAPTURE_DIR=str(tmp_path), TPCAPTURE_RUN="run", **variables)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdin=pipe, stdout=pipe, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


STAY = "print('ready', flush=True)\nsys.stdin.read()\n"


def test_a_process_that_lives_is_left_alone_and_named(tmp_path: Path) -> None:
    """Stopped, so that it does not seal by itself meanwhile."""
    code = KILLED + "print('ready', flush=True)\nos.kill(os.getpid(), signal.SIGSTOP)\nsys.stdin.read()\n"
    with writing(tmp_path, code) as process:
        while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "T":
            time.sleep(0.001)
        before = files(tmp_path / "run")
        [live] = recover(tmp_path / "run", status=1)["live"]
        assert live["reason"] == "its process, or a child of it, is alive"
        assert files(tmp_path / "run") == before
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=30)
    assert len(contents(tmp_path / "run")) == 6
    assert list((tmp_path / "run").glob("*.partial")) == []


def test_of_several_segments_each_is_sealed_that_can_be(run: Path, rank: Launch) -> None:
    rank(KILLED + KILL, TPCAPTURE="1", check=False)
    journal, _ = sorted(run.glob("*.journal"))
    journal.write_bytes(journal.read_bytes().replace(b'"b"', b'"c"'))
    report = recover(run, status=2)
    assert (len(report["sealed"]), len(report["errors"])) == (1, 1)
    assert report["errors"][0]["segment"] == str(journal).removesuffix(".journal")


def line(record: dict[str, Any]) -> bytes:
    text = json.dumps(record).encode()
    return f"{zlib.crc32(text):08x} ".encode() + text + b"\n"


def broken(run: Path, how: str) -> str:
    """Breaks a run; what is said of it."""
    [journal], [partial] = run.glob("*.journal"), run.glob("*.partial")
    lines = journal.read_bytes().splitlines(keepends=True)
    records = [json.loads(of[9:]) for of in lines]
    if how == "no journal":
        journal.unlink()
        return "its journal is missing"
    if how == "no segment":
        partial.unlink()
        return "its segment is missing"
    if how == "an empty journal":
        journal.write_bytes(b"")
        return "its journal has no whole line"
    if how == "a damaged line in the middle":
        journal.write_bytes(b"".join(lines).replace(b'"step":2', b'"step":9', 1))
        return "its journal is damaged: whole lines stand behind line 4, which is not"
    if how == "a short segment":
        os.truncate(partial, partial.stat().st_size - 1)
        return "expected 6 records, found bytes of 5"
    if how == "another byte":
        with partial.open("r+b") as file:
            file.seek(records[0]["data_start"])
            file.write(b"\x01")
        zeros, found = zlib.crc32(bytes(4000)), zlib.crc32(b"\x01" + bytes(3999))
        return f'tap "a", step 1, call 0: expected checksum {zeros:08x}, found {found:08x}'
    if how == "a record twice":
        twice = records[-1] | {"step": 1, "offset": records[-1]["offset"] + records[-1]["length"]}
        with partial.open("ab") as file:
            file.write(bytes(twice["length"]))
        journal.write_bytes(b"".join(lines) + line(twice | {"crc32": zlib.crc32(bytes(twice["length"]))}))
        return 'tap "b", step 1, call 0 is there twice'
    if how == "no room":
        journal.write_bytes(line(records[0] | {"data_start": 100}) + b"".join(lines[1:]))
        return "expected room for a header of "
    if how == "room beyond the file":
        journal.write_bytes(line(records[0] | {"data_start": 2**64 - 1}) + b"".join(lines[1:]))
        return "expected room for a header of "
    if how == "a record that makes no sense":
        journal.write_bytes(b"".join(lines[:-1]) + line(records[-1] | {"offset": 1}))
        return 'journal line 7: tap "b": expected its data at byte 12001, found 1'
    if how == "a link for a segment":
        partial.rename(run / "elsewhere")
        partial.symlink_to("elsewhere")
        return "expected a regular file of one name, found a symbolic link"
    if how == "a hard link":
        os.link(partial, run / "elsewhere")
        return "expected a regular file of one name, found one with hard links"
    assert how == "a FIFO for a journal"
    journal.unlink()
    os.mkfifo(journal)
    return "expected a regular file of one name, found something else"


@pytest.mark.parametrize(
    "how",
    [
        "no journal",
        "no segment",
        "an empty journal",
        "a damaged line in the middle",
        "a short segment",
        "another byte",
        "a record twice",
        "no room",
        "room beyond the file",
        "a record that makes no sense",
        "a link for a segment",
        "a hard link",
        "a FIFO for a journal",
    ],
)
def test_what_no_killed_process_leaves_stays_as_it_is(run: Path, how: str) -> None:
    said = broken(run, how)
    before = files(run)
    [error] = recover(run, status=2)["errors"]
    assert error["reason"].startswith(said), error
    assert files(run) == before


def test_a_line_that_was_being_written_and_data_behind_it_are_cut_off(run: Path) -> None:
    [journal], [partial] = run.glob("*.journal"), run.glob("*.partial")
    before = contents(run)
    with journal.open("ab") as file:
        file.write(journal.read_bytes()[:100])
    with partial.open("ab") as file:
        file.write(b"half a record")
    assert recover(run)["sealed"][0]["records"] == 6
    assert contents(run) == before
    [sealed] = run.glob("*.safetensors")
    assert len(load_file(sealed)) == 6


def test_recovery_that_is_interrupted_anywhere_can_be_begun_again(run: Path) -> None:
    """After the header, which readers of a partial pass over, and after the rename, when the journal is stale."""
    before = contents(run)
    [partial], [journal] = run.glob("*.partial"), run.glob("*.journal")
    said = journal.read_bytes()
    unsealed = partial.read_bytes()
    recover(run)
    [sealed] = run.glob("*.safetensors")
    whole = sealed.read_bytes()
    for cut in (1, 8, 500, 70_000):
        sealed.unlink()
        partial.write_bytes(whole[:cut] + unsealed[cut:])
        journal.write_bytes(said)
        assert contents(run) == before
        assert len(recover(run)["sealed"]) == 1
        assert sealed.read_bytes() == whole
    journal.write_bytes(said)
    assert contents(run) == before
    assert recover(run) == {"sealed": [], "live": [], "errors": []}


def test_a_segment_without_a_record_is_no_matter(run: Path) -> None:
    """It may be one that a process has just begun, and so it stays."""
    [journal] = run.glob("*.journal")
    journal.write_bytes(journal.read_bytes().splitlines(keepends=True)[0])
    before = files(run)
    assert recover(run) == {"sealed": [], "live": [], "errors": []}
    assert files(run) == before


def test_where_nothing_can_be_written_nothing_is_lost(run: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    run.chmod(0o500)
    before = files(run)
    [error] = recover(run, status=2)["errors"]
    assert "Permission denied" in error["reason"]
    assert files(run) == before
    run.chmod(0o700)


def test_what_is_no_run_is_refused_before_anything_is_touched(run: Path, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    before = files(run)
    done = command("recover", run, str(nothing))
    assert done.returncode == 2
    assert "expected a run directory" in done.stderr
    assert files(run) == before


def test_recovered_and_unrecovered_runs_compare_identical(rank: Launch) -> None:
    a, b = (rank(KILLED + KILL, run=name, rank=0, TPCAPTURE="1", check=False).run_dir for name in "ab")
    recover(b)
    assert tpcapture.compare(a, b).verdict == "IDENTICAL"
    assert np.array_equal(tpcapture.open(b)["a", 3].records[0].numpy(), np.full(1000, 2, np.int32))
