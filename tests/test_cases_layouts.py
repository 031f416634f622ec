"""Faults of layout that users reported: how ranks' slices make the tensor. Each is captured by real ranks, found, and
named with the placement that would fit, which then does."""

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from job import Array, Runs, Tap, kinds, suggested, text_of, whole

import tpcapture


def numbered(rows: Sequence[int], width: int = 4) -> Array:
    """Rows filled with their own numbers."""
    return np.repeat(np.array(rows, dtype=np.float32)[:, None], width, axis=1)


def normals(*shape: int, dtype: type = np.float32, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def sections_of(tensor: Array, sizes: Sequence[int], ranks: int, axis: int) -> list[Array | None]:
    """What ranks hold of a fused tensor: their slice of each section."""
    cut = np.split(tensor, np.cumsum(sizes)[:-1], axis)
    slices = [np.split(section, ranks, axis) for section in cut]
    return [np.concatenate([section[rank] for section in slices], axis) for rank in range(ranks)]


def slices_of(tensor: Array, ranks: int, axis: int) -> list[Array | None]:
    return list(np.split(tensor, ranks, axis))


def placement(axis: int, sizes: Sequence[int]) -> str:
    return f"S({axis}, sections=[{','.join(map(str, sizes))}])"


# --- q, k and v of each rank joined one after the other ------------------------------------------------------------


def test_fused_sections_joined_plainly_are_the_same_rows_in_another_order(runs: Runs) -> None:
    reference = runs.record(whole("qkv", numbered(range(8))))
    parts: list[Array | None] = [numbered([0, 1, 4, 6]), numbered([2, 3, 5, 7])]
    declared = runs.record(Tap("qkv", parts, "S(0, sections=[4,2,2])"))
    assert tpcapture.compare(reference, declared).verdict == "IDENTICAL"
    plain = runs.record(Tap("qkv", parts, "S(0)"))
    report = tpcapture.compare(reference, plain)
    assert (report.verdict, report.rows[0].ranks) == ("DIFFERENT", [0, 1])
    assert "the same rows in another order" in text_of(report.rows[0], "reordered")
    # With as many rows there is more than one way to say it: what is said has to fit.
    fits = runs.placed("qkv", suggested(report.rows[0], "reordered"))
    assert tpcapture.compare(reference, plain, layouts=fits).verdict == "IDENTICAL"
    # And the other way around: the reference is the one that was joined wrongly.
    assert tpcapture.compare(plain, reference).verdict == "DIFFERENT"


@pytest.mark.parametrize(
    ("sizes", "ranks", "axis", "dtype"),
    [
        ([8, 8], 2, 0, np.float32),
        ([16, 4, 4], 4, 0, ml_dtypes.bfloat16),
        ([16, 4, 4], 2, 1, ml_dtypes.bfloat16),
        ([64, 64], 4, 1, np.float16),
        ([12, 12, 12], 2, 1, np.float32),
        ([32, 8, 8], 8, 1, ml_dtypes.bfloat16),
    ],
    ids=str,
)
def test_sections_of_any_size_are_suggested(
    runs: Runs, sizes: list[int], ranks: int, axis: int, dtype: type
) -> None:
    n = sum(sizes)
    tensor = normals(*((n, 24) if axis == 0 else (24, n)), dtype=dtype)
    reference = runs.record(whole("m.fused", tensor))
    candidate = runs.record(Tap("m.fused", sections_of(tensor, sizes, ranks, axis), f"S({axis})"))
    declared = runs.placed("m.fused", placement(axis, sizes))
    assert tpcapture.compare(reference, candidate, layouts=declared).verdict == "IDENTICAL"
    (row,) = tpcapture.compare(reference, candidate).rows
    assert (row.verdict, kinds(row)) == ("DIFFERENT", ["reordered"])
    fits = runs.placed("m.fused", suggested(row, "reordered"))
    assert tpcapture.compare(reference, candidate, layouts=fits).verdict == "IDENTICAL"


def test_other_rows_are_no_reordering(runs: Runs) -> None:
    tensor = normals(32, 24)
    parts = sections_of(tensor + np.float32(0.5) * normals(32, 24, seed=2), [16, 8, 8], 2, 0)
    (row,) = tpcapture.compare(runs.record(whole("x", tensor)), runs.record(Tap("x", parts, "S(0)"))).rows
    assert (row.verdict, "reordered" in kinds(row)) == ("DIFFERENT", False)


# --- interleaved groups cut at their middle -------------------------------------------------------------------------


def test_interleaved_groups_cut_as_halves(runs: Runs) -> None:
    b, a = [0, 1, 2, 3], [10, 11, 12, 13]
    pairs = [n for pair in zip(b, a, strict=True) for n in pair]
    reference = runs.record(whole("ba", numbered(pairs, 2)))
    right: list[Array | None] = [numbered(pairs[:4], 2), numbered(pairs[4:], 2)]
    wrong: list[Array | None] = [numbered([0, 1, 10, 11], 2), numbered([2, 3, 12, 13], 2)]
    fits = runs.record(Tap("ba", right, "S(0, interleave=4)"))
    assert tpcapture.compare(reference, fits).verdict == "IDENTICAL"
    report = tpcapture.compare(reference, runs.record(Tap("ba", wrong, "S(0, interleave=4)")))
    worst = report.rows[0].worst
    assert worst is not None
    assert (report.verdict, worst.index, worst.rank) == ("DIFFERENT", [2, 0], 0)


@pytest.mark.parametrize(("groups", "ranks"), [(8, 2), (8, 4)])
def test_groups_of_any_number(runs: Runs, groups: int, ranks: int) -> None:
    tensor = normals(groups * 3, 20)  # one row of b and two of a in each group
    reference = runs.record(whole("ba", tensor))
    right = runs.record(Tap("ba", slices_of(tensor, ranks, 0), f"S(0, interleave={groups})"))
    assert tpcapture.compare(reference, right).verdict == "IDENTICAL"
    # Every rank's own groups, all of b before all of a.
    each = groups // ranks
    stacked = [
        np.concatenate(
            [
                part.reshape(each, 3, 20)[:, :1].reshape(-1, 20),
                part.reshape(each, 3, 20)[:, 1:].reshape(-1, 20),
            ]
        )
        for part in np.split(tensor, ranks)
    ]
    wrong = runs.record(Tap("ba", list(stacked), f"S(0, interleave={groups})"))
    report = tpcapture.compare(reference, wrong)
    assert (report.verdict, report.rows[0].ranks) == ("DIFFERENT", list(range(ranks)))


# --- partial sums used as if they were the whole --------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=["fp32", "bf16"])
def test_a_skipped_reduction_is_an_unreduced_partial(runs: Runs, ranks: int, dtype: type) -> None:
    partials = [normals(16, 64, dtype=dtype, seed=rank) for rank in range(ranks)]
    total = sum(p.astype(np.float64) for p in partials)
    reference = runs.record(whole("x", normals(4, 64)), whole("y", np.asarray(total).astype(dtype)))
    x = Tap("x", [normals(4, 64)] * ranks, "R")
    replicated = runs.record(x, Tap("y", list(partials), "R"))
    report = tpcapture.compare(reference, replicated)
    (_, row) = report.rows
    assert row.verdict == "DIFFERENT"
    assert "the all-reduce is missing" in text_of(row, "unreduced_partial")
    fits = runs.placed("y", suggested(row, "unreduced_partial"))
    assert tpcapture.compare(reference, replicated, layouts=fits).rows[1].verdict in ("IDENTICAL", "ROUNDING")
    # One run alone sees that the replicas are none.
    assert tpcapture.compare(replicated).rows[1].verdict == "DIFFERENT"
    declared = runs.record(x, Tap("y", list(partials), "P"))
    assert tpcapture.compare(reference, declared).rows[1].verdict in ("IDENTICAL", "ROUNDING")


# --- block scales of shards that are no whole number of blocks -------------------------------------------------------


def blocks(rows: int) -> tuple[Array, Array]:
    """A weight in blocks of 128 x 128, and its scales."""
    weight = normals(rows, 128).astype(ml_dtypes.float8_e4m3fn)
    return weight, np.arange(1, -(-rows // 128) + 1, dtype=np.float32)[:, None]


@pytest.mark.parametrize(("rows", "ranks"), [(256, 4), (384, 2), (512, 8)])
def test_a_rank_with_the_wrong_scale_row_is_named(runs: Runs, rows: int, ranks: int) -> None:
    weight, scale = blocks(rows)
    each = rows // ranks
    held = [sorted({row // 128 for row in range(rank * each, (rank + 1) * each)}) for rank in range(ranks)]
    w = Tap("w.weight", slices_of(weight, ranks, 0), "S(0)")
    of = "scale_of(w.weight, block=[128,128])"
    reference = runs.record(whole("w.weight", weight, "S(0)"), whole("w.scale", scale, of))
    right = runs.record(w, Tap("w.scale", [scale[rows] for rows in held], of))
    assert tpcapture.compare(reference, right).verdict == "IDENTICAL"
    # A rank in the middle took the rows of the rank before it.
    at = next(
        rank
        for rank in range(1, ranks)
        if held[rank] != held[rank - 1] and len(held[rank]) == len(held[rank - 1])
    )
    wrong = [scale[held[rank - 1 if rank == at else rank]] for rank in range(ranks)]
    row = tpcapture.compare(reference, runs.record(w, Tap("w.scale", list(wrong), of))).rows[1]
    # One row that two ranks hold is wrong on one of them.
    assert (row.verdict, at in row.ranks) == ("DIFFERENT", True)
    assert f"rank {at} holds scale row {held[at - 1][0]}" in text_of(row, "rank_order")


def test_after_dequantising_both_sides_compare(runs: Runs) -> None:
    weight, scale = blocks(256)
    layouts = runs.layouts(
        '[[tap]]\nmatch = "w.weight"\nplacement = "S(0)"\n'
        'transforms = ["dequant(fp8-block, scale=w.scale, block=[128,128])"]\n'
        '[[tap]]\nmatch = "w.scale"\nplacement = "scale_of(w.weight, block=[128,128])"\n'
    )
    reference = runs.record(whole("w.weight", weight), whole("w.scale", scale))
    w = Tap("w.weight", slices_of(weight, 4, 0))
    right = runs.record(w, Tap("w.scale", [scale[r // 2 : r // 2 + 1] for r in range(4)]))
    assert tpcapture.compare(reference, right, layouts=layouts).verdict == "IDENTICAL"
    wrong = runs.record(w, Tap("w.scale", [scale[r // 3 : r // 3 + 1] for r in range(4)]))
    report = tpcapture.compare(reference, wrong, layouts=layouts)
    weights, scales = report
    assert (weights.verdict, weights.ranks) == ("DIFFERENT", [2])
    # Two numbers by themselves are few to judge by.
    assert scales.verdict in ("SUSPECT", "DIFFERENT")


# --- scales that were sharded although every rank needs them all, and the reverse ------------------------------------


@pytest.mark.parametrize(("ranks", "axis"), [(2, 0), (4, 0), (2, 1)])
def test_declared_replicated_found_sharded(runs: Runs, ranks: int, axis: int) -> None:
    scales = normals(8, 8, dtype=np.float16)
    reference = runs.record(whole("w2_scales", scales, "R"))
    candidate = runs.record(Tap("w2_scales", slices_of(scales, ranks, axis), "R"))
    (row,) = tpcapture.compare(reference, candidate).rows
    assert row.verdict == "LAYOUT"
    suggest = [d.suggest for d in row.diagnoses if d.suggest is not None]
    assert suggest == [f"S({axis})"]
    fits = runs.placed("w2_scales", suggest[0])
    assert tpcapture.compare(reference, candidate, layouts=fits).verdict == "IDENTICAL"


def test_declared_sharded_found_replicated(runs: Runs) -> None:
    scales = normals(8, 8, dtype=np.float16)
    reference = runs.record(whole("w2_scales", scales, "S(0)"))
    candidate = runs.record(Tap("w2_scales", [scales, scales], "S(0)"))
    (row,) = tpcapture.compare(reference, candidate).rows
    assert row.verdict == "LAYOUT"
    assert [d.suggest for d in row.diagnoses if d.suggest is not None] == ["R"]


# --- a padded vocabulary, uneven shards ------------------------------------------------------------------------------


@pytest.mark.parametrize("pad", [-np.inf, np.nan, 7.0], ids=str)
@pytest.mark.parametrize(("vocab", "ranks"), [(10, 4), (49159, 8)])
def test_the_tail_past_the_logical_size_is_counted(runs: Runs, vocab: int, ranks: int, pad: float) -> None:
    logits = normals(2, vocab)
    each = -(-vocab // ranks)
    tail = np.full((2, each * ranks - vocab), pad, dtype=np.float32)
    parts = slices_of(np.concatenate([logits, tail], 1), ranks, 1)
    reference = runs.record(whole("logits", logits))
    (row,) = tpcapture.compare(reference, runs.record(Tap("logits", parts, f"S(1, size={vocab})"))).rows
    assert (row.verdict, row.padded, row.n) == ("IDENTICAL", each * ranks - vocab, 2 * vocab)


def test_uneven_shards_are_joined_and_never_trimmed(runs: Runs) -> None:
    logits = normals(2, 10)
    cut = [logits[:, start : start + 3] for start in (0, 3, 6, 9)]
    reference = runs.record(whole("logits", logits))
    assert tpcapture.compare(reference, runs.record(Tap("logits", list(cut), "S(1)"))).verdict == "IDENTICAL"
    lost = runs.record(Tap("logits", [*cut[:3], cut[3][:, :0]], "S(1)"))
    assert [row.verdict for row in tpcapture.compare(reference, lost)] == ["LAYOUT"]
    short = runs.record(Tap("logits", list(cut), "S(1, size=12)"))
    (row,) = tpcapture.compare(reference, short).rows
    texts = [diagnosis.text for diagnosis in row.diagnoses]
    assert (row.verdict, texts[0]) == ("LAYOUT", "reference: dim 1: expected 12, the slices add up to 10")


# --- scales in tiles of 128 x 4 --------------------------------------------------------------------------------------


def swizzled(scales: Array, pad: int = 0x7F) -> Array:
    """cuBLAS's tiles: row r, column c of a tile at (r % 32) · 16 + (r // 32) · 4 + c."""
    rows, columns = -(-scales.shape[0] // 128) * 128, -(-scales.shape[1] // 4) * 4
    padded = np.full((rows, columns), pad, dtype=np.uint8)
    padded[: scales.shape[0], : scales.shape[1]] = scales
    tiles = padded.reshape(rows // 128, 4, 32, columns // 4, 4).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(tiles).reshape(rows, columns)


@pytest.mark.parametrize("shape", [(130, 8), (256, 6), (2880 // 16, 12)], ids=str)
def test_scales_in_tiles_are_compared_row_by_row(runs: Runs, shape: tuple[int, int]) -> None:
    scales = np.random.default_rng(3).integers(0, 120, shape, dtype=np.uint8)
    reference = runs.record(whole("block_scale", scales))
    candidate = runs.record(whole("block_scale", swizzled(scales)))
    (row,) = tpcapture.compare(reference, candidate).rows
    if swizzled(scales).shape != shape:
        assert row.verdict == "LAYOUT"
        text = text_of(row, "placement")
        assert str(list(shape)) in text
        assert str(list(swizzled(scales).shape)) in text
    transforms = f'["unswizzle(128x4)", "crop(0, {shape[0]})", "crop(1, {shape[1]})"]'
    layouts = runs.layouts(f'[[tap]]\nmatch = "block_scale"\nside = "candidate"\ntransforms = {transforms}\n')
    assert tpcapture.compare(reference, candidate, layouts=layouts).verdict == "IDENTICAL"
    off = scales.copy()
    off[100, 2] ^= 1
    wrong = runs.record(whole("block_scale", swizzled(off)))
    worst = tpcapture.compare(reference, wrong, layouts=layouts).rows[0].worst
    assert worst is not None
    assert worst.index == [100, 2]
