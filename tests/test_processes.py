"""No two processes share a file, whatever makes them: fork, multiprocessing, exec, several ranks at once.

What a process captured is sealed when it exits.
"""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Launch, clean_env

import tpcapture

PRELUDE = "import os, sys, json, numpy as np, tpcapture\ndef x(n): return np.full(1000, n, np.int32)\n"


def values(run: tpcapture.Run) -> dict[str, list[tuple[str, int]]]:
    """By process: taps and the one value that fills each record."""
    found: dict[str, list[tuple[str, int]]] = {}
    for point in run:
        for record in point.records:
            array = record.numpy()
            assert (array == array[0]).all()
            found.setdefault(record.process, []).append((record.tap, int(array[0])))
    return found


def processes(run_dir: Path, end: str = "exit") -> list[list[tuple[str, int]]]:
    """What each process of the run captured. Every file is whole and sealed, every manifest says how it ended."""
    run = tpcapture.open(run_dir)
    assert run.errors == []
    assert list(run_dir.glob("*.partial")) + list(run_dir.glob("*.journal")) == []
    found = values(run)
    assert found.keys() == run.manifests.keys()
    assert {manifest["end_reason"] for manifest in run.manifests.values()} == {end}
    for manifest in run.manifests.values():
        assert manifest["counters"]["records"] == len(found[manifest["process"]["id"]])
    return sorted(found.values())


def test_what_is_open_is_sealed_at_exit(rank: Launch) -> None:
    done = rank(PRELUDE + "tpcapture.capture('a', x(1))", TPCAPTURE="1")
    assert processes(done.run_dir) == [[("a", 1)]]


@pytest.mark.parametrize("end", ["sys.exit(3)", "raise SystemExit(3)", "1 / 0"])
def test_what_is_open_is_sealed_however_python_ends(rank: Launch, end: str) -> None:
    done = rank(PRELUDE + "tpcapture.capture('a', x(1))\n" + end, TPCAPTURE="1", check=False)
    assert done.returncode != 0
    assert processes(done.run_dir) == [[("a", 1)]]


FORK = """
tpcapture.capture('before', x(1))
tpcapture.step()
pid = os.fork()
if pid == 0:
    tpcapture.capture('child', x(2))
    tpcapture.step()
    tpcapture.capture('child', x(3))
    sys.exit(0)
tpcapture.capture('parent', x(4))
assert os.waitpid(pid, 0)[1] == 0
tpcapture.capture('parent', x(5))
"""


def test_a_forked_child_writes_files_of_its_own(rank: Launch) -> None:
    done = rank(PRELUDE + FORK, TPCAPTURE="1", rank=1, world=2)
    assert processes(done.run_dir) == [
        [("before", 1), ("parent", 4), ("parent", 5)],
        [("child", 2), ("child", 3)],
    ]
    # Two processes that claim one rank stay apart, and the child's steps go on from its parent's.
    stems = {path.name.split(".pid")[1].split(".")[0] for path in done.files("rank1.tp1of2.pid*.safetensors")}
    assert len(stems) == 2
    [first, second] = [point.records[0] for point in tpcapture.open(done.run_dir) if point.tap == "child"]
    assert (first.step, second.step) == (1, 2)
    assert done.complaints == ""


def test_a_child_of_a_fork_before_the_first_record(rank: Launch) -> None:
    code = """
pid = os.fork()
tpcapture.capture('child' if pid == 0 else 'parent', x(1))
if pid == 0: sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    assert processes(rank(PRELUDE + code, TPCAPTURE="1").run_dir) == [[("child", 1)], [("parent", 1)]]


def test_a_child_of_a_fork_between_the_steps_that_are_captured(rank: Launch) -> None:
    """Taps are as off then, and the child's begin at the same step all the same."""
    code = """
def steps(name, n):
    for i in range(n):
        tpcapture.step()
        tpcapture.capture(name, x(i))
steps('both', 2)
pid = os.fork()
steps('child' if pid == 0 else 'parent', 4)
if pid == 0: sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
"""
    done = rank(PRELUDE + code, TPCAPTURE="1", TPCAPTURE_STEPS="4-5")
    found = processes(done.run_dir, end="steps done")
    assert found == [[("child", 1), ("child", 2)], [("parent", 1), ("parent", 2)]]


def test_a_childs_steps_count_on_from_the_fork_however_far_the_parent_goes_meanwhile(rank: Launch) -> None:
    """The page is the parent's until the child has one: what the parent counts there is not the child's."""
    code = """
for _ in range(3): tpcapture.step()
for _ in range(50):
    begin = tpcapture.status()["abs_step"]
    pid = os.fork()
    for _ in range(5): tpcapture.step()
    assert tpcapture.status()["abs_step"] == begin + 5, tpcapture.status()
    if pid == 0: os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""
    rank(PRELUDE + code, TPCAPTURE="1")


def test_a_child_that_captures_nothing_leaves_nothing(rank: Launch) -> None:
    code = """
tpcapture.capture('parent', x(1))
pid = os.fork()
if pid == 0: sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
tpcapture.capture('parent', x(2))
"""
    assert processes(rank(PRELUDE + code, TPCAPTURE="1").run_dir) == [[("parent", 1), ("parent", 2)]]


def test_forks_in_the_middle_of_captures_neither_hang_nor_tear_anything(rank: Launch) -> None:
    """A thread captures tensors so large that the GIL is released meanwhile: a fork finds any lock of ours taken."""
    code = """
import threading
stop, large = False, np.zeros(500_000, np.int32)
def load():
    i = 0
    while not stop:
        large.fill(i)
        tpcapture.capture('load', large); i += 1
thread = threading.Thread(target=load); thread.start()
for child in range(8):
    pid = os.fork()
    if pid == 0:
        for i in range(5): tpcapture.capture('child', x(100 * child + i))
        tpcapture.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
stop = True; thread.join()
"""
    done = rank(PRELUDE + code, TPCAPTURE="1", TPCAPTURE_RING="4MiB")
    run = tpcapture.open(done.run_dir)
    assert run.errors == []
    by_process = list(values(run).values())
    children = sorted(records for records in by_process if records[0][0] == "child")
    assert children == [[("child", 100 * child + i) for i in range(5)] for child in range(8)]
    [loaded] = [records for records in by_process if records[0][0] == "load"]
    assert loaded == [("load", i) for i in range(len(loaded))]
    assert len(loaded) > 8


CHILD = """
def work(n):
    tpcapture.capture('child', x(n))
if __name__ == '__main__':
    import multiprocessing
    tpcapture.capture('parent', x(0))
    context = multiprocessing.get_context(METHOD)
    children = [context.Process(target=work, args=(n,)) for n in (1, 2)]
    for child in children: child.start()
    for child in children: child.join()
    assert [child.exitcode for child in children] == [0, 0]
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_seal_when_they_exit(tmp_path: Path, method: str) -> None:
    script = tmp_path / "main.py"
    script.write_text(PRELUDE + CHILD.replace("METHOD", repr(method)))
    env = clean_env(TPCAPTURE="1", TPCAPTURE_DIR=str(tmp_path / "runs"), TPCAPTURE_RUN="run")
    done = subprocess.run(
        [sys.executable, script], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr.count("capturing to")) == (0, done.stderr.count("\n"))
    assert processes(tmp_path / "runs/run") == [[("child", 1)], [("child", 2)], [("parent", 0)]]


def test_exec_begins_anew(rank: Launch) -> None:
    """What was captured before exec replaced the program is readable; the program after it captures on."""
    code = """
if len(sys.argv) == 1:
    tpcapture.capture('before', x(1))
    tpcapture.flush()
    tpcapture.capture('before', x(2))
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, '-c', os.environ['CODE'], 'again'])
tpcapture.capture('after', x(3))
"""
    done = rank(PRELUDE + code, TPCAPTURE="1", CODE=PRELUDE + code)
    found = sorted(values(tpcapture.open(done.run_dir)).values())
    assert found[0] == [("after", 3)]
    assert found[1][0] == ("before", 1)
    assert len(found) == 2


MESH = "tpcapture.capture('q', x(int(os.environ.get('TPCAPTURE_RANK', 99))))"


def test_eight_ranks_write_into_one_run(tmp_path: Path) -> None:
    """PP=2 x DP=2 x TP=2, two of them not told their rank: nine names, none shared, no rank made up."""
    env = clean_env(
        TPCAPTURE="1", TPCAPTURE_DIR=str(tmp_path), TPCAPTURE_RUN="run", TPCAPTURE_MESH="pp=2,dp=2,tp=2"
    )
    told = [{"TPCAPTURE_RANK": str(rank)} if rank not in (2, 5) else {} for rank in range(8)]
    ranks = [subprocess.Popen([sys.executable, "-c", PRELUDE + MESH], env=env | extra) for extra in told]
    assert [process.wait(60) for process in ranks] == [0] * 8
    # Of each process once: on a crowded machine a segment may be due between two records.
    stems = {path.name.rsplit(".", 2)[0] for path in (tmp_path / "run").glob("*.safetensors")}
    names = sorted(stem.split(".pid")[0] for stem in stems)
    # Rank 6 of sizes 2, 2, 2 is 110: the last dimension varies fastest.
    assert names == [
        "rank0.pp0of2.dp0of2.tp0of2",
        "rank1.pp0of2.dp0of2.tp1of2",
        "rank3.pp0of2.dp1of2.tp1of2",
        "rank4.pp1of2.dp0of2.tp0of2",
        "rank6.pp1of2.dp1of2.tp0of2",
        "rank7.pp1of2.dp1of2.tp1of2",
        "rankunknown",
        "rankunknown",
    ]
    run = tpcapture.open(tmp_path / "run")
    assert run.errors == []
    told_ranks = {
        record.rank: int(record.numpy()[0]) for record in run["q"].records if record.rank is not None
    }
    assert told_ranks == {rank: rank for rank in (0, 1, 3, 4, 6, 7)}
    assert [int(r.numpy()[0]) for r in run["q"].records if r.rank is None] == [99, 99]
    assert {r.mesh["dp"] for r in run["q"].records if r.rank in (3, 6, 7)} == {(1, 2)}


def test_a_restarted_rank_leaves_the_files_of_the_first(rank: Launch) -> None:
    first = rank(PRELUDE + "tpcapture.capture('a', x(1))", TPCAPTURE="1", rank=1, world=2)
    before = {path: path.read_bytes() for path in first.run_dir.iterdir()}
    rank(PRELUDE + "tpcapture.capture('a', x(2))", TPCAPTURE="1", rank=1, world=2)
    assert {path: path.read_bytes() for path in before} == before
    run = tpcapture.open(first.run_dir)
    assert [int(record.numpy()[0]) for record in run["a"].records] == [1, 2]
    assert int(run["a"].ranks[1].numpy()[0]) == 2


def test_torchrun_tells_each_process_its_rank(torchrun: Launch) -> None:
    code = PRELUDE + "tpcapture.capture('q', x(int(os.environ['RANK'])))"
    done = torchrun(code, ranks=2, TPCAPTURE="1")
    run = tpcapture.open(done.run_dir)
    assert {rank: int(record.numpy()[0]) for rank, record in run["q"].ranks.items()} == {0: 0, 1: 1}
    assert {record.rank: record.mesh for record in run["q"].records} == {0: {"tp": (0, 2)}, 1: {"tp": (1, 2)}}
    assert all(m["mesh"]["assumed"] and m["identity_from"] == "RANK" for m in run.manifests.values())


def test_an_initialised_torch_distributed_is_trusted_over_the_launcher(rank: Launch) -> None:
    code = """
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
tpcapture.capture("q", x(1))
"""
    done = rank(PRELUDE + code, rank=1, world=2, TPCAPTURE="1")
    [manifest] = tpcapture.open(done.run_dir).manifests.values()
    assert (manifest["rank"], manifest["world"], manifest["identity_from"]) == (0, 1, "torch.distributed")
    assert manifest["versions"].keys() >= {"tpcapture", "python", "torch", "numpy"}


def test_a_run_name_serves_once_in_a_process(rank: Launch) -> None:
    code = """
for i in range(3):
    with tpcapture.capturing(os.environ["TPCAPTURE_DIR"]) as path:
        tpcapture.capture("a", x(i))
    print(path.name)
"""
    done = rank(PRELUDE + code)
    assert done.stdout.split() == ["run", "run-2", "run-3"]
    for i, name in enumerate(["run", "run-2", "run-3"]):
        [[record]] = values(tpcapture.open(done.run_dir.parent / name)).values()
        assert record == ("a", i)


def test_copies_of_a_model_keep_its_taps(rank: Launch, tmp_path: Path) -> None:
    """Deep-copied, pickled, and saved by torch."""
    code = """
import copy, pickle, torch
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tap, self.weight = tpcapture.tap("out", placement="S(0)"), torch.nn.Parameter(torch.ones(3))
    def forward(self, a):
        self.tap(a * self.weight)
model = Model()
torch.save(model, os.environ["MODEL"])
loaded = torch.load(os.environ["MODEL"], weights_only=False)
for i, twin in enumerate((model, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded)):
    twin(torch.full((3,), float(i)))
"""
    done = rank(PRELUDE + code, TPCAPTURE="1", MODEL=str(tmp_path / "model.pt"))
    run = tpcapture.open(done.run_dir)
    records = [run["out", 0, call].ranks[None] for call in range(4)]
    assert [record.numpy().tolist() for record in records] == [[float(i)] * 3 for i in range(4)]
    assert {record.placement for record in records} == {"S(0)"}


@pytest.mark.parametrize("first", ["", "tpcapture.capture('first', x(1))"])
def test_what_exit_handlers_capture_is_sealed(rank: Launch, first: str) -> None:
    code = f"import atexit\natexit.register(lambda: tpcapture.capture('late', x(2)))\n{first}"
    records = [("first", 1), ("late", 2)] if first else [("late", 2)]
    assert processes(rank(PRELUDE + code, TPCAPTURE="1").run_dir) == [records]


def test_a_loss_that_is_counted_last_is_in_the_manifest(rank: Launch) -> None:
    """Several threads find the capture ended while they have a tensor in their hands."""
    code = """
import threading
large, threads, go = np.zeros(1_000_000, np.int32), [], True
def load():
    while go: tpcapture.capture("a", large)
for attempt in range(20):
    go = True
    with tpcapture.capturing(os.environ["TPCAPTURE_DIR"]) as path:
        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads: thread.start()
        while tpcapture.status()["counters"]["records"] == 0: pass
    go = False
    for thread in threads: thread.join()
    [manifest] = tpcapture.open(path).manifests.values()
    status = tpcapture.status()
    assert manifest["counters"] == status["counters"], (manifest["counters"], status["counters"])
    assert manifest["losses"] == status["losses"]
"""
    rank(PRELUDE + code, TPCAPTURE_RING="1MiB")


def test_what_was_flushed_is_counted(rank: Launch) -> None:
    code = """
tpcapture.capture("a", x(1))
tpcapture.flush()
assert tpcapture.status()["counters"]["segments"] == 1
[manifest] = tpcapture.open(tpcapture.status()["run"]).manifests.values()
assert manifest["counters"]["records"] == 1
"""
    rank(PRELUDE + code, TPCAPTURE="1")


def test_a_model_that_changes_its_directory_does_not_move_the_run(tmp_path: Path) -> None:
    code = """
os.mkdir("elsewhere")
os.chdir("elsewhere")
tpcapture.capture("a", x(1))
assert str(tpcapture.status()["run"]) == os.path.join(os.path.dirname(os.getcwd()), "runs/run")
"""
    env = clean_env(TPCAPTURE="1", TPCAPTURE_DIR="runs", TPCAPTURE_RUN="run")
    subprocess.run([sys.executable, "-c", PRELUDE + code], env=env, cwd=tmp_path, timeout=60, check=True)
    assert processes(tmp_path / "runs/run") == [[("a", 1)]]


def test_a_stderr_that_nobody_reads_does_not_hold_the_model_up(rank: Launch) -> None:
    code = """
_, stderr = os.pipe()
os.dup2(stderr, 2)
os.set_blocking(2, False)
try:
    while True: os.write(2, b"x" * 4096)
except BlockingIOError: pass
os.set_blocking(2, True)
tpcapture.capture("a", "no tensor")
tpcapture.capture("b", x(1))
"""
    done = rank(PRELUDE + code, TPCAPTURE="1", timeout=30)
    assert processes(done.run_dir) == [[("b", 1)]]
