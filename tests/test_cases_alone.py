"""One run checked by itself: what needs no reference to be wrong. Captured by real ranks."""

import ml_dtypes
import numpy as np
import pytest
from job import Array, Runs, Tap, text_of

import tpcapture

BF16 = ml_dtypes.bfloat16


def partials(ranks: int, shape: tuple[int, ...], dtype: type) -> tuple[list[Array], Array]:
    """What ranks put into an all-reduce, and what comes out, rounded after each term."""
    random = np.random.default_rng(ranks)
    terms = [random.standard_normal(shape).astype(dtype) for _ in range(ranks)]
    total = terms[0]
    for term in terms[1:]:
        total = (total.astype(np.float32) + term.astype(np.float32)).astype(dtype)
    return terms, total


# --- an all-reduce that leaves a chunk out ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, np.float16, np.float32], ids=["bf16", "fp16", "fp32"])
@pytest.mark.parametrize(("ranks", "bad", "start"), [(2, 1, 96), (2, 0, 96), (4, 2, 0), (4, 3, 248)])
def test_the_rank_and_range_that_were_not_reduced(
    runs: Runs, ranks: int, bad: int, start: int, dtype: type
) -> None:
    terms, total = partials(ranks, (4, 64), dtype)
    out = [total.copy() for _ in range(ranks)]
    end = start + 16 // np.dtype(dtype).itemsize
    out[bad].reshape(-1)[start:end] = terms[bad].reshape(-1)[start:end]
    report = tpcapture.compare(runs.record(Tap("ar.in", list(terms), "P"), Tap("ar.out", list(out), "R")))
    first = report.first_divergence
    assert first is not None
    assert (first.tap, first.ranks) == ("ar.out", [bad])
    row = report.rows[1]
    assert (
        text_of(row, "not_the_sum")
        == f'rank {bad}: elements {start}\u2013{end - 1} are not the sum of "ar.in"'
    )
    assert text_of(row, "not_reduced") == f"rank {bad}'s output there is its own input: not reduced"
    assert row.worst is not None
    assert (row.worst.rank, start <= row.worst.index[0] * 64 + row.worst.index[1] < end) == (bad, True)


def test_all_ranks_wrong_alike_are_found_by_the_sum(runs: Runs) -> None:
    terms, total = partials(4, (4, 64), BF16)
    total[2, 8:16] = 0
    report = tpcapture.compare(runs.record(Tap("ar.in", list(terms), "P"), Tap("ar.out", [total] * 4, "R")))
    row = report.rows[1]
    assert (row.verdict, row.ranks, row.test and row.test.name) == (
        "DIFFERENT",
        [0, 1, 2, 3],
        "running bound",
    )


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("dtype", [BF16, np.float16, np.float32], ids=["bf16", "fp16", "fp32"])
def test_a_right_reduction_passes_in_any_order(runs: Runs, ranks: int, dtype: type) -> None:
    terms, total = partials(ranks, (16, 64), dtype)
    backwards = terms[-1]
    for term in reversed(terms[:-1]):
        backwards = (backwards.astype(np.float32) + term.astype(np.float32)).astype(dtype)
    exact = np.asarray(sum(t.astype(np.float64) for t in terms)).astype(dtype)
    for out in (total, backwards, exact):
        report = tpcapture.compare(
            runs.record(Tap("ar.in", list(terms), "P"), Tap("ar.out", [out] * ranks, "R"))
        )
        assert (report.rows[1].verdict, report.ok) == ("IDENTICAL", True)
        assert text_of(report.rows[1], "seen") == 'the sum of "ar.in"'


def test_a_tap_that_is_no_reduction_is_not_taken_for_one(runs: Runs) -> None:
    terms, total = partials(2, (16, 64), BF16)
    other = np.random.default_rng(9).standard_normal((16, 64)).astype(BF16)
    for following in (other, total + other * 3):
        report = tpcapture.compare(runs.record(Tap("p", list(terms), "P"), Tap("norm", [following] * 2, "R")))
        assert report.verdict == "IDENTICAL"


# --- a rank that samples another token -------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "bad"), [(4, 2), (8, 7), (2, 1)])
def test_the_first_disagreement_and_what_follows(runs: Runs, ranks: int, bad: int) -> None:
    steps: list[list[Tap]] = []
    for step in range(1, 6):
        tokens: list[Array | None] = [np.array([7, 8], dtype=np.int32) for _ in range(ranks)]
        if step == 3:
            tokens[bad] = np.array([7, 9], dtype=np.int32)
        elif step == 4:
            tokens[bad] = np.array([7, 8, 9], dtype=np.int32)
        elif step == 5:
            tokens[bad] = None
        steps.append([Tap("sampled", tokens, "R")])
    report = tpcapture.compare(runs.record(steps=[[], *steps][1:]))
    assert [row.verdict for row in report] == ["IDENTICAL", "IDENTICAL", "DIFFERENT", "LAYOUT", "MISSING"]
    first, third = report.first_divergence, report.rows[2]
    assert first is not None
    assert first.step == third.step
    # Of two ranks that disagree the lower one is taken to be right.
    assert first.ranks == [bad]
    assert third.worst is not None
    assert (third.worst.index, third.worst.reference, third.worst.candidate) == ([1], 8.0, 9.0)
    assert "[3]" in text_of(report.rows[3], "placement")
    assert f"no record of rank {bad}" in text_of(report.rows[4], "missing")


# --- NaN and infinity ------------------------------------------------------------------------------------------------


def test_the_first_nan_is_named_and_masks_are_no_fault(runs: Runs) -> None:
    good = np.ones((2, 4), dtype=BF16)
    mask = good.copy()
    mask[0, 2:] = -np.inf
    nan = good.copy()
    nan[1, 3] = np.nan
    steps = [
        [Tap("mask", [mask, mask], "R"), Tap("h", [good, good], "R")],
        [Tap("mask", [mask, mask], "R"), Tap("h", [good, nan], "S(0)")],
        [Tap("mask", [mask, mask], "R"), Tap("h", [nan, nan], "S(0)")],
    ]
    report = tpcapture.compare(runs.record(steps=steps))
    said = {(row.tap, row.step): d.text for row in report for d in row.diagnoses if d.kind == "not_finite"}
    assert said == {
        ("h", 1): "the first NaN: rank 1, at [3, 3]",
        ("mask", 0): "the first -inf (normal in a mask): rank 0, at [0, 2], 2 in all",
    }
    assert (report.verdict, report.ok) == ("IDENTICAL", True)
    assert "the first NaN: rank 1" in str(report)
