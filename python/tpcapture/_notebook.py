"""A report as a table for a notebook: whole in itself, with everything that comes from a run escaped."""

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpcapture._report import Report, Row

MOST_ROWS = 40
"""Rows that are shown where not all are."""

ROWS_BEFORE = 8
"""How many of them stand before the first that is not as it should be."""

MARKS = {"DIFFERENT": "✕", "LAYOUT": "▦", "MISSING": "∅", "SUSPECT": "?", "ROUNDING": "≈", "IDENTICAL": "="}
"""Verdicts are told by shape, and by colour only beside it."""

COLOURS = {"DIFFERENT": "#c2185b", "LAYOUT": "#8e44ad", "MISSING": "#b26a00", "SUSPECT": "#b26a00"}
"""Readable on white and on black."""


def table(report: "Report") -> str:
    """The verdict, where it begins, and the rows around there."""
    bad = (i for i, row in enumerate(report.rows) if row.verdict in COLOURS)
    start = max(0, min(next(bad, 0) - ROWS_BEFORE, len(report.rows) - MOST_ROWS))
    shown = report.rows[start : start + MOST_ROWS]
    heads = ("verdict", "tap", "step", "units", "rel L2", "max abs", "ranks", "placement")
    hidden = len(report.rows) - len(shown)
    notes = [f"{row.tap}, step {row.step}: {found.text}" for row in shown for found in row.diagnoses]
    return "".join(
        [
            f"<div><p><strong>{_headline(report)}</strong><br>{escape(' · '.join(report.runs))}</p>",
            "<table><thead><tr>",
            *(f'<th style="text-align:left">{head}</th>' for head in heads),
            "</tr></thead><tbody>",
            *map(_row, shown),
            "</tbody></table>",
            f"<p>… {hidden} more rows, {start} of them before</p>" if hidden else "",
            _listed("", notes[:MOST_ROWS]),
            _listed("cannot be read:", [f"{error.reason}: {error.file}" for error in report.errors]),
            "</div>",
        ]
    )


def _listed(heading: str, lines: list[str]) -> str:
    return f"{heading}<ul>{''.join(f'<li>{escape(line)}</li>' for line in lines)}</ul>" if lines else ""


def _headline(report: "Report") -> str:
    if report.verdict is None:
        return "nothing was compared"
    counts = ", ".join(f"{n} {verdict}" for verdict, n in report.counts.items() if n)
    first = report.first_divergence
    where = f", first at {escape(first.tap)}, step {first.step}" if first else ""
    return f"{_mark(report.verdict)}{where} <small>({counts})</small>"


def _row(row: "Row") -> str:
    where = [str(row.step), f"#{row.call}" if row.call else "", escape(row.group or "")]
    numbers = ("" if x is None else f"{x:.3g}" for x in (row.max_units, row.rel_l2, row.max_abs))
    ranks = ", ".join(map(str, row.ranks))
    tap, placement = f"<code>{escape(row.tap)}</code>", escape(row.placement or "")
    cells = [_mark(row.verdict), tap, " ".join(filter(None, where)), *numbers, ranks, placement]
    return "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in cells) + "</tr>"


def _mark(verdict: str | None) -> str:
    if verdict is None:
        return "-"
    colour = COLOURS.get(verdict, "inherit")
    return f'<span style="color:{colour};white-space:nowrap">{MARKS[verdict]} {verdict}</span>'
