"""What a comparison found: `tpcapture.compare(run_a, run_b)`."""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tpcapture import _native
from tpcapture._run import Run

if TYPE_CHECKING:
    import pandas


class Verdict(str, Enum):
    """What a comparison says of one tensor. A verdict is its name: `row.verdict == "DIFFERENT"`."""

    IDENTICAL = "IDENTICAL"
    ROUNDING = "ROUNDING"
    SUSPECT = "SUSPECT"
    MISSING = "MISSING"
    LAYOUT = "LAYOUT"
    DIFFERENT = "DIFFERENT"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where two runs part."""

    tap: str
    step: int
    call: int
    ranks: list[int]
    """Global ranks whose part differs."""


@dataclass(frozen=True, slots=True)
class Worst:
    """One element on both sides: the first whose class differs, else the one with the largest error."""

    index: list[int]
    """Its place in the logical tensor."""
    reference: float | None
    """None is NaN or infinite, as in JSON."""
    candidate: float | None
    rank: int | None
    """Global rank of the candidate that holds it, the first where several do."""


@dataclass(frozen=True, slots=True)
class RankError:
    """The errors of one rank's part."""

    rank: int
    max_units: float | None
    """None where a class differs, and where there are no units, as of integers."""
    row_units: float | None
    """Largest rms of the part's piece of a row, of at least 16 numbers."""


@dataclass(frozen=True, slots=True)
class Test:
    """A test that decided."""

    name: str
    severity: float | None
    """Its statistic as a share of its limit."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A finding beside the verdict."""

    kind: str
    text: str
    fit: list[float | None]
    """The numbers of the fit; empty where nothing was fitted."""
    suggest: str | None
    """A placement to try."""


@dataclass(frozen=True, slots=True)
class Row:
    """One logical tensor, compared. Numbers that do not exist are None."""

    tap: str
    """As the reference calls it."""
    step: int
    call: int
    group: str | None
    """What tells replicas of a data-parallel (or other) dimension apart: `dp=1`."""
    verdict: Verdict | None
    """None where nothing was compared."""
    placement: str | None
    placement_from: str | None
    """`capture`, `layouts` or `inferred`."""
    test: Test | None
    """The test that decided; None where none was needed."""
    ranks: list[int]
    """Global ranks whose part differs; all that took part for LAYOUT and MISSING."""
    n: int
    """Elements compared."""
    padded: int
    """Slices of padding left out."""
    max_units: float | None
    """Largest error in rounding units."""
    row_units: float | None
    """Largest rms of a row's errors in rounding units."""
    rel_l2: float | None
    max_abs: float | None
    max_ulp: int | None
    cosine: float | None
    slope: float | None
    nan: int
    """Places that are NaN on one side only."""
    both_nan: int
    by_rank: list[RankError]
    """Empty where a number is not one rank's, as in a sum."""
    worst: Worst | None
    inherited_units: float | None
    """Noise of the taps before, in this tap's rounding units."""
    diagnoses: list[Diagnosis]

    @classmethod
    def of(cls, known: dict[str, Any]) -> "Row":
        """The row of an object of the report's JSON."""
        known["verdict"] = known["verdict"] and Verdict(known["verdict"])
        known["test"] = known["test"] and Test(**known["test"])
        known["by_rank"] = [RankError(**error) for error in known["by_rank"]]
        known["worst"] = known["worst"] and Worst(**known["worst"])
        known["diagnoses"] = [Diagnosis(**diagnosis) for diagnosis in known["diagnoses"]]
        return cls(**known)


@dataclass(frozen=True)
class FileError:
    """A file that cannot be read, wholly or in part."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """How many tensors were left out because the other side lacks them."""

    reference: int
    candidate: int


@dataclass(frozen=True)
class Report:
    """A comparison's findings: iterate over its rows, print it, or show it in a notebook."""

    verdict: Verdict | None
    """The worst of the rows; None where nothing was compared."""
    ok: bool
    """Whether the command's exit status would be 0: no difference, and all could be read."""
    runs: list[str]
    errors: list[FileError]
    first_divergence: Divergence | None
    """The first row in capture order that is DIFFERENT, or LAYOUT where none is."""
    counts: dict[Verdict, int]
    """How many rows have each verdict."""
    left_out: LeftOut
    """What only one side has, where that is left out."""
    rows: list[Row]
    """One per tap, step, call and group, in capture order."""
    _asked: "_native._Asked" = field(repr=False, compare=False)
    _json: str = field(repr=False, compare=False)
    _text: str = field(repr=False, compare=False)

    def __iter__(self) -> Iterator[Row]:
        """The rows, in capture order."""
        return iter(self.rows)

    def __len__(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    def __str__(self) -> str:
        """The terminal report."""
        return self._text

    def __repr__(self) -> str:
        """The verdict, and where it begins."""
        first = self.first_divergence
        where = f", first at {first.tap!r}, step {first.step}" if first else ""
        return f"Report({self.verdict or 'nothing compared'}{where}, {len(self.rows)} rows)"

    def _repr_html_(self) -> str:
        """A table for a notebook."""
        from tpcapture._notebook import table

        return table(self)

    def to_json(self) -> str:
        """The report as `tpcapture compare --json` prints it."""
        return self._json

    def to_html(self) -> str:
        """The report as a page, one HTML file, as `tpcapture report` writes it.

        Reads the runs again, for what only a page shows. OSError where they are no longer there.
        """
        return _native.page(self._asked)

    def save_html(self, path: "StrPath") -> None:
        """Write the page of `to_html` to a file."""
        Path(path).write_text(self.to_html(), encoding="utf-8")

    def to_pandas(self) -> "pandas.DataFrame":
        """The rows as a data frame. ImportError where pandas is missing."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("to_pandas() needs the package pandas: pip install pandas") from error
        columns = list(Row.__dataclass_fields__)
        frame = pandas.DataFrame([asdict(row) for row in self.rows], columns=columns)
        frame["verdict"] = [row.verdict and row.verdict.value for row in self.rows]
        return frame


StrPath = str | os.PathLike[str]


def compare(
    run_a: StrPath | Run,
    run_b: StrPath | Run | None = None,
    *,
    checkpoint: StrPath | None = None,
    layouts: StrPath | Sequence[StrPath] = (),
    only_common: bool = False,
    noise: StrPath | Run | None = None,
    pair: Literal["step", "abs", "inputs"] = "step",
    fail_on_nan: bool = False,
    allow_suspect: bool = False,
    tap: str | None = None,
    step: int | str | None = None,
    engine: Literal["local", "ray"] = "local",
    mmap: bool = True,
) -> Report:
    """Compare a candidate run with a reference, or one run across its ranks, as `tpcapture compare` does.

    run_a, run_b: open runs, or paths of runs or of directories that hold one; run_a is the reference. checkpoint: a
    safetensors file, or a directory of them, to compare the parameters of the one run with. layouts: what is known of
    how taps are sharded, a TOML file, or `vllm`, `vllm-ep` or `hf` for the usual modules of these, or several, of which
    the first that speaks of a tap counts. only_common: leave out taps, steps and ranks that only one run has. noise: a
    second run of the reference that differs from it by rounding only: what it is off by is allowed. pair: which steps
    belong together, those of one number in the run, of one number in the process, or with the same rows of the taps
    that the layouts file aligns by. fail_on_nan: take NaN at the same place on both sides for a difference.
    allow_suspect: take SUSPECT for no difference. tap, step: report on these only, a name or pattern and `10` or
    `"10-20"`; all are compared nonetheless. engine: `"ray"` has tensors read by an existing Ray cluster, on whose
    machines the files of a run may be spread; variables such as `$SCRATCH` in a path are then each machine's own. mmap:
    map the files rather than read them.

    OSError: a path is no run, or the layouts file cannot be read. ValueError: an argument or the layouts file does not
    parse, or there is no such tap or step.
    """
    if checkpoint is not None and run_b is not None:
        raise ValueError("expected a checkpoint or a second run to compare with, found both")
    several = [layouts] if isinstance(layouts, str | os.PathLike) else layouts
    asked: _native._Asked = {
        "run": _path(run_a),
        "run_b": None if run_b is None else _path(run_b),
        "checkpoint": None if checkpoint is None else os.fspath(checkpoint),
        "layouts": [os.fspath(path) for path in several],
        "only_common": only_common,
        "noise": None if noise is None else _path(noise),
        "pair": pair,
        "fail_on_nan": fail_on_nan,
        "allow_suspect": allow_suspect,
        "tap": tap,
        "step": None if step is None else str(step),
        "engine": engine,
        "mmap": mmap,
    }
    text, terminal, status = _native.compare(asked)
    known = json.loads(text)
    return Report(
        verdict=known["verdict"] and Verdict(known["verdict"]),
        ok=status == 0,
        runs=known["runs"],
        errors=[FileError(**error) for error in known["errors"]],
        first_divergence=known["first_divergence"] and Divergence(**known["first_divergence"]),
        counts={Verdict(verdict): n for verdict, n in known["counts"].items()},
        left_out=LeftOut(**known["left_out"]),
        rows=[Row.of(row) for row in known["rows"]],
        _asked=asked,
        _json=text,
        _text=terminal,
    )


def _path(run: StrPath | Run) -> str:
    return os.fspath(run.path if isinstance(run, Run) else run)
