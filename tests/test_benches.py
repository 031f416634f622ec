"""Every Python bench runs, and what it says is computed and written as it should be."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from conftest import clean_env

BENCHES = Path(__file__).resolve().parent.parent / "benches"


def load(name: str) -> ModuleType:
    """A module of benches/, which is no package: its files are scripts."""
    spec = importlib.util.spec_from_file_location(f"benches_{name}", BENCHES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


figure = load("figure")


def test_a_ratio_is_that_of_medians_and_its_spread_that_of_turns() -> None:
    found = figure.ratio("a", [2e-6, 4e-6, 9e-6], "b", [1e-6, 5e-6, 3e-6], 1.25)
    # Medians 4 and 3; the turns' ratios are 2, 0.8 and 3.
    assert found.result == pytest.approx(4 / 3)
    assert found.row() == ["a", "4 µs", "b", "3 µs", "1.333 (0.80 to 3.00)", "1.25", "not met"]


def test_a_figure_is_met_up_to_its_target() -> None:
    assert figure.Figure("a", "1", result=2.0, at_most=2.0).met is True
    assert figure.Figure("a", "1", result=2.0).met is None
    assert figure.Figure("a", "0.3 MiB", result=0.3, at_most=32.0, unit="MiB").row()[4:] == [
        "0.300 MiB",
        "32 MiB",
        "met",
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(3.0, "3 s"), (0.0123, "12.3 ms"), (9.99e-7, "999 ns"), (1e-6, "1 µs")]
)
def test_times_have_three_digits_and_a_unit(value: float, text: str) -> None:
    assert figure.seconds(value) == text


def test_percentiles_are_values_that_were_measured() -> None:
    values = list(range(100, 0, -1))
    assert [figure.percentile(values, p) for p in (0, 50, 99, 99.9, 100)] == [1, 51, 100, 100, 100]


def test_every_bench_runs(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    command = [sys.executable, str(BENCHES / "run.py"), "--quick", "--json", str(file)]
    done = subprocess.run(
        command, env=clean_env(TMPDIR=str(tmp_path)), capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    scripts = {path.stem for path in BENCHES.glob("*.py")}
    assert set(found) == scripts - {"run", "stage", "figure", "gpu", "has_gpu"}
    for figures in found.values():
        assert any(f["at_most"] is not None for f in figures)
        assert all(f["measured"] and (f["result"] is None or f["result"] > 0) for f in figures)
    assert list(tmp_path.iterdir()) == [file], "benches leave nothing behind"
