"""What a capture makes belongs to its user alone, as far as the umask does not say otherwise."""

import json
import stat

import pytest
from conftest import Launch

CODE = """
import json, os, sys, numpy as np, tpcapture
os.umask({umask})
tpcapture.capture("a", np.zeros(3))
while tpcapture.status()["counters"]["records"] < 1: pass
fds = [f"/proc/self/fd/{{fd}}" for fd in os.listdir("/proc/self/fd")]
pages = [os.stat(fd).st_mode for fd in fds if os.path.lexists(fd) and "memfd:tpcapture" in os.readlink(fd)]
run = tpcapture.status()["run"]
modes = {{name.rpartition(".")[2]: os.stat(f"{{run}}/{{name}}").st_mode for name in os.listdir(run)}}
print(json.dumps([pages, os.stat(run).st_mode, modes]))
"""


@pytest.mark.parametrize(("umask", "files"), [(0, 0o666), (0o022, 0o644), (0o077, 0o600)])
def test_modes(rank: Launch, umask: int, files: int) -> None:
    done = rank(CODE.format(umask=umask), TPCAPTURE="1")
    pages, run, modes = json.loads(done.stdout)
    assert [stat.S_IMODE(mode) for mode in pages] == [0o600]
    assert stat.S_IMODE(run) == 0o700
    assert {suffix: stat.S_IMODE(mode) for suffix, mode in modes.items()} == {
        "partial": files,
        "journal": files,
        "json": files,
    }
