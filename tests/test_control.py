"""A process is switched through its control page, by a reader written from docs/control-page.md alone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Finished, Launch, clean_env
from page import NEVER, Page, until

import tpcapture

# A model of two taps, 1 ms a step, until its input is closed.
LOOP = """
import sys, threading, time, numpy as np, tpcapture
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
q, mlp = np.arange(6.0), np.arange(4)
print("ready", flush=True)
while not over.is_set():
    tpcapture.step()
    tpcapture.capture("q", q); tpcapture.capture("mlp", mlp)
    time.sleep(0.001)
print(tpcapture.status()["state"])
"""


@contextmanager
def running(code: str = LOOP, **variables: str) -> Iterator[tuple[Page, "subprocess.Popen[str]"]]:
    """A process that has begun, its page, and its end."""
    env = clean_env(TPCAPTURE_RING="1MiB", TPCAPTURE_MIN_FREE="0%", **variables)
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            with closing(Page(process.pid)) as page:
                yield page, process
            process.communicate(timeout=30)
        finally:
            process.kill()
    assert process.returncode == 0


def on(page: Page, where: Path, **request: Any) -> int:
    by = {"pid": os.getpid(), "user": "ada", "host": "h"}
    return page.ask(**{"op": "on", "id": 1, "run": "r", "dir": str(where), "by": by} | request)


def sealed(page: Page) -> dict[str, Any]:
    answer: dict[str, Any] = until(lambda: (answer := page.answer())["sealed"] and answer)
    return answer


def test_a_process_at_rest_says_who_it_is(tmp_path: Path) -> None:
    with running(RANK="3", WORLD_SIZE="8") as (page, process):
        answer = page.answer()
        assert (answer["state"], answer["heeded"], answer["refused"]) == ("off", 0, None)
        assert (answer["rank"], answer["world"], answer["identity_from"]) == (3, 8, "RANK")
        assert answer["mesh"] == {"dims": [{"name": "tp", "coord": 3, "size": 8}], "assumed": True}
        assert (answer["pid"], answer["program"]) == (process.pid, sys.executable)
        assert answer["version"]
        until(lambda: page.steps > 3)
        assert (page.switch, page.due, page.last_tap()) == (0, NEVER, None)


def test_it_arms_begins_and_ends_at_the_steps_that_were_said(tmp_path: Path) -> None:
    with running() as (page, _):
        generation = on(page, tmp_path, select="q", steps=3)
        until(lambda: page.answer()["heeded"] == generation)
        assert page.answer()["state"] == "armed"
        assert (page.switch, page.due) == (0, NEVER), "armed costs what off costs"
        first = page.steps + 20
        on(page, tmp_path, select="q", steps=3, first=first)
        answer = sealed(page)
        assert (answer["began_at"], answer["reason"], answer["id"]) == (first, "steps done", 1)
        assert (answer["counters"]["records"], answer["counters"]["bytes"]) == (3, 3 * 48)
        assert answer["by"]["user"] == "ada"
        assert page.last_tap() == ("q", 3, 0, 2)
        until(lambda: page.due == NEVER)
        assert page.switch == 0
    run = tpcapture.open(tmp_path / "r")
    assert ([point.tap for point in run], run.steps) == (["q"] * 3, [1, 2, 3])
    assert {record.abs_step for point in run for record in point.ranks.values()} == {
        first,
        first + 1,
        first + 2,
    }


def test_who_was_told_too_late_says_so_and_begins_at_the_next(tmp_path: Path) -> None:
    with running() as (page, _):
        until(lambda: page.steps > 5)
        on(page, tmp_path, first=page.steps - 1)
        until(lambda: page.answer()["late_at"])
        first = page.steps + 20
        on(page, tmp_path, first=first, steps=1)
        assert sealed(page)["began_at"] == first


def test_a_process_that_stands_still_is_switched_off_by_its_writer(tmp_path: Path) -> None:
    code = """
import sys, numpy as np, tpcapture
print("ready", flush=True)
sys.stdin.readline()
tpcapture.step(); tpcapture.capture("q", np.zeros(3))
sys.stdin.read()
"""
    with running(code) as (page, process):
        on(page, tmp_path, first=1)
        assert process.stdin is not None
        print(file=process.stdin, flush=True)
        until(lambda: page.answer()["state"] == "capturing")
        page.ask(op="off")
        assert (sealed(page)["reason"], page.switch) == ("off", 0)
    assert tpcapture.open(tmp_path / "r").steps == [1]


def test_a_stopped_process_heeds_when_it_goes_on(tmp_path: Path) -> None:
    with running() as (page, process):
        process.send_signal(signal.SIGSTOP)
        until(lambda: "T (stopped)" in Path(f"/proc/{process.pid}/status").read_text())
        generation = on(page, tmp_path, first=page.steps + 10, steps=2)
        assert page.answer()["heeded"] != generation
        process.send_signal(signal.SIGCONT)
        assert sealed(page)["counters"]["records"] == 4


def test_trace_shows_where_a_hanging_model_stands_and_looks_at_no_tensor(tmp_path: Path) -> None:
    code = """
import sys, tpcapture
class OnDevice:
    __cuda_array_interface__ = None
print("ready", flush=True)
sys.stdin.readline()
tpcapture.step()
for layer in range(3): tpcapture.capture(f"layers.{layer}", OnDevice())
sys.stdin.read()
print(tpcapture.status()["losses"])
"""
    with running(code) as (page, process):
        on(page, tmp_path, select="*=trace", first=1)
        assert process.stdin is not None
        print(file=process.stdin, flush=True)
        until(lambda: page.last_tap() == ("layers.2", 1, 0, 2))
        assert page.answer()["state"] == "capturing"
        assert process.communicate(timeout=30) == ("[]\n", "")
    assert not (tmp_path / "r").exists()


def test_a_child_of_fork_has_a_page_of_its_own(tmp_path: Path) -> None:
    code = """
import os, sys, tpcapture
for _ in range(5): tpcapture.step()
ours, theirs = os.pipe()
child = os.fork()
if child == 0:
    os.close(theirs)
    print("ready", os.getpid(), sep="\\n", flush=True)
    os.read(ours, 1)
    os._exit(0)
sys.stdin.read()
os.close(theirs)
os.waitpid(child, 0)
"""
    with running(code) as (page, process):
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        with closing(Page(pid)) as child:
            assert (child.steps, child.answer()["pid"]) == (5, pid)
            child.ask(op="on", id=9, run="r", dir=str(tmp_path))
            assert (child.switch, page.switch) == (2, 0)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({"op": "sideways"}, "expected op on or off"),
        ({"select": "q["}, 'selection "q[", column 2: expected '),
        ({"run": "a/b"}, 'expected a run name, found "a/b"'),
        ({"ranks": "x"}, "ranks: expected all, ranks such as 0,3 or 0-3"),
        ({"steps": "three"}, "the request does not parse: invalid type: string"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    tmp_path: Path, request_: dict[str, Any], reason: str
) -> None:
    with running() as (page, _):
        generation = on(page, tmp_path, first=page.steps + 10, **request_)
        until(lambda: page.answer()["heeded"] == generation)
        answer = page.answer()
        assert answer["refused"].startswith(reason), answer["refused"]
        assert (answer["state"], page.switch) == ("off", 0)


def test_never_has_no_page(rank: Launch) -> None:
    code = """
import os, tpcapture
links = [f"/proc/self/fd/{n}" for n in os.listdir("/proc/self/fd")]
print(any("tpcapture" in os.readlink(link) for link in links if os.path.lexists(link)))
"""
    assert rank(code, TPCAPTURE="never").stdout == "False\n"
    assert rank(code).stdout == "True\n"


def test_on_and_off_from_inside(rank: Launch) -> None:
    code = """
import numpy as np, os, tpcapture
tpcapture.capture("before", np.zeros(2))
print(tpcapture.on("q,mlp", steps="1-2", dir=os.environ["TPCAPTURE_DIR"], run="one").name)
for _ in range(4):
    tpcapture.step(); tpcapture.capture("q", np.zeros(2)); tpcapture.capture("other", np.zeros(2))
print(tpcapture.off(), tpcapture.status()["end_reason"])
print(tpcapture.on(run="two").parent == __import__("pathlib").Path(os.environ["TPCAPTURE_DIR"]).absolute())
try: tpcapture.on()
except RuntimeError as error: print(str(error).split(":")[0])
print(tpcapture.off(), tpcapture.off())
tpcapture.on(run="three", limit_bytes=20)
for _ in range(4): tpcapture.capture("q", np.zeros(1))
print(tpcapture.status()["end_reason"])
tpcapture.on(run="four", seconds=0.01)
tpcapture.capture("q", np.zeros(1))
__import__("time").sleep(0.02)
tpcapture.capture("q", np.zeros(1))
print(tpcapture.status()["end_reason"])
for wrong in ({"seconds": 0}, {"seconds": float("nan")}, {"select": "q["}):
    try: tpcapture.on(**wrong)
    except ValueError as error: print(str(error)[:22])
"""
    done: Finished = rank(code)
    assert done.stdout.splitlines() == [
        "one",
        "None steps done",
        "True",
        "a capture is on already",
        "None None",
        "limit reached: 16 bytes captured, the next record of 8 would exceed the limit of 20",
        "time is up: 10ms",
        "seconds: expected a ti",
        "seconds: expected a ti",
        'select="q[": selection',
    ]
    assert tpcapture.open(done.run_dir.parent / "one").steps == [1, 2]


def test_a_block_that_was_re_aimed_leaves_the_new_capture_on(tmp_path: Path) -> None:
    code = """
import os, sys, numpy as np, tpcapture
with tpcapture.capturing(os.environ["WHERE"], run="mine"):
    tpcapture.step(); tpcapture.capture("q", np.zeros(1))
    print("ready", flush=True)
    sys.stdin.readline()
    tpcapture.step(); tpcapture.capture("q", np.zeros(1))
print(tpcapture.status()["state"], flush=True)
sys.stdin.read()
"""
    with running(code, WHERE=str(tmp_path)) as (page, process):
        on(page, tmp_path, first=2, run="theirs")
        assert process.stdin is not None
        assert process.stdout is not None
        print(file=process.stdin, flush=True)
        assert process.stdout.readline() == "capturing\n"
        assert page.answer()["run"] == str(tmp_path / "theirs")
    assert tpcapture.open(tmp_path / "theirs").steps == [1]
    [manifest] = (tmp_path / "mine").glob("*.json")
    reason = json.loads(manifest.read_text())["end_reason"]
    assert reason == f're-aimed: run "theirs" by ada (pid {os.getpid()})'
