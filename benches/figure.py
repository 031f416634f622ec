"""A measured figure: the subject beside its floor, the result, and what it is allowed to be."""

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which `percent` of the values lie, to the nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def seconds(value: float) -> str:
    """Three digits and a unit."""
    scale, unit = next(((s, u) for s, u in UNITS if value >= s), UNITS[-1])
    return f"{value / scale:.3g} {unit}"


@dataclass(frozen=True)
class Figure:
    """One row of a bench's table."""

    what: str
    measured: str
    against: str = ""
    floor: str = ""
    result: float | None = None
    at_most: float | None = None
    unit: str = ""
    spread: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the result is within its target; None where it has none."""
        return None if self.at_most is None or self.result is None else self.result <= self.at_most

    def row(self) -> list[str]:
        """The cells of the table, see COLUMNS."""
        unit = f" {self.unit}" if self.unit else ""
        result = "" if self.result is None else f"{self.result:.3f}{unit}"
        if self.spread:
            result += f" ({self.spread})"
        at_most = "" if self.at_most is None else f"{self.at_most:g}{unit}"
        met = {True: "met", False: "not met", None: ""}[self.met]
        return [self.what, self.measured, self.against, self.floor, result, at_most, met]

    def as_json(self) -> str:
        return json.dumps(asdict(self) | {"met": self.met}, ensure_ascii=False)


COLUMNS = ["what", "measured", "against", "its figure", "result", "at most", ""]


def ratio(
    what: str,
    subject: Sequence[float],
    against: str,
    floor: Sequence[float],
    at_most: float | None = None,
) -> Figure:
    """The ratio of the medians of times in seconds, taken in turns; the spread is that of the turns' ratios."""
    turns = [s / f for s, f in zip(subject, floor, strict=True)]
    a, b = statistics.median(subject), statistics.median(floor)
    spread = f"{percentile(turns, 10):.2f} to {percentile(turns, 90):.2f}"
    return Figure(what, seconds(a), against, seconds(b), a / b, at_most, spread=spread)


def markdown(figures: Iterable[Figure]) -> list[str]:
    """The table's lines."""
    rows = [COLUMNS, *(figure.row() for figure in figures)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return lines
