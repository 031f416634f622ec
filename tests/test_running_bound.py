"""The running bound of a reduction whose partial sums were captured, against NumPy, and what it tells from rounding:
row-parallel linear layers in bf16 of TP=4, K=4096, N=512, 64 tokens."""

import ml_dtypes
import numpy as np
import pytest
from job import Array, Runs, Tap, whole

import tpcapture

BF16 = ml_dtypes.bfloat16
RANKS, INNER, WIDTH, ROWS = 4, 4096, 512, 64
U = 2.0**-8


class Layer:
    """One layer: its result on one rank, and the partials and the result of four."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)

        def bf16(*shape: int, scale: float = 1.0) -> Array:
            return (random.standard_normal(shape) * scale).astype(BF16).astype(np.float32)

        self.x, w, self.bias = bf16(ROWS, INNER), bf16(INNER, WIDTH, scale=INNER**-0.5), bf16(WIDTH)
        self.y = (self.x @ w).astype(BF16)
        self.partials = [(self.x[:, at] @ w[at]).astype(BF16) for at in np.split(np.arange(INNER), RANKS)]
        self.sums = [self.partials[0]]
        for partial in self.partials[1:]:
            total = self.sums[-1].astype(np.float32) + partial.astype(np.float32)
            self.sums.append(total.astype(BF16))
        self.result = self.sums[-1]

    def ratios(self, y: Array, partials: list[Array]) -> Array:
        """The errors of a result over their running bounds."""
        r, c = self.y.astype(np.float64), y.astype(np.float64)
        p = np.stack(partials).astype(np.float64)
        there = r != 0
        row = np.abs(r).sum(1, keepdims=True) / there.sum(1, keepdims=True)
        n = there.sum(0)
        column = (np.abs(r) / row).sum(0) / n
        usual = row * (column / np.median(column) * n + 4) / (n + 4)
        allowed = np.abs(p).sum(0) + np.abs(np.cumsum(p, 0)).sum(0) + np.abs(r) + np.abs(c) + usual
        return np.asarray(np.abs(c - r) / (U * allowed))

    def bound(self, y: Array, partials: list[Array]) -> float:
        return float(np.max(self.ratios(y, partials)))


def compared(
    runs: Runs, layer: Layer, y: Array, partials: list[Array], with_partials: bool = True
) -> tpcapture.Row:
    inputs = layer.x[:, :256]
    taps = [Tap("x", [inputs] * RANKS, "R"), Tap("y", [y] * RANKS, "R")]
    if with_partials:
        taps.insert(1, Tap("y.partial", list(partials), "P"))
    report = tpcapture.compare(runs.record(whole("x", inputs), whole("y", layer.y)), runs.record(*taps))
    (row,) = [row for row in report if row.tap == "y"]
    return row


def severity(row: tpcapture.Row) -> float:
    assert row.test is not None
    assert row.test.name == "running bound"
    assert row.test.severity is not None
    return row.test.severity


@pytest.mark.parametrize("seed", range(4))
def test_rounding_stays_within_it(runs: Runs, seed: int) -> None:
    layer = Layer(seed)
    row = compared(runs, layer, layer.result, layer.partials)
    assert row.verdict == "ROUNDING"
    ratio = severity(row)
    ratios = layer.ratios(layer.result, layer.partials)
    assert ratio == pytest.approx(np.max(ratios), rel=1e-6)
    # The element that is shown is that by which it was decided.
    assert row.worst is not None
    assert ratios[tuple(row.worst.index)] == pytest.approx(ratio, rel=1e-6)
    assert 0.4 < ratio < 0.7


def faulty(layer: Layer, fault: str) -> tuple[Array, list[Array]]:
    """A result that is the sum of its partials, of which something is wrong."""
    partials = [p.astype(np.float32) for p in layer.partials]
    if fault == "bias twice":
        partials[1] += layer.bias
    for partial in partials:
        if fault == "row zeroed":
            partial[17] = 0
        elif fault == "row x 1.02":
            partial[17] *= np.float32(1.02)
    if fault == "one element + 0.25":
        partials[2][5, 77] += 0.25
    rounded = [p.astype(BF16) for p in partials]
    total = rounded[0]
    for partial in rounded[1:]:
        total = (total.astype(np.float32) + partial.astype(np.float32)).astype(BF16)
    return total, rounded


@pytest.mark.parametrize(
    ("fault", "least"), [("one element + 0.25", 4), ("row x 1.02", 1), ("bias twice", 20), ("row zeroed", 20)]
)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_fault_in_the_partials_is_beyond_it(runs: Runs, fault: str, least: float, seed: int) -> None:
    layer = Layer(seed)
    y, partials = faulty(layer, fault)
    row = compared(runs, layer, y, partials)
    assert row.verdict == "DIFFERENT"
    assert layer.bound(y, partials) > least
    if fault != "row x 1.02":  # whose factor the row slope sees even better
        assert severity(row) == pytest.approx(layer.bound(y, partials), rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_a_bias_that_was_added_before_the_partials_is_no_fault(runs: Runs, seed: int) -> None:
    """`(h @ w) + b` rounds the product before the bias, which nearly cancels some of its numbers."""
    layer = Layer(seed)

    def plus_bias(y: Array) -> Array:
        return (y.astype(np.float32) + layer.bias).astype(BF16)

    layer.y = plus_bias(layer.y)
    partials = [plus_bias(layer.partials[0]), *layer.partials[1:]]
    total = partials[0]
    for partial in partials[1:]:
        total = (total.astype(np.float32) + partial.astype(np.float32)).astype(BF16)
    row = compared(runs, layer, total, partials)
    assert row.verdict == "ROUNDING"
    assert severity(row) == pytest.approx(layer.bound(total, partials), rel=1e-6)
    assert severity(row) < 0.75


def test_a_factor_that_hides_below_it_is_found_all_the_same(runs: Runs) -> None:
    layer = Layer(3)
    scaled = [(p.astype(np.float32) * np.float32(1.005)).astype(BF16) for p in layer.partials]
    total = scaled[0]
    for partial in scaled[1:]:
        total = (total.astype(np.float32) + partial.astype(np.float32)).astype(BF16)
    assert layer.bound(total, scaled) < 1.5
    assert compared(runs, layer, total, scaled).verdict == "DIFFERENT"


def test_what_cancels_in_a_sum_is_known_by_its_partials(runs: Runs) -> None:
    """Partials a thousand times their sum: all digits of the result are rounding, which only the partials tell."""
    layer = Layer(5)
    big = (np.random.default_rng(6).standard_normal((ROWS, WIDTH)) * 1000).astype(BF16)
    partials = [big, layer.partials[0], layer.partials[1], (-big.astype(np.float32)).astype(BF16)]
    total = partials[0]
    for partial in partials[1:]:
        total = (total.astype(np.float32) + partial.astype(np.float32)).astype(BF16)
    layer.y = (layer.partials[0].astype(np.float32) + layer.partials[1].astype(np.float32)).astype(BF16)
    assert layer.bound(total, partials) < 1
    assert compared(runs, layer, total, partials, with_partials=False).verdict == "DIFFERENT"
    assert compared(runs, layer, total, partials).verdict == "ROUNDING"


def test_a_tap_that_is_not_their_sum_is_judged_by_itself(runs: Runs) -> None:
    layer = Layer(7)
    others = [(p.astype(np.float32) * 1000).astype(BF16) for p in layer.partials]
    row = compared(runs, layer, layer.result, others)
    assert row.test is not None
    assert (row.verdict, row.test.name == "running bound") == ("ROUNDING", False)
