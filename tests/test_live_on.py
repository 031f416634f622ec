"""`tpcapture on`: all ranks capture the same steps, whatever they are doing when it comes."""

import os
import resource
import signal
import threading
import time
from pathlib import Path

import pytest
from live import Live, live, until

import tpcapture


def steps(run: Path) -> dict[int | None, list[tuple[int, int]]]:
    """By rank, the captured steps and the passes of which they hold the values."""
    found: dict[int | None, list[tuple[int, int]]] = {}
    for point in tpcapture.open(run):
        for record in point.records:
            found.setdefault(record.rank, []).append((record.step, int(record.numpy()[0])))
    return {rank: sorted(of) for rank, of in sorted(found.items(), key=str)}


def check_same(run: Path, world: int, n_steps: int) -> None:
    """Every rank has steps 1 to n, of the same passes."""
    found = steps(run)
    assert list(found) == list(range(world))
    first = found[0][0][1]
    for of in found.values():
        assert of == [(step, first + step - 1) for step in range(1, n_steps + 1)]


def test_all_ranks_capture_the_same_steps(tmp_path: Path) -> None:
    with live(tmp_path, 4) as job:
        report = job.on("--steps", "5", "--wait")
        [(first, *more)] = [{one["begins_at"] for one in report["processes"]}]
        assert more == []
        check_same(tmp_path / "run", 4, 5)
        assert steps(tmp_path / "run")[0][0] == (1, first)
        ended = [(one["state"], one["reason"], one["sealed"]) for one in report["processes"]]
        assert ended == [("ended", "steps done", True)] * 4


def test_many_switchings_are_all_alike(tmp_path: Path) -> None:
    """TEST_SWITCHINGS=1000 for the long form."""
    with live(tmp_path, 4) as job:
        for i in range(int(os.environ.get("TEST_SWITCHINGS", "30"))):
            job.on("--steps", "3", "--wait", run=f"run-{i}")
            check_same(tmp_path / f"run-{i}", 4, 3)


def test_an_idle_server_captures_its_next_forward_pass(tmp_path: Path) -> None:
    with live(tmp_path, 2, mode="hold") as job:
        job.make(3)
        report = job.on("--steps", "2")
        assert [(one["standing"], one["begins_at"]) for one in report["processes"]] == [("idle", 4)] * 2
        job.make(3)
        job.command("off")
        assert steps(tmp_path / "run") == {0: [(1, 4), (2, 5)], 1: [(1, 4), (2, 5)]}


def test_one_that_never_stepped_begins_at_its_next_tap(tmp_path: Path) -> None:
    with live(tmp_path, 2, mode="hold") as job:
        assert [one["begins_at"] for one in job.on()["processes"]] == [0, 0]
        job.ranks[0].tell("call")
        job.ranks[0].expect("done")
        job.make(1)
        job.command("off")
        assert steps(tmp_path / "run") == {0: [(0, 0), (1, 1)], 1: [(1, 1)]}


def test_a_rank_that_is_stopped_captures_the_same_steps_once_it_goes_on(tmp_path: Path) -> None:
    with live(tmp_path, 3) as job:
        until(lambda: all(one["steps"] > 0 for one in job.ps()))
        with job.ranks[1].stopped():
            report = job.on("--steps", "4", check=1)
            assert [one["standing"] for one in report["processes"]] == ["taken", "stopped", "taken"]
            until(lambda: job.ps()[0]["state"] == "ended")
            assert [one["stopped"] for one in job.ps()] == [False, True, False]
        until(lambda: all(one["sealed"] for one in job.ps()))
        check_same(tmp_path / "run", 3, 4)


def test_a_rank_that_was_killed_is_not_waited_for(tmp_path: Path) -> None:
    with live(tmp_path, 2) as job:
        until(lambda: all(one["steps"] > 0 for one in job.ps()))
        with job.begin("on", "--dir", str(tmp_path), "--run", "run", "--for", "8s", "--wait") as waits:
            until(lambda: all(one["state"] == "capturing" for one in job.ps()))
            job.ranks[1].process.kill()
            job.ranks[1].process.wait()
            said, _ = waits.communicate(timeout=30)
        assert waits.returncode == 1
        assert "rank 0: ended: time is up" in said
        assert "rank 1: its process ended before it was sealed: see tpcapture recover" in said
        # Whoever is left is switched, and whoever is not is named.
        off = job.command("off", check=1)
        assert off.stderr == f"tpcapture: there is no process {job.ranks[1].pid}\n"
        done = job.command("on", "--dir", str(tmp_path), "--run", "next", "--steps", "1", "--wait", check=1)
        assert "rank 0: ended: steps done" in done.stdout


@pytest.mark.parametrize(("limit", "reason"), [("--for=300ms", "time is up"), ("--limit-bytes=4KB", "limit")])
def test_a_capture_ends_by_itself(tmp_path: Path, limit: str, reason: str) -> None:
    with live(tmp_path, 2) as job:
        report = job.on(limit, "--wait")
        for one in report["processes"]:
            assert (one["state"], one["sealed"]) == ("ended", True)
            assert reason in one["reason"]
            assert one["counters"]["records"] > 0


def test_what_is_taken_back_before_it_began_is_not_waited_for(tmp_path: Path) -> None:
    with live(tmp_path, 2, mode="hold") as job:
        job.make(3)
        with job.begin("on", "--dir", str(tmp_path), "--run", "run", "--steps", "2", "--wait") as waits:
            until(lambda: all(one["unheeded"] for one in job.ps()))
            job.command("off", check=None)
            job.make(5)
            said, _ = waits.communicate(timeout=30)
        assert waits.returncode == 2
        assert "it was switched off, or aimed elsewhere, before it began" in said


def test_a_server_without_memory_for_a_ring_says_that_it_ended(tmp_path: Path) -> None:
    with live(tmp_path, 1) as job:
        pid = job.ranks[0].pid
        used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        resource.prlimit(pid, resource.RLIMIT_AS, (used + (4 << 20), used + (4 << 20)))
        done = job.command("on", "--dir", str(tmp_path), "--run", "run", "--steps", "2", "--wait", check=2)
        assert "ended: no ring or no thread: " in done.stdout


def test_a_capture_that_something_broke_is_not_done(tmp_path: Path) -> None:
    """Nothing was kept: 2. One rank kept what was asked for, and the other could not: 1."""
    (tmp_path / "file").write_text("no directory")
    with live(tmp_path, 2) as job:
        done = job.command("on", "--dir", str(tmp_path / "file"), "--steps", "2", "--wait", check=2)
        reason = "expected a directory, for a run no symbolic link to one, found something else"
        assert f"ranks 0-1: ended: disk: {reason}: {tmp_path}/file\n" in done.stdout
        assert job.on("--steps", "2", "--wait", run="whole", check=0)
        resource.prlimit(job.ranks[1].pid, resource.RLIMIT_FSIZE, (16, 16))
        report = job.on("--steps", "2", "--wait", run="half", check=1)
        assert [one["counters"]["records"] for one in report["processes"]] == [2, 0]


def test_ranks_ask_themselves_whether_they_are_meant(tmp_path: Path) -> None:
    with live(tmp_path, 3) as job:
        job.on("--ranks", "0,2", "--steps", "2", "--wait")
        assert list(steps(tmp_path / "run")) == [0, 2]
        assert [one["state"] for one in job.ps()] == ["ended", "off", "ended"]


def test_ranks_that_are_not_there_are_said(tmp_path: Path) -> None:
    with live(tmp_path, 2) as job:
        done = job.command("on", "--ranks", "5", check=2)
        assert done.stderr == "tpcapture: no process is of the ranks that --ranks names: there are 0-1\n"


def test_a_capture_is_re_aimed_while_it_is_on(tmp_path: Path) -> None:
    with live(tmp_path, 2) as job:
        job.on(run="first")
        until(lambda: all(one["state"] == "capturing" for one in job.ps()))
        done = job.command("on", "--dir", str(tmp_path), "--run", "second", "--steps", "2", "--wait")
        assert f"ended run {tmp_path}/first, switched on by root (pid " in done.stdout
        check_same(tmp_path / "second", 2, 2)
        until(lambda: not list((tmp_path / "first").glob("*.partial")))
        reasons = {m["end_reason"] for m in tpcapture.open(tmp_path / "first").manifests.values()}
        assert all(reason.startswith('re-aimed: run "second" by ') for reason in reasons), reasons


def test_what_is_asked_for_is_checked_first(tmp_path: Path) -> None:
    with live(tmp_path, 1) as job:
        for arguments, words in [
            (["--select", "a[dim0=]"], "column 7: expected"),
            (["--ranks", "3-1"], 'found "3-1"'),
            (["--for", "30"], "expected a time such as 30s"),
            (["--limit-bytes", "10XB"], "expected a size such as 10GiB"),
            (["--steps", "0"], "0 is not in 1.."),
            (["--run", "../x"], "expected letters, digits"),
        ]:
            done = job.command("on", *arguments, check=2)
            assert words in done.stderr, done.stderr
        assert job.ps()[0]["state"] == "off"


def test_what_comes_next_is_said(tmp_path: Path) -> None:
    with live(tmp_path, 2) as job:
        until(lambda: all(one["steps"] > 0 for one in job.ps()))
        said = job.command("on", "--dir", str(tmp_path), "--run", "run").stdout.splitlines()
        assert said[0] == f"run {tmp_path}/run"
        assert said[1].startswith("ranks 0-1: begin at step ")
        assert said[2:] == [
            f"  tpcapture ps --watch{' ' * (len(str(tmp_path)) + 2)}  where each rank is",
            f"  tpcapture off{' ' * (len(str(tmp_path)) + 9)}  end it",
            f"  tpcapture compare {tmp_path}/run  then, across its ranks",
        ]


def test_a_run_without_a_name_is_named_by_the_time(tmp_path: Path) -> None:
    with live(tmp_path, 1, TPCAPTURE_DIR=str(tmp_path)) as job:
        until(lambda: job.ps()[0]["steps"] > 0)
        said = job.command("on", "--steps", "1", "--wait").stdout.splitlines()
        [run] = tmp_path.glob("on-*")
        assert said[0] == f"run {run}"
        assert len(run.name) == len("on-20261201-043133.123")


def test_off_seals_and_says_how_much(tmp_path: Path) -> None:
    with live(tmp_path, 2) as job:
        job.on()
        until(lambda: all(one["counters"]["records"] > 0 for one in job.ps()))
        said = job.command("off").stdout
        assert not list((tmp_path / "run").glob("*.partial"))
        n_records = len([record for point in tpcapture.open(tmp_path / "run") for record in point.records])
        assert said.startswith(f"{tmp_path}/run: {n_records} records, ")
        assert job.command("off").stdout == "no capture is on\n"


def test_an_idle_rank_is_ended_without_a_tap(tmp_path: Path) -> None:
    with live(tmp_path, 1, mode="hold") as job:
        job.make(1)
        job.on()
        job.make(1)
        assert job.ps()[0]["state"] == "capturing"
        assert job.command("off").stdout.startswith(f"{tmp_path}/run: 1 records")
        assert job.ps()[0]["sealed"]


def test_two_jobs_are_told_apart(tmp_path: Path) -> None:
    with live(tmp_path / "a", 2) as one, live(tmp_path / "b", 2) as other:
        both = Live(one.ranks + other.ranks, tmp_path)
        done = both.command("on", check=2)
        assert "expected the processes of one job, found several: choose one by --pid " in done.stderr
        assert {seen["state"] for seen in both.ps()} == {"off"}


def test_ctrl_c_leaves_nothing_half_way(tmp_path: Path) -> None:
    """A page that never answers holds the command for as long as it arms; another command holds the lock before."""
    with live(tmp_path, 2, mode="hold") as job:
        for delay in [0.05 + 0.02 * i for i in range(12)]:
            with job.begin("on", "--dir", str(tmp_path)) as command:
                time.sleep(delay)
                command.send_signal(signal.SIGINT)
            job.tell("call")
            for rank in job.ranks:
                rank.expect("done")
            states = {one["state"] for one in job.ps()}
            assert len(states) == 1, states
            job.command("off", check=None)


def test_two_commands_at_once_leave_one_run(tmp_path: Path) -> None:
    with live(tmp_path, 3) as job:
        commands = [job.begin("on", "--dir", str(tmp_path), "--run", f"run-{i}") for i in range(4)]
        for command in commands:
            command.communicate()
            assert command.returncode == 0
        until(lambda: all(one["state"] == "capturing" for one in job.ps()))
        assert len({(one["run"], one["began_at"]) for one in job.ps()}) == 1


def test_the_second_command_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    import fcntl

    with live(tmp_path, 1) as job:
        [page] = [
            fd for fd in Path(f"/proc/{job.ranks[0].pid}/fd").iterdir() if "tpcapture" in str(fd.readlink())
        ]
        with page.open("r+b") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            held.seek(0x40)
            held.write((1).to_bytes(4, "little") + (0).to_bytes(4, "little"))
            held.flush()
            done = job.command("on", check=2)
            words = f"pid {job.ranks[0].pid} is being switched by another command, pid 1 of root: try again"
            assert words in done.stderr
        assert job.ps()[0]["state"] == "off"


def test_the_first_record_comes_soon(tmp_path: Path) -> None:
    """8 ranks that make a step a millisecond: 100 ms on a machine that has cores for them; here with room to spare."""
    with live(tmp_path, 8, together=True) as job:
        until(lambda: all(one["steps"] > 0 for one in job.ps()))
        called = time.time_ns()
        report = job.on("--steps", "1", "--wait")
        began = [one["began_ns"] - called for one in report["processes"]]
        assert max(began) < 5e9, began


def test_a_rank_that_comes_late_makes_all_begin_later(tmp_path: Path) -> None:
    """Steps of microseconds: the first step that is tried is over before it is written."""
    with live(tmp_path, 2, period=0) as job:
        for i in range(10):
            job.on("--steps", "2", "--wait", run=f"run-{i}")
            found = steps(tmp_path / f"run-{i}")
            assert found[0] == found[1], found
            assert not list((tmp_path / f"run-{i}").glob("*.partial"))


def test_a_thread_of_commands_and_a_loop_of_steps_leave_nothing_behind(tmp_path: Path) -> None:
    with live(tmp_path, 2) as job:
        end = threading.Event()

        def watch() -> None:
            while not end.is_set():
                job.ps()

        watcher = threading.Thread(target=watch)
        watcher.start()
        for i in range(5):
            job.on(run=f"run-{i}")
            job.command("off")
        end.set()
        watcher.join()
        descriptors = [len(list(Path(f"/proc/{rank.pid}/fd").iterdir())) for rank in job.ranks]
        assert descriptors[0] == descriptors[1]
        assert max(descriptors) < 12
