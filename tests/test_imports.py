"""However tpcapture is imported: in a thread, again, under two names, in another interpreter."""

import json
from pathlib import Path

import pytest
from conftest import Launch

import tpcapture


def test_in_a_thread(rank: Launch) -> None:
    code = """
import threading, numpy as np
def work():
    import tpcapture
    tpcapture.step()
    tpcapture.capture("a", np.zeros(3))
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    done = rank(code, TPCAPTURE="1")
    assert done.complaints == ""
    assert [(point.tap, point.step) for point in tpcapture.open(done.run_dir)] == [("a", 1)]


AGAIN = """
import json, os, sys, numpy as np, tpcapture
tpcapture.capture("first", np.zeros(3))
{again}
import {name} as second
second.step()
second.capture("second", np.zeros(3))
assert second.status()["run"] == tpcapture.status()["run"]
print(json.dumps([second.status()["step"], len(os.listdir("/proc/self/task"))]))
"""
RELOADED = "for name in [name for name in sys.modules if name.startswith('tpcapture')]: del sys.modules[name]"
COPIED = "import pathlib, shutil, tempfile\nwhere = tempfile.mkdtemp(); sys.path.insert(0, where)\n"
COPIED += "shutil.copytree(pathlib.Path(tpcapture.__file__).parent, where + '/copied')"


@pytest.mark.parametrize(("again", "name"), [(RELOADED, "tpcapture"), (COPIED, "copied")])
def test_a_second_import_finds_the_capture_of_the_first(rank: Launch, again: str, name: str) -> None:
    done = rank(AGAIN.format(again=again, name=name), TPCAPTURE="1")
    assert done.complaints == ""
    # One step, and one writer beside the thread of Python.
    assert json.loads(done.stdout) == [1, 2]
    assert [(point.tap, point.step) for point in tpcapture.open(done.run_dir)] == [
        ("first", 0),
        ("second", 1),
    ]


SUB = """
try:
    import _interpreters as interpreters
    execute = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    execute = interpreters.run_string
{before}
execute(interpreters.create(), '''
try:
    import tpcapture
except ImportError as error:
    print(error, flush=True)
''')
import numpy as np, tpcapture
tpcapture.capture("main", np.zeros(3))
"""


@pytest.mark.parametrize("before", ["", "import tpcapture"])
def test_a_subinterpreter_is_refused_and_the_main_one_is_as_ever(rank: Launch, before: str) -> None:
    done = rank(SUB.format(before=before), TPCAPTURE="1")
    # Newer Pythons refuse modules of one phase by themselves.
    assert "subinterpreter" in done.stdout
    assert done.complaints == ""
    assert [point.tap for point in tpcapture.open(done.run_dir)] == ["main"]


def test_a_module_under_its_own_path_is_another_tpcapture(rank: Launch, tmp_path: Path) -> None:
    """Its library is another, with a page and captures of its own; both do what they are told."""
    copy = f"""
import pathlib, shutil, sys, numpy as np, tpcapture
tpcapture.capture("first", np.zeros(3))
shutil.copytree(pathlib.Path(tpcapture.__file__).parent, {str(tmp_path / "tpcapture")!r})
for name in [name for name in sys.modules if name.startswith("tpcapture")]: del sys.modules[name]
sys.path.insert(0, {str(tmp_path)!r})
import tpcapture as second
second.capture("second", np.zeros(3))
"""
    done = rank(copy, TPCAPTURE="1")
    run = tpcapture.open(done.run_dir)
    assert (run.errors, sorted(point.tap for point in run)) == ([], ["first", "second"])
