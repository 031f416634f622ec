"""`tpcapture ps` and `status`: who is there, where each is, and who cannot be looked at, and why."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import clean_env
from live import Live, Rank, live, until

# A process with a page of its own making: size, seals, and words by their offset. With "noise" it writes what comes
# over all that others write, again and again.
PAGE = """
import fcntl, mmap, os, random, struct, sys, time
size, seals, words = eval(sys.argv[1])
fd = os.memfd_create("tpcapture", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
os.ftruncate(fd, size)
for offset, bytes in words(os.getpid()).items():
    os.pwrite(fd, bytes, offset)
fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
print("ready", flush=True)
while sys.argv[2] == "noise":
    at = random.randrange(16, 0x10000)
    os.pwrite(fd, random.randbytes(min(random.randrange(4096), 0x10000 - at)), at)
sys.stdin.read()
"""
HEAD = "lambda pid: {0: b'TPCAPTUR' + struct.pack('<IIQQQ', VERSION, pid, 0, 7, 2**64 - 1)}"
SEALED = "fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL"


@contextmanager
def page(
    size: str = "65536", seals: str = SEALED, version: int = 2, noise: str = "quiet"
) -> Iterator["subprocess.Popen[str]"]:
    made = f"({size}, {seals}, {HEAD.replace('VERSION', str(version))})"
    with subprocess.Popen(
        [sys.executable, "-c", PAGE, made, noise], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def command(*arguments: str, under: tuple[str, ...] = ()) -> Any:
    line = [*under, sys.executable, "-m", "tpcapture", *arguments]
    return subprocess.run(line, env=clean_env(), capture_output=True, text=True, check=False)


def on_terminal(line: list[str], columns: int, seconds: float) -> tuple[str, "subprocess.Popen[bytes]"]:
    """What a command writes to a terminal so wide until Ctrl-C, and the command."""
    import fcntl
    import struct
    import termios

    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        line,
        env=clean_env(TERM="xterm"),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    said = b""

    def read() -> None:
        nonlocal said
        while True:
            try:
                said += os.read(leader, 65536)
            except OSError:
                return

    reader = threading.Thread(target=read)
    reader.start()
    time.sleep(seconds)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=20)
    reader.join(timeout=20)
    os.close(leader)
    return said.decode(), process


def test_each_rank_has_a_row(tmp_path: Path) -> None:
    with live(tmp_path, 2, mode="hold") as job:
        job.make(3)
        pids = [rank.pid for rank in job.ranks]
        width = max(3, *(len(str(pid)) for pid in pids))
        rows = [f"{rank}     tp{rank}   {pid:<{width}}  off       3" for rank, pid in enumerate(pids)]
        assert job.command("ps").stdout.splitlines() == [f"rank  mesh  {'pid':<{width}}  state  step", *rows]


def test_a_capture_shows_where_each_rank_is(tmp_path: Path) -> None:
    with live(tmp_path, 2, mode="hold") as job:
        job.on("--select", "*=trace")
        job.ranks[0].make(7)
        job.ranks[1].make(5)
        [first, second] = job.ps()
        assert (first["steps"], first["step"], first["state"], first["rank"]) == (7, 7, "capturing", 0)
        assert (second["steps"], second["last_tap"]["tap"], second["last_tap"]["step"]) == (
            5,
            "layers.0.q",
            5,
        )
        assert first["counters"]["records"] == 0
        table = job.command("ps").stdout.splitlines()
        assert table[0].startswith(f"run {tmp_path}/run, switched on by root (pid ")
        assert "step7/layers.0.q" in table[2]
        assert "step5/layers.0.q" in table[3]
        said = job.command("status", str(tmp_path / "run")).stdout.splitlines()
        assert said[1] == "select    *=trace"
        assert said[2] == "began at  step 1 of the processes' own count"
        # Where nothing is kept there is no writer that could look.
        assert "ranks 0-1: idle, ends its capture at its next tap or step" in job.command("off").stdout
        job.make(1)
        assert {one["state"] for one in job.ps()} == {"ended"}
        assert not (tmp_path / "run").exists()


def test_json_has_what_scripts_need(tmp_path: Path) -> None:
    with live(tmp_path, 2) as job:
        job.on("--steps", "2", "--wait")
        one = job.ps()[1]
        assert (one["rank"], one["world"], one["pid"], one["state"]) == (1, 2, job.ranks[1].pid, "ended")
        assert one["mesh"] == {"dims": [{"name": "tp", "coord": 1, "size": 2}], "assumed": True}
        assert one["counters"] == {"records": 2, "bytes": 256, "segments": 1, "lost": 0, "refused": 0}
        assert one["by"]["user"]
        assert (one["stopped"], one["gone"], one["unheeded"], one["fault"]) == (False, False, False, None)
        [run] = job.command("status", "run", "--json").json["runs"]
        assert (run["run"], run["select"], len(run["processes"])) == (str(tmp_path / "run"), "*", 2)
        assert "no live process captures" in job.command("status", "other", check=2).stderr


def test_a_stopped_rank_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    with live(tmp_path, 2) as job, job.ranks[1].stopped():
        said = job.command("ps").stdout
        assert "off" in said
        assert "rank 1: does not answer, it is stopped (SIGSTOP, a terminal or a debugger)" in said


def test_a_process_without_a_page_says_what_it_lacks() -> None:
    child = subprocess.Popen(["sleep", "60"])
    try:
        assert "has no control page" in command("ps", "--pid", str(child.pid)).stderr
        off = Rank(0, 1, 0.001, "hold", TPCAPTURE="never")
        off.expect("ready")
        assert "TPCAPTURE=never" in command("on", "--pid", str(off.pid)).stderr
        off.end()
    finally:
        child.kill()
        child.wait()
    done = command("ps", "--pid", str(child.pid))
    assert (done.returncode, done.stderr) == (2, f"tpcapture: there is no process {child.pid}\n")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ({"version": 3}, "control page of version 3, expected 2: use the tpcapture that the process has"),
        ({"size": "4096"}, "no control page: expected 65536 bytes, found 4096"),
        ({"seals": "fcntl.F_SEAL_GROW"}, "expected seals against shrinking and growing"),
    ],
)
def test_a_page_that_cannot_be_used_is_named(made: dict[str, Any], words: str) -> None:
    with page(**made) as process:
        listed = json.loads(command("ps", "--json").stdout)
        [closed] = [one for one in listed["closed"] if one["pid"] == process.pid]
        assert words in closed["why"]
        assert words in command("on", "--pid", str(process.pid)).stderr


def test_a_process_that_never_answers_keeps_nobody(tmp_path: Path) -> None:
    with page() as silent, live(tmp_path, 2) as job:
        until(lambda: all(one["steps"] > 0 for one in job.ps()))
        arguments = [f"--pid={silent.pid}", "--dir", str(tmp_path), "--run", "run", "--steps", "2"]
        begin = time.monotonic()
        done = job.command("on", *arguments, "--json")
        assert time.monotonic() - begin < 10
        standings = {one["pid"]: one["standing"] for one in json.loads(done.stdout)["processes"]}
        assert standings == {silent.pid: "idle"} | {rank.pid: "taken" for rank in job.ranks}
        [one] = [
            one
            for one in json.loads(job.command("ps", f"--pid={silent.pid}", "--json").stdout)["processes"]
            if one["pid"] == silent.pid
        ]
        assert (one["steps"], one["fault"]) == (7, "it has said nothing of itself yet")


def test_a_page_full_of_noise_harms_nobody(tmp_path: Path) -> None:
    with page(noise="noise") as noisy, live(tmp_path, 2) as job:
        for _ in range(20):
            done = job.command("ps", f"--pid={noisy.pid}")
            assert "capture_cli" not in done.stderr
        done = job.command("on", f"--pid={noisy.pid}", "--dir", str(tmp_path), check=None)
        assert done.status in (0, 1, 2)
        assert "panicked" not in done.stderr
        job.command("off", f"--pid={noisy.pid}", check=None)
        # Without it all is as ever.
        job.on("--steps", "2", "--wait", run="after")


def private(*arguments: str) -> Any:
    """The command as the only process of its namespace."""
    under = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
    if subprocess.run([*under, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no namespaces here")
    return command(*arguments, under=under)


def test_where_nobody_is_there_it_says_how_to_become_visible() -> None:
    done = private("ps")
    assert (done.returncode, done.stdout) == (0, "")
    words = (
        "no process here has a control page; one has it from `import tpcapture` on, unless TPCAPTURE=never"
    )
    assert words in done.stderr
    assert private("on").returncode == 2
    assert json.loads(private("ps", "--json").stdout)["processes"] == []


def test_without_proc_it_says_so() -> None:
    under = (
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs none /proc && exec "$@"',
        "sh",
    )
    if subprocess.run([*under, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no namespaces here")
    done = command("ps", under=under)
    assert done.returncode == 2
    assert "expected /proc to be mounted, as that is where live processes are found" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_another_users_server_is_named_and_not_opened(tmp_path: Path) -> None:
    with live(tmp_path, 1) as job:
        [rank] = job.ranks
        under = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        done = command("ps", "--pid", str(rank.pid), under=under)
        assert done.returncode == 2
        assert f"pid {rank.pid} (" in done.stderr
        assert "it is root's: run this command as root, or with sudo" in done.stderr


def test_a_live_view_fits_80_columns_and_leaves_the_terminal_as_it_was(tmp_path: Path) -> None:
    with live(tmp_path, 2) as job:
        job.on()
        said, process = on_terminal(job.line("ps", "--watch"), 80, 4)
        assert process.returncode == -signal.SIGINT
        frames = said.split("\x1b[0J")
        assert len(frames) >= 3
        for line in frames[1].replace("\x1b", "\n").splitlines():
            assert len(line) <= 80, line
        # Neither the alternate screen, nor a hidden cursor, nor colours that stay.
        assert "\x1b[?" not in said
        job.command("off")


def test_a_live_view_without_a_terminal_is_lines_of_json(tmp_path: Path) -> None:
    with live(tmp_path, 1, mode="hold") as job:
        done = job.command("ps", "--watch", check=2)
        assert (
            done.stderr
            == "tpcapture: --watch: expected a terminal on stdout, or --json for an object a second\n"
        )
        with job.begin("ps", "--watch", "--json") as process:
            assert process.stdout is not None
            for _ in range(2):
                assert len(json.loads(process.stdout.readline())["processes"]) == 1
            process.stdout.close()
            assert process.wait(timeout=20) == 0


def test_a_command_is_no_server(tmp_path: Path) -> None:
    with live(tmp_path, 1, mode="hold") as job:
        with job.begin("ps", "--watch", "--json") as watching:
            assert watching.stdout is not None
            watching.stdout.readline()
            listed = [one["pid"] for one in json.loads(command("ps", "--json").stdout)["processes"]]
            watching.kill()
        assert watching.pid not in listed
        assert job.ranks[0].pid in listed


def test_a_launcher_stands_for_its_ranks(tmp_path: Path) -> None:
    with live(tmp_path, 2, mode="hold") as job:
        listed = Live([], tmp_path).command("ps", "--pid", str(os.getpid()), "--json").json["processes"]
        assert {rank.pid for rank in job.ranks} <= {one["pid"] for one in listed}
