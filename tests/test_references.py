"""References of other sizes than the candidate's, where one rank cannot hold the model."""

from pathlib import Path

import pytest
import sharded
from conftest import Launch

import tpcapture


@pytest.fixture(scope="module")
def eight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sharded.run(tmp_path_factory.mktemp("runs") / "tp8", 8)


def test_four_ranks_are_a_reference_of_eight(tmp_path: Path, eight: Path) -> None:
    report = tpcapture.compare(sharded.run(tmp_path / "tp4", 4), eight, layouts="vllm")
    assert {row.tap: (row.verdict, row.diagnoses) for row in report if row.verdict != "IDENTICAL"} == {}
    placed = {row.tap: row.placement for row in report}
    # Two heads of keys: both sides have each twice at least, and so they are compared.
    assert placed["model.layers.1.self_attn.qkv_proj.0"] == "S(-1, sections=[32,16/4,16/4])"


def test_a_model_cut_to_its_first_layer_is_compared_as_far_as_it_goes(tmp_path: Path, eight: Path) -> None:
    cut = sharded.run(tmp_path / "cut", 1, layers=(0, 1))
    missing = tpcapture.compare(cut, eight, layouts="vllm")
    assert (missing.ok, missing.counts["MISSING"]) == (False, 5)
    report = tpcapture.compare(cut, eight, layouts="vllm", only_common=True)
    assert (report.ok, report.counts["MISSING"], len(report)) == (True, 0, 15)
    assert (report.left_out.reference, report.left_out.candidate) == (0, 5)
    assert "left out what only one run has: 0 tensors of the reference, 5 of the candidate" in str(report)


def test_pipeline_stages_are_compared_with_a_run_without(tmp_path: Path, eight: Path) -> None:
    """Two stages of two ranks, each with the taps of its own layer."""
    run = tmp_path / "pp2"
    for stage in range(2):
        for rank in range(2):
            mesh = {"TPCAPTURE_RANK": str(2 * stage + rank), "TPCAPTURE_MESH": "pp=2,tp=2"}
            sharded.one(run, rank, 2, layers=(stage, stage + 1), **mesh)
    report = tpcapture.compare(eight, run, layouts="vllm", only_common=True)
    forward = [row for row in report if "param" not in row.tap]
    assert {row.tap: (row.verdict, row.diagnoses) for row in forward if row.verdict != "IDENTICAL"} == {}
    assert len(forward) == 10


def test_steps_and_replicas_that_one_side_lacks_are_no_difference_in_what_is_common(rank: Launch) -> None:
    code = """
import numpy as np, tpcapture
for step in range({steps}):
    tpcapture.step()
    tpcapture.capture("out", np.arange(3.0), placement="R")
"""
    one = rank(code.format(steps=3), run="one", TPCAPTURE="1").run_dir
    for r in range(2):
        two = rank(code.format(steps=2 - r), rank=r, world=2, run="two", TPCAPTURE="1").run_dir
    assert [row.verdict for row in tpcapture.compare(one, two)] == ["IDENTICAL", "MISSING", "MISSING"]
    report = tpcapture.compare(one, two, only_common=True)
    assert [row.verdict for row in report] == ["IDENTICAL", "IDENTICAL"]
    text = "candidate: no record of rank 1 (the mesh is not known: all ranks were taken as tp)"
    assert report.rows[1].diagnoses[0].text == text
    assert (report.ok, report.left_out.reference) == (True, 1)
