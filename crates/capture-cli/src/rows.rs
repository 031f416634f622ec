//! Compared tensors as a table.

use crate::{
    number,
    output::{lines, table},
    run::printable,
};
use capture_compare::{
    Verdict,
    report::{PlacementFrom, Row},
};
use comfy_table::{Cell, CellAlignment, Color, ColumnConstraint, Width};

/// A table narrower than this has to do without some numbers.
const WIDE: u16 = 110;
/// One narrower than this has to do without the placements, which the notes have where they matter.
const NARROW: u16 = 60;

/// The column that gives way where there is no room.
const TAP: usize = 1;
/// Widths of the longest verdict and number.
const VERDICT: u16 = 9;
const UNITS: u16 = 8;

/// One line for each row; columns that would be empty are left out.
pub(crate) fn rows(rows: &[Row], several: bool, colours: bool) -> String {
    let calls = rows.iter().any(|r| r.call > 0);
    let groups = rows.iter().any(|r| r.group.is_some());
    let wide = table(&[]).width().is_none_or(|width| width >= WIDE);
    let mut header = vec!["verdict", "tap", "step"];
    header.extend(calls.then_some("call"));
    header.extend(groups.then_some("group"));
    let numbers = header.len();
    header.push("units");
    header.extend(wide.then_some(["rel L2", "max abs"]).into_iter().flatten());
    let words = header.len();
    header.push("ranks");
    let placements = table(&[]).width().is_none_or(|width| width >= NARROW);
    header.extend(placements.then_some("placement"));
    let mut table = table(&header);
    for row in rows {
        let optional = |x: Option<f64>| Cell::new(x.map_or_else(String::new, short));
        let tap = Cell::new(printable(&row.tap)).set_delimiter('.');
        let mut cells = vec![verdict(row.verdict, colours), tap, Cell::new(row.step)];
        cells.extend(calls.then(|| Cell::new(row.call)));
        cells.extend(groups.then(|| Cell::new(row.group.as_deref().unwrap_or(""))));
        cells.push(optional(row.max_units));
        if wide {
            cells.extend([optional(row.rel_l2), optional(row.max_abs)]);
        }
        cells.push(Cell::new(number::ranges(row.ranks.iter().map(|r| u64::from(*r)))));
        cells.extend(placements.then(|| Cell::new(placement(row, several))));
        table.add_row(cells);
    }
    // Elsewhere than in a terminal a table is as wide as it needs to be.
    let fits = table.width().is_none();
    for (i, name) in header.iter().enumerate().filter(|(i, _)| !fits && *i != TAP) {
        let least = match *name {
            "verdict" => VERDICT,
            "units" => UNITS,
            name => name.len() as u16,
        };
        if let Some(column) = table.column_mut(i) {
            // With the space on either side.
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(least + 2)));
        }
    }
    for right in (2..3 + usize::from(calls)).chain(numbers..words) {
        if let Some(column) = table.column_mut(right) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let mut text = lines(&table);
    if several && rows.iter().any(is_guess) {
        text += "?: no placement was given, and this one fits the shapes\n";
    }
    text
}

/// Whether the placement was made up from shapes.
fn is_guess(row: &Row) -> bool {
    row.placement.is_some() && row.placement_from == Some(PlacementFrom::Inferred)
}

/// `S(1)`, or `S(1)?` where nobody said so and several ranks make it a guess.
fn placement(row: &Row, several: bool) -> String {
    let placement = row.placement.as_deref().map_or_else(String::new, printable);
    if several && is_guess(row) { placement + "?" } else { placement }
}

fn verdict(verdict: Option<Verdict>, colours: bool) -> Cell {
    let Some(verdict) = verdict else { return Cell::new("-") };
    let cell = Cell::new(verdict);
    let colour = match verdict {
        Verdict::Identical | Verdict::Rounding => Color::Green,
        Verdict::Suspect | Verdict::Missing => Color::Yellow,
        Verdict::Layout | Verdict::Different => Color::Red,
    };
    if colours { cell.fg(colour) } else { cell }
}

/// Three digits are enough to read.
pub(crate) fn short(x: f64) -> String {
    if !x.is_finite() || x == 0.0 {
        return number::float(x);
    }
    let rounded: f64 = format!("{x:.2e}").parse().unwrap_or(x);
    number::float(rounded)
}
