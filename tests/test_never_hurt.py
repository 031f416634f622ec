"""Whatever capture meets, the model's outputs are those of an uncaptured run, bit by bit, and the model ends."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import clean_env
from forward import STEPS, WORLD, Forward, Rank
from live import until
from page import Page

import tpcapture


@pytest.fixture
def forward(tmp_path: Path) -> Forward:
    return Forward(tmp_path)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The hash of the outputs of ranks that nobody captures, which are replicas."""
    ranks = Forward(tmp_path_factory.mktemp("uncaptured"))(TPCAPTURE="never")
    [found] = {rank.outputs for rank in ranks}
    assert [rank.status for rank in ranks] == [0] * WORLD
    assert re.fullmatch("[0-9a-f]{64}", found)
    return found


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library that makes the disk misbehave, see shim.c."""
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return str(library)


def unharmed(ranks: list[Rank], outputs: str, said: str = "") -> None:
    """Both ranks made the outputs and ended well; `said` is a pattern of what each said, once."""
    assert [(rank.outputs, rank.status) for rank in ranks] == [(outputs, 0)] * WORLD, ranks
    for rank in ranks:
        assert "Traceback" not in rank.said, rank.said
        if said:
            assert len(re.findall(said, rank.said)) == 1, rank.said


def test_everything_is_captured_and_right(forward: Forward, outputs: str) -> None:
    unharmed(forward(TPCAPTURE="1"), outputs)
    run = tpcapture.open(forward.run)
    assert run.errors == []
    # 4 layers of 3 taps, of which the first is called twice.
    assert len(list(run)) == 4 * 4 * STEPS
    assert {len(point.records) for point in run} == {WORLD}
    assert tpcapture.compare(forward.run).verdict in ("IDENTICAL", "ROUNDING")


@pytest.mark.parametrize("mode", ["stats", "hash"])
def test_what_keeps_no_tensor(forward: Forward, outputs: str, mode: str) -> None:
    unharmed(forward(TPCAPTURE=f"*={mode}"), outputs)
    run = tpcapture.open(forward.run)
    assert (run.errors, len(list(run))) == ([], 4 * 4 * STEPS)
    # Replicas hold the same, whose statistics alone prove nothing.
    assert tpcapture.compare(forward.run).verdict == ("IDENTICAL" if mode == "hash" else None)


def test_a_selection_that_matches_everything_in_the_smallest_ring(forward: Forward, outputs: str) -> None:
    """The largest tensor, of 64 KiB, goes through in pieces."""
    ranks = forward(TPCAPTURE="*", TPCAPTURE_RING="64KiB", TPCAPTURE_ON_FULL="wait:forever")
    unharmed(ranks, outputs)
    assert len(list(tpcapture.open(forward.run))) == 4 * 4 * STEPS


def test_a_full_ring_that_drops(forward: Forward, outputs: str) -> None:
    unharmed(forward(TPCAPTURE="1", TPCAPTURE_RING="64KiB", TPCAPTURE_ON_FULL="drop"), outputs)


def test_a_disk_that_is_full(forward: Forward, outputs: str, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small], check=False)
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        ranks = forward(TPCAPTURE="1", TPCAPTURE_DIR=str(small))
        unharmed(ranks, outputs, "capture ended: .*No space left on device")
        run = tpcapture.open(small)
        assert run.errors == []
        assert list(run)
    finally:
        subprocess.run(["umount", "-l", small], check=True)


@pytest.mark.parametrize("mode", ["full", "stats", "hash"])
def test_files_that_may_not_grow_and_the_signal_that_goes_with_it(
    forward: Forward, outputs: str, mode: str
) -> None:
    """Python ignores SIGXFSZ; a server that does not would be killed by it."""
    limit = """
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
"""
    unharmed(forward(limit, TPCAPTURE=f"*={mode}"), outputs, "capture ended: .*File too large")
    assert tpcapture.open(forward.run).errors == []


def test_a_directory_that_is_removed_while_it_is_written(forward: Forward, outputs: str) -> None:
    meet = """
def meet(step):
    if step in (3, 5) and rank == 0:
        tpcapture.flush()
        shutil.rmtree(run, ignore_errors=True)
"""
    unharmed(forward(meet, TPCAPTURE="1"), outputs)


@pytest.mark.parametrize("where", ["/proc/tpcapture", "/dev/null/x", "a\0b"[:1] * 300])
def test_a_directory_that_cannot_be_made(forward: Forward, outputs: str, where: str) -> None:
    unharmed(forward(TPCAPTURE="1", TPCAPTURE_DIR=where), outputs, "capture ended: ")


def test_a_writer_that_panics(forward: Forward, outputs: str, shim: str) -> None:
    """Its system lies about how much it has written, which slicing does not survive."""
    ranks = forward(TPCAPTURE="1", LD_PRELOAD=shim, SHIM="lie")
    unharmed(ranks, outputs, "capture ended: the writer panicked: ")
    assert list(tpcapture.open(forward.run)) == []


def test_a_disk_that_hangs_ends_the_capture_once(forward: Forward, outputs: str, shim: str) -> None:
    start = time.monotonic()
    ranks = forward(
        TPCAPTURE="1", TPCAPTURE_RING="64KiB", TPCAPTURE_ON_FULL="wait:300ms", LD_PRELOAD=shim, SHIM="hang"
    )
    unharmed(ranks, outputs, "capture ended: ring full: ")
    # One wait for the ring, one of a second at exit, and what starting Python and torch takes.
    assert time.monotonic() - start < 40


def test_switching_on_and_off_under_load(forward: Forward) -> None:
    """TEST_SWITCHINGS=1000 for the long form."""
    n = int(os.environ.get("TEST_SWITCHINGS", "15"))
    steps, waiting = 40 * n, "\ndef meet(step):\n    if step == n_steps: sys.stdin.readline()\n"

    def switch(ranks: list["subprocess.Popen[str]"]) -> None:
        pids = [f"--pid={rank.pid}" for rank in ranks]
        for i in range(n):
            for arguments in (["on", "--dir", str(forward.directory / "on"), "--run", f"r{i}"], ["off"]):
                line = [sys.executable, "-m", "tpcapture", *arguments, *pids]
                done = subprocess.run(line, env=clean_env(), capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stdout + done.stderr
        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.write("\n")
            rank.stdin.flush()

    [expected] = {rank.outputs for rank in forward(steps=steps, TPCAPTURE="never")}
    unharmed(forward(waiting, steps=steps, beside=switch), expected)
    for run in (forward.directory / "on").iterdir():
        assert tpcapture.open(run).errors == []


def test_children_of_all_kinds(forward: Forward, outputs: str) -> None:
    """A child of fork that captures, one that does not, and one of spawn, while a capture is on."""
    meet = """
import multiprocessing
def meet(step):
    if step == 4:
        pid = os.fork()
        if pid == 0:
            taps[0][0](x)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        for method in ("fork", "spawn"):
            context = multiprocessing.get_context(method)
            child = context.Process(target=time.sleep, args=(0,))
            child.start()
            child.join()
            assert child.exitcode == 0
"""
    unharmed(forward(meet, TPCAPTURE="1"), outputs)
    assert len(list(tpcapture.open(forward.run))) == 4 * 4 * STEPS


def test_another_program_takes_the_process_over(forward: Forward, outputs: str) -> None:
    code = "import os; print(sorted(os.listdir('/proc/self/task')) == [str(os.getpid())])"
    ranks = forward(
        after=f"sys.stdout.flush(); os.execv(sys.executable, ['x', '-c', {code!r}])", TPCAPTURE="1"
    )
    unharmed(ranks, outputs)
    assert tpcapture.open(forward.run).errors == []


def test_a_rank_that_is_stopped_for_a_while(forward: Forward, outputs: str) -> None:
    """The other waits for it in a collective; the capture that is ordered meanwhile begins at one step in both."""
    waiting = "\ndef meet(step):\n    if step == 3: sys.stdin.readline()\n"

    def stop(ranks: list["subprocess.Popen[str]"]) -> None:
        ranks[1].send_signal(signal.SIGSTOP)
        until(lambda: Path(f"/proc/{ranks[1].pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        line = [sys.executable, "-m", "tpcapture", "on", *(f"--pid={rank.pid}" for rank in ranks)]
        line += ["--dir", str(forward.directory), "--run", "stopped"]
        done = subprocess.run(line, env=clean_env(), capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stdout + done.stderr
        assert "rank 1: stopped" in done.stdout
        ranks[1].send_signal(signal.SIGCONT)
        for rank in ranks:
            assert rank.stdin is not None
            rank.stdin.write("\n")
            rank.stdin.flush()

    unharmed(forward(waiting, beside=stop), outputs)
    points = list(tpcapture.open(forward.directory / "stopped"))
    assert points
    assert {len(point.records) for point in points} == {WORLD}


@pytest.mark.parametrize(
    ("end", "status"),
    [
        ("sys.exit(0)", 0),
        ("1 / 0", 1),
        ("threading.Thread(target=sys.exit).start()", 0),
        ("threading.Thread(target=lambda: (time.sleep(0.05), taps[0][0](x))).start()", 0),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", -signal.SIGTERM),
        ("os._exit(7)", 7),
        ("os.abort()", -signal.SIGABRT),
    ],
)
def test_the_process_ends_as_it_would(forward: Forward, outputs: str, end: str, status: int) -> None:
    ranks = forward(after=end, steps=STEPS, TPCAPTURE="1")
    assert [(rank.outputs, rank.status) for rank in ranks] == [(outputs, status)] * WORLD, ranks
    assert tpcapture.open(forward.run).errors == []


def test_a_page_that_holds_anything(forward: Forward) -> None:
    """Noise over all that a command may write, and over the words by which it calls, while the ranks step."""
    steps, waiting = 500, "\ndef meet(step):\n    if step == n_steps: sys.stdin.readline()\n"

    def scribble(ranks: list["subprocess.Popen[str]"]) -> None:
        pages = [Page(rank.pid) for rank in ranks]
        for seed in range(250):
            for page in pages:
                noise = os.urandom(64)
                page.map[0x2000 + seed * 24 % 0x5F00 : 0x2000 + seed * 24 % 0x5F00 + 64] = noise
                page.store(0x80, seed if seed % 3 else int.from_bytes(noise[:8], "little"))
                page.store(0x10, int.from_bytes(noise[8:16], "little"))
                page.store(0x20, int.from_bytes(noise[16:24], "little") if seed % 2 else 0)
            time.sleep(0.0005)
        for rank, page in zip(ranks, pages, strict=True):
            page.close()
            assert rank.stdin is not None
            rank.stdin.write("\n")
            rank.stdin.flush()

    [expected] = {rank.outputs for rank in forward(steps=steps, TPCAPTURE="never")}
    unharmed(forward(waiting, steps=steps, beside=scribble), expected, "control page: ")


SECCOMP = """
# Refuses memfd_create with EPERM, as a strict container does.
import struct
libc = ctypes.CDLL(None, use_errno=True)
nr = {"x86_64": 319, "aarch64": 279}[os.uname().machine]
program = b"".join(struct.pack("<HBBI", *op) for op in
    [(0x20, 0, 0, 0), (0x15, 0, 1, nr), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)])
buffer = ctypes.create_string_buffer(program)
fprog = struct.pack("<HxxxxxxQ", 4, ctypes.addressof(buffer))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.create_string_buffer(fprog)) == 0
"""


def test_no_memfd_is_said_and_capture_from_inside_works(forward: Forward, outputs: str) -> None:
    ranks = forward(before_import=SECCOMP, TPCAPTURE="1")
    unharmed(ranks, outputs, "no control page, only this process itself can switch it: ")
    assert len(list(tpcapture.open(forward.run))) == 4 * 4 * STEPS


@pytest.fixture
def without_proc() -> list[str]:
    """A command that runs another where /proc is not mounted."""
    hidden = ["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh"]
    if subprocess.run([*hidden, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unmounting /proc needs root")
    return hidden


def test_no_proc(forward: Forward, without_proc: list[str]) -> None:
    """torch itself computes otherwise there, as it does not know the processor."""
    [expected] = {rank.outputs for rank in forward(under=without_proc, TPCAPTURE="never")}
    unharmed(forward(under=without_proc, TPCAPTURE="1"), expected)
    assert len(list(tpcapture.open(forward.run))) == 4 * 4 * STEPS
