"""A record is the tensor as it was at the call, and records come in the order of the calls, however fast they come."""

import json
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Launch

import tpcapture

KIB, MIB = 1 << 10, 1 << 20


@pytest.mark.parametrize("n_bytes", [KIB, 100 * KIB, MIB, 7 * MIB + 4, 64 * MIB])
@pytest.mark.parametrize("contiguous", [True, False], ids=["contiguous", "transposed"])
def test_the_source_may_be_overwritten_when_the_call_returns(
    tmp_path: Path, n_bytes: int, contiguous: bool
) -> None:
    tensor = torch.empty(n_bytes // 4, dtype=torch.int32)
    view = tensor if contiguous else tensor[: n_bytes // 8 * 2].view(-1, 2).t()
    with tpcapture.capturing(tmp_path) as path:
        for i in range(3):
            tensor.fill_(i)
            tpcapture.capture("x", view)
        tensor.fill_(-1)
    run = tpcapture.open(path)
    for i in range(3):
        record = run["x", 0, i].ranks[None]
        assert record.shape == list(view.shape)
        assert (record.numpy() == i).all()


def test_calls_of_one_tap_are_numbered_within_their_step(tmp_path: Path) -> None:
    """Two calls before the first step, three in step 1, none in step 2, one in step 3; a tap beside it of its own."""
    calls = [2, 3, 0, 1]
    with tpcapture.capturing(tmp_path) as path:
        for step, n_calls in enumerate(calls):
            for call in range(n_calls):
                tpcapture.capture("x", np.array([step, call]))
            tpcapture.tap("y")(np.array([step]))
            tpcapture.step()
    run = tpcapture.open(path)
    keys = [(point.tap, point.step, point.call) for point in run]
    x = [("x", 0, 0), ("x", 0, 1), ("x", 1, 0), ("x", 1, 1), ("x", 1, 2), ("x", 3, 0)]
    assert sorted(keys) == x + [("y", step, 0) for step in range(4)]
    for _, step, call in x:
        assert run["x", step, call].ranks[None].numpy().tolist() == [step, call]
    [segment] = path.glob("*.safetensors")
    # The names that any safetensors reader shows.
    assert b'"step1/x#2"' in segment.read_bytes()
    by_seq = sorted((point.records[0].seq, point.step, point.tap, point.call) for point in run)
    assert [seq for seq, *_ in by_seq] == list(range(10))
    assert [step for _, step, *_ in by_seq] == [0, 0, 0, 1, 1, 1, 1, 2, 3, 3]


def test_steps_count_from_switching_on_and_the_process_keeps_its_own(tmp_path: Path) -> None:
    before = tpcapture.status()["abs_step"]
    tpcapture.step()
    tpcapture.step()
    with tpcapture.capturing(tmp_path) as path:
        tpcapture.capture("x", np.zeros(1))
        tpcapture.step()
        tpcapture.capture("x", np.ones(1))
    records = [point.records[0] for point in tpcapture.open(path)]
    assert [(r.step, r.abs_step) for r in records] == [(0, before + 2), (1, before + 3)]


def test_captures_faster_than_the_writer_are_all_there(tmp_path: Path) -> None:
    source = torch.empty(64, 1024)
    with tpcapture.capturing(tmp_path) as path:
        for i in range(64):
            source.fill_(i)
            tpcapture.capture("x", source)
    run = tpcapture.open(path)
    assert [point.call for point in run] == list(range(64))
    assert all((run["x", 0, i].ranks[None].numpy() == i).all() for i in range(64))


@pytest.mark.parametrize("strict", ["0", "1"])
@pytest.mark.parametrize("ring", ["64KiB", "1MiB", "256MiB"])
def test_tensors_of_any_size_pass_through_a_ring_of_any_size(rank: Launch, ring: str, strict: str) -> None:
    code = """
import numpy as np, tpcapture
rng = np.random.default_rng(5)
for n in (1, 20_000, 300_000, 40_000_001, 70_000):
    x = rng.integers(0, 256, n, dtype=np.uint8)
    tpcapture.capture("x", x)
    x[:] = 0
y = rng.integers(0, 256, (700, 1300), dtype=np.uint8)
tpcapture.capture("y", y.T)
y[:] = 0
"""
    done = rank(code, TPCAPTURE="1", TPCAPTURE_RING=ring, TPCAPTURE_STRICT=strict)
    assert done.complaints == ""
    run, rng = tpcapture.open(done.run_dir), np.random.default_rng(5)
    for call, n in enumerate((1, 20_000, 300_000, 40_000_001, 70_000)):
        x = rng.integers(0, 256, n, dtype=np.uint8)
        assert (run["x", 0, call].ranks[None].numpy() == x).all()
    y = rng.integers(0, 256, (700, 1300), dtype=np.uint8)
    assert (run["y"].ranks[None].numpy() == y.T).all()


DROP = """
import json, numpy as np, tpcapture
small, large = np.zeros(24 << 10, np.uint8), np.zeros(100 << 10, np.uint8)
for i in range(400):
    small[:] = i % 251
    tpcapture.capture("small", small)
    if i % 100 == 0:
        tpcapture.capture("large", large)
tpcapture.flush()
print(json.dumps(tpcapture.status() | {"run": None}))
"""


def test_drop_counts_and_names_every_loss(rank: Launch) -> None:
    done = rank(DROP, TPCAPTURE="1", TPCAPTURE_RING="64KiB", TPCAPTURE_ON_FULL="drop")
    status = json.loads(done.stdout)
    full = "the ring was full (TPCAPTURE_ON_FULL=drop)"
    losses = {(loss["tap"], loss["reason"]): loss["count"] for loss in status["losses"]}
    assert losses.pop(("large", "larger than the ring (TPCAPTURE_RING)")) == 4
    # A ring of 64 KiB takes two: a writer that opens files first cannot keep up with a loop.
    assert losses.keys() == {("small", full)}
    counters = status["counters"]
    assert counters["lost"] == losses["small", full] + 4
    assert counters["records"] + losses["small", full] == 400
    assert status["state"] == "capturing"
    assert done.complaints.count(full) == 1
    run = tpcapture.open(done.run_dir)
    assert len(run) == counters["records"]
    for point in run:
        record = point.records[0]
        assert record.numpy().tolist() == [point.call % 251] * (24 << 10)


STALLED = """
import json, time, numpy as np, tpcapture
x, seconds = np.zeros(40 << 10, np.uint8), []
for i in range(4):
    x[:] = i
    start = time.perf_counter()
    tpcapture.capture("x", x)
    seconds.append(time.perf_counter() - start)
tpcapture.flush()
print(json.dumps(tpcapture.status() | {"run": None, "seconds": seconds}))
"""


def stalled(rank: Launch, on_full: str) -> tuple[dict[str, Any], tpcapture.Run]:
    """Four captures of 40 KiB through a ring of 64 KiB, while making the run's directory takes 0.8 seconds."""
    slow = [
        "strace",
        "-f",
        "-o",
        "/dev/null",
        "-e",
        "trace=mkdirat",
        "-e",
        "inject=mkdirat:delay_enter=800000",
    ]
    done = rank(STALLED, under=slow, TPCAPTURE="1", TPCAPTURE_RING="64KiB", TPCAPTURE_ON_FULL=on_full)
    return json.loads(done.stdout), tpcapture.open(done.run_dir)


needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="slows the disk with strace")


@needs_strace
def test_a_full_ring_ends_the_capture_after_one_wait(rank: Launch) -> None:
    status, run = stalled(rank, "wait:200ms")
    reason = "ring full: the disk made no room in 200ms (TPCAPTURE_ON_FULL)"
    assert (status["state"], status["end_reason"]) == ("ended", reason)
    assert status["losses"] == [{"tap": "x", "reason": reason, "count": 1}]
    assert 0.2 <= status["seconds"][1] < 0.7
    assert max(status["seconds"][2:]) < 0.1
    [point] = run
    assert (point.records[0].numpy() == 0).all()
    [manifest] = run.manifests.values()
    assert manifest["end_reason"] == reason


@needs_strace
@pytest.mark.parametrize("on_full", ["wait:10s", "wait:forever"])
def test_a_disk_that_comes_back_in_time_costs_no_record(rank: Launch, on_full: str) -> None:
    status, run = stalled(rank, on_full)
    assert (status["losses"], status["state"]) == ([], "capturing")
    assert status["seconds"][1] > 0.3
    assert [set(point.records[0].numpy().tolist()) for point in run] == [{0}, {1}, {2}, {3}]


@needs_strace
def test_drop_does_not_wait_for_a_disk_that_stands_still(rank: Launch) -> None:
    status, run = stalled(rank, "drop")
    assert max(status["seconds"][1:]) < 0.1
    assert (status["counters"]["lost"], status["state"]) == (3, "capturing")
    assert len(run) == 1


def test_threads_that_capture_at_once_keep_their_records_whole(tmp_path: Path) -> None:
    small, large, n_threads = 40, 9 * MIB, 6
    start = threading.Barrier(n_threads)

    def produce(worker: int) -> None:
        sizes = [large // 4 if worker % 2 == 0 and i % 5 == 0 else small for i in range(15)]
        tap = tpcapture.tap(f"worker{worker}")
        start.wait()
        for i, size in enumerate(sizes):
            tensor = torch.full((size,), worker * 1000 + i, dtype=torch.int32)
            tap(tensor)
            tensor.fill_(-1)

    with tpcapture.capturing(tmp_path) as path:
        threads = [threading.Thread(target=produce, args=(worker,)) for worker in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    run = tpcapture.open(path)
    assert len(run) == n_threads * 15
    for worker in range(n_threads):
        for i in range(15):
            array = run[f"worker{worker}", 0, i].ranks[None].numpy()
            assert array.size == (large // 4 if worker % 2 == 0 and i % 5 == 0 else small)
            assert (array == worker * 1000 + i).all()
    assert sorted(point.records[0].seq for point in run) == list(range(n_threads * 15))


def test_a_flush_in_the_middle_of_another_threads_record_cuts_nothing(tmp_path: Path) -> None:
    tensors = [torch.full((5 * MIB,), i, dtype=torch.int32) for i in range(8)]
    with tpcapture.capturing(tmp_path) as path:

        def produce() -> None:
            for tensor in tensors:
                tpcapture.capture("x", tensor)

        producer = threading.Thread(target=produce)
        producer.start()
        while producer.is_alive():
            assert tpcapture.flush() is None
        producer.join()
    assert tpcapture.status()["losses"] == []
    run = tpcapture.open(path)
    assert [(run["x", 0, i].ranks[None].numpy() == i).all() for i in range(8)] == [True] * 8
