"""The layouts that come with the package put a model together as vLLM takes it apart, from shapes alone."""

from pathlib import Path

import pytest
import sharded
from conftest import Launch

import tpcapture

QKV = "model.layers.0.self_attn.qkv_proj"


@pytest.mark.parametrize("kv_heads", [8, 4, 2])
def test_one_rank_and_eight_are_identical(tmp_path: Path, kv_heads: int) -> None:
    one = sharded.run(tmp_path / "tp1", 1, kv_heads=kv_heads)
    eight = sharded.run(tmp_path / "tp8", 8, kv_heads=kv_heads)
    report = tpcapture.compare(one, eight, layouts="vllm")
    assert {row.tap: (row.verdict, row.diagnoses) for row in report if row.verdict != "IDENTICAL"} == {}
    assert len(report) == 10 + 2 * 5
    placed = {row.tap: row.placement for row in report}
    kv = 4 * kv_heads
    shared = f"{kv}/{kv_heads}" if kv_heads < 8 else f"{kv}"
    assert placed[f"{QKV}.0"] == f"S(-1, sections=[32,{shared},{shared}])"
    assert (
        placed[f"{QKV}.weight".replace(".weight", ".param.weight")]
        == f"S(0, sections=[32,{shared},{shared}])"
    )
    assert placed["model.layers.0.mlp.gate_up_proj.0"] == "S(-1, sections=2)"
    # One run alone is put together in the same way, and has nothing that does not fit.
    assert {row.verdict for row in tpcapture.compare(eight, layouts="vllm")} <= {None, "IDENTICAL"}


def test_a_rank_with_the_keys_of_other_heads_is_named(rank: Launch, tmp_path: Path) -> None:
    """Four ranks, two heads of keys: rank 1 should have the first and has the second."""
    code = """
import numpy as np, tpcapture
rng = np.random.default_rng(1)
q, k, v = (rng.standard_normal((64, n)).astype(np.float32) for n in (64, 16, 16))
tpcapture.capture("attn.qkv_proj.0", np.concatenate([{q}, {k}, {v}], 1))
tpcapture.capture("attn.o_proj.in.0", {q} * 2)
"""
    one = rank(code.format(q="q", k="k", v="v"), run="one", TPCAPTURE="1").run_dir
    for r in range(4):
        key, value = (8 * (1 if r == 1 else r // 2), 8 * (r // 2))
        cut = {
            "q": f"q[:, {16 * r}:{16 * r + 16}]",
            "k": f"k[:, {key}:{key + 8}]",
            "v": f"v[:, {value}:{value + 8}]",
        }
        four = rank(code.format(**cut), rank=r, world=4, run="four", TPCAPTURE="1").run_dir
    [row, _] = tpcapture.compare(one, four, layouts="vllm")
    assert (row.placement, row.verdict) == ("S(-1, sections=[64,16/2,16/2])", "DIFFERENT")
    assert "candidate: rank 1 does not hold what rank 0 does" in [found.text for found in row.diagnoses]


def test_a_directory_of_the_name_is_no_layouts_file(
    rank: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import numpy as np, tpcapture\ntpcapture.capture('x', np.zeros(1, np.float32))"
    run = rank(code, run="one", TPCAPTURE="1").run_dir
    (tmp_path / "vllm").mkdir()
    monkeypatch.chdir(tmp_path)
    assert tpcapture.compare(run, run, layouts="vllm").ok


def test_where_nothing_tells_the_sections_it_says_what_to_write(rank: Launch, tmp_path: Path) -> None:
    code = "import numpy as np, tpcapture\ntpcapture.capture('a.qkv_proj.0', np.zeros((1, {n}), np.float32))"
    one = rank(code.format(n=12), run="one", TPCAPTURE="1").run_dir
    for r in range(2):
        two = rank(code.format(n=6), rank=r, world=2, run="two", TPCAPTURE="1").run_dir
    [row] = tpcapture.compare(one, two, layouts="vllm")
    assert row.verdict == "LAYOUT"
    assert row.diagnoses[0].text == (
        "sections=3: expected tap a.attn.in.0 or a.o_proj.in.0 in step 0 to tell how wide the first section is, found "
        "none: capture it, or write the sizes: sections=[…]"
    )
    own = tmp_path / "own.toml"
    own.write_text('[[tap]]\nmatch = "*.qkv_proj.0"\nplacement = "S(-1, sections=[8, 2, 2])"\n')
    [row] = tpcapture.compare(one, two, layouts=[own, "vllm"])
    assert (row.verdict, row.placement) == ("IDENTICAL", "S(-1, sections=[8,2,2])")


def test_experts_are_whole_under_expert_parallelism(rank: Launch, tmp_path: Path) -> None:
    """Four experts over ep, which spans the two ranks of tp, as vLLM's mesh says it."""
    code = """
import numpy as np, tpcapture
w13, w2 = np.arange(32.0).reshape(4, 4, 2), np.arange(16.0).reshape(4, 2, 2)
tpcapture.capture("mlp.experts.param.w13_weight", {cut13})
tpcapture.capture("mlp.experts.param.w2_weight", {cut2})
tpcapture.capture("mlp.gate.0", w2[0])
"""
    one = rank(code.format(cut13="w13", cut2="w2"), run="one", TPCAPTURE="1").run_dir
    for r in range(2):
        mesh = {"TPCAPTURE_RANK": str(r), "TPCAPTURE_MESH": "ep=2", "TPCAPTURE": "1"}
        ep = rank(
            code.format(cut13=f"w13[{2 * r}:{2 * r + 2}]", cut2=f"w2[{2 * r}:{2 * r + 2}]"), run="ep", **mesh
        )
        half13 = f"np.concatenate([w13[:, {r}:{r + 1}], w13[:, {2 + r}:{3 + r}]], 1)"
        tp = rank(
            code.format(cut13=half13, cut2=f"w2[:, :, {r}:{r + 1}]"), rank=r, world=2, run="tp", TPCAPTURE="1"
        )
    report = tpcapture.compare(one, ep.run_dir, layouts=["vllm-ep", "vllm"])
    assert [(row.verdict, row.placement) for row in report][:2] == [("IDENTICAL", "S(0)/ep")] * 2
    report = tpcapture.compare(one, tp.run_dir, layouts="vllm")
    placed = [("IDENTICAL", "S(1, sections=2)"), ("IDENTICAL", "S(2)"), ("IDENTICAL", "R")]
    assert [(row.verdict, row.placement) for row in report] == placed


def test_a_file_of_that_name_comes_first(
    rank: Launch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = rank(
        "import numpy, tpcapture\ntpcapture.capture('h', numpy.zeros(3))", rank=0, TPCAPTURE="1"
    ).run_dir
    (tmp_path / "vllm").write_text("placement = 1\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="vllm:1: "):
        tpcapture.compare(run, run, layouts="vllm")
    with pytest.raises(OSError, match=r"cannot read layouts file: No such file.*: sglang"):
        tpcapture.compare(run, run, layouts="sglang")
