"""Faults of numbers that users reported, and what is none: captured by real ranks, judged, and named."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from conftest import clean_env
from job import Array, Runs, Tap, kinds, text_of, whole

import tpcapture

BF16 = ml_dtypes.bfloat16


def normals(*shape: int, seed: int = 1, scale: float = 1.0) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def linear(
    seed: int, ranks: int, inner: int = 1024, rows: int = 64, width: int = 128
) -> tuple[Array, list[Array]]:
    """A row-parallel linear layer in bf16: its result on one rank, and the partial of every rank of several."""
    x = normals(rows, inner, seed=seed).astype(BF16).astype(np.float32)
    w = normals(inner, width, seed=seed + 1000, scale=inner**-0.5).astype(BF16).astype(np.float32)
    each = inner // ranks
    cut = [slice(rank * each, (rank + 1) * each) for rank in range(ranks)]
    return (x @ w).astype(BF16), [(x[:, at] @ w[at]).astype(BF16) for at in cut]


def reduced(partials: list[Array]) -> Array:
    """The sum in rank order, rounded each time."""
    total = partials[0]
    for partial in partials[1:]:
        total = (total.astype(np.float32) + partial.astype(np.float32)).astype(BF16)
    return total


def everywhere(name: str, array: Array, ranks: int, placement: str | None = "R") -> Tap:
    return Tap(name, [array] * ranks, placement)


# --- each rank adds the bias -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "rows"), [(4, 5), (2, 64), (8, 64)])
@pytest.mark.parametrize("captured", [False, True], ids=["bias unknown", "bias captured"])
def test_a_bias_added_by_every_rank_is_the_same_vector_on_every_token(
    runs: Runs, ranks: int, rows: int, captured: bool
) -> None:
    x, bias = normals(rows, 256), normals(256, seed=2)
    before = whole("x", x), everywhere("x", x, ranks)
    reference = [before[0], whole("o_proj.out", x + bias)]
    wrong = [before[1], everywhere("o_proj.out", x + np.float32(ranks) * bias, ranks)]
    if captured:
        reference.insert(0, whole("o_proj.param.bias", bias))
        wrong.insert(0, everywhere("o_proj.param.bias", bias, ranks))
    row = tpcapture.compare(runs.record(*reference), runs.record(*wrong)).rows[-1]
    assert (row.verdict, row.ranks) == ("DIFFERENT", list(range(ranks)))
    text = text_of(row, "constant_vector")
    assert "the same vector on every token" in text
    if captured:
        assert f"{ranks - 1} times too often" in text or (ranks == 2 and "too often" in text)


def test_random_errors_have_no_such_name(runs: Runs) -> None:
    x = normals(16, 256)
    reference, candidate = (
        runs.record(whole("y", x)),
        runs.record(everywhere("y", x + normals(16, 256, seed=2), 2)),
    )
    (row,) = tpcapture.compare(reference, candidate).rows
    assert (row.verdict, kinds(row)) == ("DIFFERENT", [])


# --- a backend that is wrong from one tap on -------------------------------------------------------------------------


@pytest.mark.parametrize("period", [32, 16])
@pytest.mark.parametrize("dtype", [np.float32, BF16], ids=["fp32", "bf16"])
def test_the_first_tap_that_is_off_and_its_period(runs: Runs, period: int, dtype: type) -> None:
    names = [f"layer{layer}.{point}" for layer in range(3) for point in ("attn", "moe", "out")]
    right = [whole(name, normals(16, 256, seed=i).astype(dtype)) for i, name in enumerate(names)]
    at = names.index("layer1.moe")
    wrong = list(right)
    for i in range(at, len(names)):
        array = normals(16, 256, seed=i)
        array[:, 3::period] += 0.5
        wrong[i] = whole(names[i], array.astype(dtype))
    report = tpcapture.compare(runs.record(*right), runs.record(*wrong))
    first = report.first_divergence
    assert first is not None
    assert (first.tap, first.step) == ("layer1.moe", 0)
    assert [row.verdict for row in report] == ["IDENTICAL"] * at + ["DIFFERENT"] * (len(names) - at)
    ordinal = {32: "every 32nd", 16: "every 16th"}[period]
    assert f"{ordinal} element of the last dim" in text_of(report.rows[at], "pattern")


# --- expert choices as sets ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("experts", [8, 4])
def test_expert_indices_are_sets_and_weights_follow_them(runs: Runs, experts: int) -> None:
    random = np.random.default_rng(5)
    index = np.stack([random.permutation(64)[:experts] for _ in range(6)]).astype(np.int32)
    weight = -np.sort(-random.random((6, experts)).astype(np.float32), axis=1)
    other_index, other_weight = index.copy(), weight.copy()
    order = random.permutation(experts)
    other_index[2], other_weight[2] = index[2, order], weight[2, order]
    layouts = runs.layouts(
        '[[tap]]\nmatch = "topk_idx"\ntransforms = ["set_rows"]\n\n'
        '[[tap]]\nmatch = "topk_w"\ntransforms = ["sort_rows_by(topk_idx)"]\n'
    )

    def compare(index_b: Array, weight_b: Array) -> tpcapture.Report:
        a = runs.record(whole("topk_w", weight), whole("topk_idx", index))
        return tpcapture.compare(
            a, runs.record(whole("topk_w", weight_b), whole("topk_idx", index_b)), layouts=layouts
        )

    assert [row.verdict for row in compare(other_index, other_weight)] == ["IDENTICAL", "IDENTICAL"]
    # Token 4 takes experts that the reference did not, with weights almost the same.
    other_index[4] = 64 + np.arange(experts)
    other_weight[4] += np.float32(1e-7)
    weights, indices = compare(other_index, other_weight)
    assert indices.verdict == "DIFFERENT"
    worst = indices.worst
    assert worst is not None
    assert worst.index[0] == 4
    assert weights.verdict in ("ROUNDING", "DIFFERENT")


# --- another order of summation is no fault --------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("seed", [1, 2])
def test_partial_sums_of_a_long_inner_dim_are_rounding(runs: Runs, ranks: int, seed: int) -> None:
    y, partials = linear(seed, ranks, inner=8192)
    inputs = normals(4, 64)
    reference = runs.record(whole("x", inputs), whole("y", y))
    total = reduced(partials)
    candidate = runs.record(everywhere("x", inputs, ranks), everywhere("y", total, ranks))
    row = tpcapture.compare(reference, candidate).rows[1]
    assert row.verdict == "ROUNDING"
    assert row.rel_l2 is not None
    assert 0.001 < row.rel_l2 < 0.01
    # With no input known, too, and with a floor from a repeat of the reference.
    alone = tpcapture.compare(runs.record(whole("y", y)), runs.record(everywhere("y", total, ranks)))
    assert alone.verdict == "ROUNDING"
    noise = runs.record(whole("x", inputs), whole("y", reduced(linear(seed, 16, inner=8192)[1])))
    assert tpcapture.compare(reference, candidate, noise=noise).ok


FAULTS = {
    "one element": lambda y: add(y, (7, 9), 0.25),
    "one row x 1.02": lambda y: scale(y, 11, 1.02),
    "all x 1.01": lambda y: y * np.float32(1.01),
    "a row zeroed": lambda y: scale(y, 20, 0.0),
    "bias twice": lambda y: y + normals(y.shape[1], seed=9, scale=0.05),
    "two channels swapped": lambda y: y[:, [1, 0, *range(2, y.shape[1])]],
}


def add(y: Array, at: tuple[int, int], x: float) -> Array:
    y = y.copy()
    y[at] += np.float32(x)
    return y


def scale(y: Array, row: int, x: float) -> Array:
    y = y.copy()
    y[row] *= np.float32(x)
    return y


@pytest.mark.parametrize("partials_known", [False, True], ids=["result only", "partials known"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_inside_such_noise_is_none_of_it(runs: Runs, fault: str, partials_known: bool) -> None:
    y, partials = linear(3, 4, inner=4096)
    wrong = FAULTS[fault](reduced(partials).astype(np.float32)).astype(BF16)
    inputs = normals(4, 64)
    taps = [everywhere("x", inputs, 4), everywhere("y", wrong, 4)]
    if partials_known:
        taps.insert(1, Tap("y.partial", list(partials), "P"))
    report = tpcapture.compare(runs.record(whole("x", inputs), whole("y", y)), runs.record(*taps))
    assert [row.verdict for row in report if row.tap == "y"] == ["DIFFERENT"]


# --- classes before distances ----------------------------------------------------------------------------------------

INF, NAN, OTHER_NAN, MAX = 0x7F80, 0x7FC0, 0x7FC1, 0x7F7F


@pytest.mark.parametrize(
    ("dtype", "a", "b", "verdict", "ulp"),
    [
        (BF16, INF, NAN, "DIFFERENT", 0),
        (BF16, 0x0000, 0x8000, "ROUNDING", 0),
        (BF16, NAN, OTHER_NAN, "ROUNDING", 0),
        (BF16, NAN, NAN, "IDENTICAL", None),
        (BF16, MAX, INF, "DIFFERENT", 0),
        (BF16, INF, 0xFF80, "DIFFERENT", 0),
        (BF16, 0x0001, 0x8001, "ROUNDING", 2),
        (ml_dtypes.float8_e4m3fn, 0x38, 0x39, "ROUNDING", 1),
        (ml_dtypes.float8_e4m3fn, 0x7E, 0x7F, "DIFFERENT", 0),
        (ml_dtypes.float8_e4m3fn, 0x7F, 0xFF, "ROUNDING", 0),
        (ml_dtypes.float8_e4m3fnuz, 0x80, 0x00, "DIFFERENT", 0),
        (ml_dtypes.float8_e5m2, 0x7C, 0x7B, "DIFFERENT", 0),
    ],
)
def test_a_class_that_changes_never_passes(
    runs: Runs, dtype: type, a: int, b: int, verdict: str, ulp: int | None
) -> None:
    def of(bits: int) -> Array:
        unsigned = f"u{np.dtype(dtype).itemsize}"
        one = np.ones(1, dtype).view(unsigned)[0]
        return np.array([one] * 63 + [bits], unsigned).view(dtype)

    (row,) = tpcapture.compare(runs.record(whole("x", of(a))), runs.record(whole("x", of(b)))).rows
    assert row.verdict == verdict
    assert ulp is None or row.max_ulp == ulp


def test_the_exit_status_tells_a_class_change_and_units_are_those_of_the_narrower_dtype(
    runs: Runs,
) -> None:
    x = normals(8, 16).astype(BF16)
    a, b = runs.record(whole("x", x)), runs.record(whole("x", x.astype(np.float32)))
    (row,) = tpcapture.compare(a, b).rows
    assert (row.verdict, row.max_ulp) == ("ROUNDING", 0)
    step = x.view("u2").copy()
    step[0, 0] += 3
    wider = step.view(BF16).astype(np.float32)
    (row,) = tpcapture.compare(a, runs.record(whole("x", wider))).rows
    assert row.max_ulp == 3
    wider[1, 1] = np.nan
    c = runs.record(whole("x", wider))
    done = subprocess.run(
        [sys.executable, "-m", "tpcapture", "compare", a, c],
        env=clean_env(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "DIFFERENT" in done.stdout) == (1, True)
