"""Routers and samplers whose choice jumps where rounding moves two scores past each other: told from wrong choices, and
the rows concerned left out of what follows. Captured by real ranks."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from job import Array, Runs, Tap, kinds, text_of

import tpcapture

BF16 = ml_dtypes.bfloat16
TOKENS, HIDDEN, EXPERTS, CHOSEN, VOCAB = 48, 256, 64, 8, 512


def bf16(x: Array) -> Array:
    return x.astype(BF16).astype(np.float32)


def normals(seed: int, *shape: int, scale: float = 1.0) -> Array:
    return bf16(np.random.default_rng(seed).standard_normal(shape).astype(np.float32) * np.float32(scale))


def linear(x: Array, weight: Array, ranks: int) -> Array:
    """A product by ranks that each hold some rows of the weight: partial sums are rounded, and so is their sum."""
    parts = zip(np.split(x, ranks, 1), np.split(weight, ranks, 0), strict=True)
    partials = [bf16(part @ rows) for part, rows in parts]
    y = partials[0]
    for partial in partials[1:]:
        y = bf16(y + partial)
    return y


def top(scores: Array, n: int) -> Array:
    return np.argsort(-scores, axis=1, kind="stable")[:, :n].astype(np.int32)


@dataclass
class Layer:
    """What one layer of experts computes by so many ranks; every expert has its own gains."""

    logits: Array
    ids: Array
    out: Array

    @classmethod
    def of(cls, seed: int, ranks: int, wrong: int = 0) -> "Layer":
        x, gate = normals(seed, TOKENS, HIDDEN), normals(seed + 1, HIDDEN, EXPERTS, scale=HIDDEN**-0.5)
        gains = normals(seed + 2, EXPERTS, HIDDEN)
        logits = linear(x, gate, ranks)
        ids = (top(logits, CHOSEN) + wrong) % EXPERTS
        weights = np.exp(np.take_along_axis(logits, ids, 1))
        weights /= weights.sum(1, keepdims=True)
        return cls(logits, ids, bf16((weights[:, :, None] * gains[ids]).sum(1) * x))

    def taps(self, ranks: int) -> list[Tap]:
        return [
            Tap("gate", [self.logits.astype(BF16)] * ranks, "R"),
            Tap("topk_ids", [self.ids] * ranks, "R"),
            Tap("experts", list(np.split(self.out.astype(BF16), ranks, 1)), "S(1)"),
        ]


def test_experts_that_rounding_swapped_are_a_tie_and_their_tokens_left_out(runs: Runs) -> None:
    ties = 0
    for seed in range(0, 40, 10):
        one, four = Layer.of(seed, 1), Layer.of(seed, 4)
        report = tpcapture.compare(runs.record(*one.taps(1)), runs.record(*four.taps(4)))
        gate, ids, experts = report.rows
        differ = int((one.ids != four.ids).any(1).sum())
        assert report.first_divergence is None
        assert gate.verdict == "ROUNDING"
        if differ == 0:
            assert ids.verdict == "IDENTICAL"
            continue
        ties += differ
        assert ids.verdict == "SUSPECT"
        text = text_of(ids, "tie")
        assert text.startswith(f"a tie broken by rounding: {differ} of {TOKENS} rows choose otherwise (")
        assert text.endswith("units apart by gate")
        assert experts.verdict in ("IDENTICAL", "ROUNDING")
        assert (experts.padded, experts.n) == (differ, (TOKENS - differ) * HIDDEN)
        left_out = f"{differ} of {TOKENS} rows left out: they follow other choices, first of topk_ids"
        assert text_of(experts, "left_out") == left_out
    assert ties > 4


@pytest.mark.parametrize("wrong", [1, 32])
def test_experts_counted_from_another_start_are_no_tie(runs: Runs, wrong: int) -> None:
    reference = runs.record(*Layer.of(3, 1).taps(1))
    report = tpcapture.compare(reference, runs.record(*Layer.of(3, 2, wrong).taps(2)))
    assert report.first_divergence is not None
    assert report.first_divergence.tap == "topk_ids"
    ids, experts = report.rows[1:]
    assert "no tie: " in text_of(ids, "wrong_choice")
    assert (experts.verdict, experts.padded) == ("DIFFERENT", 0)


def test_a_token_sampled_otherwise_parts_its_sequence_for_good(runs: Runs) -> None:
    weight = normals(5, HIDDEN, VOCAB, scale=HIDDEN**-0.5)

    chosen: dict[int, Array] = {}

    def steps(ranks: int, fault: bool = False) -> list[list[Tap]]:
        x = normals(4, TOKENS, HIDDEN)
        made = []
        for step in range(2):
            logits = linear(x, weight, ranks)
            if step == 0:
                # Row 7 has two tokens next to each other, and rounding in another order swaps them.
                logits[7, 3:5] = bf16(np.array([6, 6.03125] if ranks == 1 else [6.03125, 6], np.float32))
            sampled = logits.argmax(1).astype(np.int64)
            chosen.setdefault(ranks, sampled)
            made.append(
                [
                    Tap("hidden", [x.astype(BF16)] * ranks, "R"),
                    Tap("logits", list(np.split(logits.astype(BF16), ranks, 1)), "S(1)"),
                    Tap("sampled", [sampled] * ranks, "R"),
                ]
            )
            x = bf16(x * np.float32(0.5) + normals(6, VOCAB, HIDDEN)[sampled])
            if fault:
                x *= np.float32(1.5)
        return made

    reference = runs.record(steps=steps(1))
    report = tpcapture.compare(reference, runs.record(steps=steps(2)))
    assert report.first_divergence is None
    sampled, hidden, logits, later = report.rows[2:]
    assert (sampled.tap, sampled.verdict) == ("sampled", "SUSPECT")
    assert (hidden.tap, hidden.step, hidden.verdict) == ("hidden", 1, "IDENTICAL")
    differ = int((chosen[1] != chosen[2]).sum())
    text = f"{differ} of {TOKENS} rows left out: they follow other choices, first of sampled in step 0"
    for row in (hidden, logits):
        assert (row.padded, text_of(row, "left_out")) == (differ, text)
    assert later.padded == differ or later.verdict == "IDENTICAL"  # the same token by other logits
    for row in (hidden, logits, later):
        assert row.verdict != "DIFFERENT"
    # A fault after it is found nonetheless.
    report = tpcapture.compare(reference, runs.record(steps=steps(2, fault=True)))
    assert report.first_divergence is not None
    assert (report.first_divergence.tap, report.first_divergence.step) == ("hidden", 1)


def test_scores_that_nobody_captured_tell_no_tie(runs: Runs) -> None:
    one, four = Layer.of(10, 1), Layer.of(10, 4)
    assert (one.ids != four.ids).any()
    report = tpcapture.compare(runs.record(*one.taps(1)[1:]), runs.record(*four.taps(4)[1:]))
    assert report.rows[0].verdict == "DIFFERENT"
    assert "tie" not in kinds(report.rows[0])
