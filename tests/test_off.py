"""Off costs nothing: no system call, thread, file or import, whatever the model does with its taps."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Launch, clean_env

# The loop stands between two system calls that nothing else makes: getpriority and getppid.
LOOP = """
import os, tpcapture
tap, capture, step = tpcapture.tap("x"), tpcapture.capture, tpcapture.step
class Tensor: pass
tensor = Tensor()
for i in range(100):
    tap(tensor); capture("y", tensor); step()
os.getpriority(os.PRIO_PROCESS, 0)
for i in range(100_000):
    tap(tensor)
    capture("y", tensor, placement="S(0)", rows=3)
    step()
os.getppid()
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="counts system calls with strace")
def test_taps_and_steps_make_no_system_call(rank: Launch, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    rank(LOOP, under=["strace", "-f", "-o", str(trace)], timeout=120)
    calls = trace.read_text().splitlines()
    [begin] = [i for i, line in enumerate(calls) if "getpriority(" in line]
    [end] = [i for i, line in enumerate(calls) if "getppid()" in line]
    assert calls[begin + 1 : end] == []


@pytest.mark.parametrize("value", ["off", "standby", "never"])
def test_off_has_no_thread_and_no_file(rank: Launch, tmp_path: Path, value: str) -> None:
    code = """
import json, os, threading
def files():
    found = {}
    for fd in os.listdir("/proc/self/fd"):
        try: found[fd] = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError: pass  # the listing's own
    return found
before = files()
import tpcapture
for _ in range(10):
    tpcapture.capture("x", None); tpcapture.step()
tpcapture.flush()
after = [name for fd, name in files().items() if fd not in before]
print(json.dumps([threading.active_count(), len(os.listdir("/proc/self/task")), after]))
"""
    (tmp_path / "cwd").mkdir()
    done = rank(f"import os; os.chdir({str(tmp_path / 'cwd')!r})\n" + code, TPCAPTURE=value)
    n_python_threads, n_threads, opened = json.loads(done.stdout)
    assert (n_python_threads, n_threads) == (1, 1)
    # The control page, in memory, by which another process may switch this one on.
    assert opened == ([] if value == "never" else ["/memfd:tpcapture (deleted)"])
    assert (list((tmp_path / "cwd").iterdir()), done.run_dir.parent.exists()) == ([], False)


def test_import_brings_in_no_framework(rank: Launch) -> None:
    code = """
import json, sys
before = set(sys.modules)
import tpcapture
tpcapture.capture("x", None); tpcapture.step(); tpcapture.tap("y")(None)
print(json.dumps(sorted({name.split(".")[0] for name in set(sys.modules) - before})))
"""
    modules = set(json.loads(rank(code).stdout))
    assert "tpcapture" in modules
    assert modules - {"tpcapture"} <= set(sys.stdlib_module_names)
    # These cost a server's start or change it by being there.
    assert not modules & {"multiprocessing", "asyncio", "ctypes", "logging", "threading", "subprocess"}


def test_capturing_imports_no_framework_either(rank: Launch) -> None:
    code = """
import sys, array, tpcapture
class Four:
    data = array.array("f", [1, 2, 3, 4])
    __array_interface__ = {"shape": (4,), "typestr": "<f4", "data": (data.buffer_info()[0], False), "version": 3}
tpcapture.capture("x", Four())
tpcapture.flush()
print([name for name in ("torch", "numpy", "ml_dtypes", "jax") if name in sys.modules], tpcapture.status()["counters"])
"""
    done = rank(code, TPCAPTURE="1")
    assert done.stdout.startswith("[] {'records': 1, 'bytes': 16,")


def test_import_takes_no_time_to_speak_of() -> None:
    """Seconds of the processor, the best of five, and generous."""
    code = "from time import process_time as t; s = t(); import tpcapture; print(t() - s)"
    command = [sys.executable, "-c", code]
    seconds = [float(subprocess.check_output(command, env=clean_env(), text=True)) for _ in range(5)]
    assert min(seconds) < 0.15


def test_a_tap_that_is_off_costs_less_than_a_python_call(rank: Launch) -> None:
    code = """
import timeit, tpcapture
tap = tpcapture.tap("x")
def nothing(tensor): pass
print(min(timeit.repeat("f(1)", globals={"f": tap}, number=200_000, repeat=9)))
print(min(timeit.repeat("f(1)", globals={"f": nothing}, number=200_000, repeat=9)))
"""
    off, python = map(float, rank(code).stdout.split())
    assert off < 1.5 * python


def test_off_needs_neither_home_nor_a_writable_directory(tmp_path: Path) -> None:
    """As in a container without a user."""
    tmp_path.chmod(0o500)
    env = {
        name: value for name, value in clean_env().items() if name not in ("HOME", "USER", "TMPDIR", "PATH")
    }
    code = "import tpcapture; tpcapture.capture('x', 1); tpcapture.step(); print(tpcapture.status()['state'])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    tmp_path.chmod(0o700)
    assert (done.returncode, done.stdout, done.stderr) == (0, "off\n", "")
    assert list(tmp_path.iterdir()) == []


def test_a_capture_that_ended_is_off_again(rank: Launch) -> None:
    """Nobody is left: the writer's thread and its memory go when the capture does."""
    code = """
import json, os, time, numpy as np, tpcapture
def threads():
    found = []
    for task in os.listdir("/proc/self/task"):
        try: found.append(open(f"/proc/self/task/{task}/comm").read().strip())
        except OSError: pass  # it has just ended
    return found
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
before = resident()
with tpcapture.capturing(os.environ["TPCAPTURE_DIR"]):
    tpcapture.capture("x", np.zeros(1 << 20))
    tpcapture.flush()  # A thread names itself: by now it has.
    during = threads()
for _ in range(100):
    if "tpcapture-write" not in threads(): break
    time.sleep(0.01)
print(json.dumps([during, threads(), resident() - before]))
"""
    during, after, grown = json.loads(rank(code).stdout)
    # The kernel keeps 15 bytes of a thread's name.
    assert "tpcapture-write" in during
    assert "tpcapture-write" not in after
    assert grown < 64 << 20
