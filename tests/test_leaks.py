"""Captures that begin and end, from inside or from outside, leave the process as it was.

TEST_CYCLES=10000 for the long form, which prints what it found.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import Launch, clean_env
from page import Page, until

CYCLES = int(os.environ.get("TEST_CYCLES", "300"))
WARM = 30
# malloc gives threads that live at once arenas of their own, and keeps these.
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}

STANDING = """
import atexit, gc, json, os, shutil, sys, time, numpy as np, tpcapture
q = np.arange(1000.0)
def standing(threads=1):
    # A writer that has said it is through may be a moment from its end.
    while len(os.listdir("/proc/self/task")) > threads: time.sleep(0.0001)
    gc.collect()
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return {"descriptors": len(os.listdir("/proc/self/fd")), "handlers": atexit._ncallbacks(),
            "mappings": sum(1 for _ in open("/proc/self/maps")), "rss_kib": int(status["VmRSS"].split()[0])}
"""


def check(before: dict[str, int], after: dict[str, int]) -> None:
    sys.stderr.write(f"{CYCLES} cycles: {before} before, {after} after\n")
    for what in ("descriptors", "handlers"):
        assert after[what] == before[what], (before, after)
    # The C library keeps the stacks of threads that lived at once, of two mappings each.
    assert after["mappings"] <= before["mappings"] + 40, (before, after)
    assert after["rss_kib"] <= before["rss_kib"] + 2048, (before, after)


def test_from_inside(rank: Launch) -> None:
    code = f"""
for i in range({WARM + CYCLES}):
    run = tpcapture.on("*", steps="1-2", run=f"r{{i}}")
    tpcapture.step()
    tpcapture.capture("q", q)
    if i % 2: tpcapture.step(); tpcapture.step()
    tpcapture.off()
    shutil.rmtree(run)
    if i == {WARM}: before = standing()
print(json.dumps([before, standing()]))
"""
    done = rank(STANDING + code, timeout=3600, **ONE_ARENA)
    before, after = json.loads(done.stdout.splitlines()[-1])
    check(before, after)


def test_from_inside_where_nothing_is_captured_or_nothing_can_be_written(rank: Launch) -> None:
    code = f"""
for i in range({WARM + CYCLES}):
    run = tpcapture.on("nothing" if i % 2 else "*", dir="/proc/no", run=f"r{{i}}")
    tpcapture.step()
    tpcapture.capture("q", q)
    tpcapture.off()
    if i == {WARM}: before = standing()
print(json.dumps([before, standing()]))
"""
    done = rank(STANDING + code, timeout=3600, **ONE_ARENA)
    before, after = json.loads(done.stdout.splitlines()[-1])
    check(before, after)


OUTSIDE = """
print("ready", flush=True)
tap = tpcapture.tap("q")
told = []
import threading
threading.Thread(target=lambda: told.extend(iter(sys.stdin.readline, "")), daemon=True).start()
n = 0
while n < 2:
    tpcapture.step()
    tap(q)
    time.sleep(0.0002)
    if len(told) > n:
        n += 1
        print(json.dumps(standing(2)), flush=True)
"""


@pytest.mark.parametrize("reaimed", [False, True])
def test_from_outside(tmp_path: Path, reaimed: bool) -> None:
    """Each capture is ended by `off`, or by the next one."""
    pipe = subprocess.PIPE
    line = [sys.executable, "-c", STANDING + OUTSIDE]
    env = clean_env(TPCAPTURE_MIN_FREE="0%", TPCAPTURE_RING="1MiB", **ONE_ARENA)
    with subprocess.Popen(line, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        page = Page(process.pid)

        def answered(what: str) -> dict[str, Any]:
            answer: dict[str, Any] = until(lambda: (found := page.answer())["state"] == what and found)
            return answer

        def standing() -> dict[str, int]:
            page.ask(op="off")
            until(lambda: answered("ended")["sealed"])
            process.stdin.write("\n")  # type: ignore[union-attr]
            process.stdin.flush()  # type: ignore[union-attr]
            found: dict[str, int] = json.loads(process.stdout.readline())  # type: ignore[union-attr]
            return found

        before = {}
        for i in range(WARM + CYCLES):
            request = {"op": "on", "id": i + 1, "run": f"r{i}", "dir": str(tmp_path), "by": {"pid": 1}}
            page.ask(**request, first=page.steps + 50)
            until(lambda i=i: (found := page.answer()).get("id") == i + 1 and found["state"] == "capturing")
            if not reaimed:
                page.ask(op="off")
                until(lambda: answered("ended")["sealed"])
            if i % 20 == 19:
                for run in tmp_path.iterdir():
                    shutil.rmtree(run, ignore_errors=i < WARM + CYCLES)
            if i == WARM:
                before = standing()
        check(before, standing())
        page.close()
        process.kill()
