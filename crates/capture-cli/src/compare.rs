//! `tpcapture compare`: a run across its ranks, or a candidate against a reference.

use crate::{
    Error, number,
    output::{Output, lines, table},
    progress::Progress,
    run::{Reading, printable},
};
use capture_compare::{
    Entry, Layouts, Options, Report, Run, Verdict, check,
    report::{PlacementFrom, Row},
};
use comfy_table::{Cell, CellAlignment, Color};
use std::{collections::BTreeSet, env, io::IsTerminal as _, path::PathBuf};

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A run, or a directory that holds one. The reference, where a second run is given.
    run: PathBuf,
    /// The run to compare with it. Without one, RUN is compared across its ranks.
    run_b: Option<PathBuf>,
    /// What is known of how taps are sharded (TOML).
    #[arg(long, value_name = "FILE")]
    layouts: Option<PathBuf>,
    /// Take NaN at the same place on both sides for a difference.
    #[arg(long)]
    fail_on_nan: bool,
    /// Take SUSPECT, where nothing can be told, for no difference.
    #[arg(long)]
    allow_suspect: bool,
    #[command(flatten)]
    reading: Reading,
}

/// Compares.
pub(crate) fn compare(args: &Args) -> Result<Output, Error> {
    let layouts = args.layouts.as_deref().map_or_else(|| Ok(Layouts::default()), Layouts::read)?;
    let reference = Run::open(&args.run, args.reading.access())?;
    let candidate = args.run_b.as_deref().map(|b| Run::open(b, args.reading.access())).transpose()?;
    let n_bytes = |run: &Run| run.entries.iter().map(Entry::n_bytes).sum::<u64>();
    let progress = Progress::new(n_bytes(&reference) + candidate.as_ref().map_or(0, n_bytes));
    let add = |n_bytes| progress.add(n_bytes);
    let options = Options { fail_on_nan: args.fail_on_nan, progress: Some(&add) };
    let mut report = match &candidate {
        Some(candidate) => capture_compare::compare(&reference, candidate, &layouts, options),
        None => check(&reference, &layouts, options),
    };
    drop(progress);
    report.runs = [Some(&args.run), args.run_b.as_ref()]
        .into_iter()
        .flatten()
        .map(|p| p.display().to_string())
        .collect();
    let mut output = if args.reading.json {
        Output::json(&report, &report.errors)
    } else {
        let runs = std::iter::once(&reference).chain(&candidate);
        let colours = std::io::stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        let mut output = Output::text(text(&report, runs, colours), &report.errors);
        if let Some(why) = nothing(&report, &reference) {
            output.notes.push(format!("tpcapture: nothing was compared: {why}"));
        }
        output
    };
    output.status = match report.verdict {
        Some(Verdict::Suspect) if args.allow_suspect && report.errors.is_empty() => 0,
        _ => report.exit_status(),
    };
    Ok(output)
}

fn text<'r>(report: &Report, runs: impl Iterator<Item = &'r Run>, colours: bool) -> String {
    let mut text = headline(report);
    let runs: Vec<&Run> = runs.collect();
    let several = runs.iter().any(|r| r.processes.len() > 1);
    if runs.iter().flat_map(|r| &r.processes).any(|p| p.identity.mesh.assumed) {
        text += "the mesh is assumed: all of the world is taken as tp\n";
    }
    if !report.rows.is_empty() {
        text += "\n";
        text += &rows(&report.rows, several, colours);
        if several && report.rows.iter().any(is_guess) {
            text += "?: no placement was given, and this one fits the shapes\n";
        }
    }
    let notes: String = report.rows.iter().flat_map(notes).collect();
    if !notes.is_empty() {
        text += "\n";
        text += &notes;
    }
    text
}

/// Why no row has a verdict, where none has.
fn nothing(report: &Report, run: &Run) -> Option<&'static str> {
    let ranks = run.entries.iter().map(|e| e.process).collect::<BTreeSet<_>>().len();
    let placed = report.rows.iter().any(|r| r.placement.is_some());
    report.verdict.is_none().then_some(match (report.rows.as_slice(), report.errors.as_slice()) {
        ([], []) => "the runs hold no records",
        ([], _) => "no record can be read",
        _ if ranks == 1 => "the run has one rank; give a second run",
        _ if !placed => "no tap has a placement; give them at the taps or in --layouts, or a second run",
        _ => "no tap is held whole by several ranks; give a second run",
    })
}

/// The verdict, where it begins, and how often there is which.
fn headline(report: &Report) -> String {
    let Some(verdict) = report.verdict else { return "nothing was compared\n".to_owned() };
    let rows = |n: usize| format!("{n} row{}", if n == 1 { "" } else { "s" });
    let unchecked = report.rows.iter().filter(|r| r.verdict.is_none()).count();
    if let (Verdict::Identical, [_]) = (verdict, report.runs.as_slice()) {
        let equal = format!("replicas equal: {}", rows(report.rows.len() - unchecked));
        return match unchecked {
            0 => equal + "\n",
            n => format!("{equal}; {} cannot be checked without a reference run\n", rows(n)),
        };
    }
    let mut text = verdict.to_string();
    if let Some(first) = &report.first_divergence {
        let same = |r: &&Row| {
            (r.tap == first.tap && r.step == first.step && r.call == first.call)
                && r.verdict.is_some_and(|v| v >= Verdict::Layout)
        };
        text +=
            &format!(", first at {}{}", place(&first.tap, first.step, first.call), ranks_of(&first.ranks));
        if let Some(worst) = report.rows.iter().find(same).and_then(|r| r.worst.as_ref()) {
            let [reference, candidate] = [worst.reference, worst.candidate].map(number::float);
            text += &format!("\nat {:?}: reference {reference}, candidate {candidate}", worst.index);
        }
    }
    let mut counts: Vec<String> =
        report.counts.iter().filter(|c| *c.1 > 0).map(|(verdict, n)| format!("{n} {verdict}")).collect();
    if unchecked > 0 {
        counts.push(format!("{unchecked} not checked"));
    }
    format!("{text}\n{}\n", counts.join(", "))
}

fn ranks_of(ranks: &[u32]) -> String {
    match ranks {
        [] => String::new(),
        [one] => format!(", rank {one}"),
        several => format!(", ranks {}", number::ranges(several.iter().map(|r| u64::from(*r)))),
    }
}

/// `layers.0.q, step 3`, and the call where it is not the first.
fn place(tap: &str, step: u64, call: u64) -> String {
    let call = if call == 0 { String::new() } else { format!(", call {call}") };
    format!("{}, step {step}{call}", printable(tap))
}

/// What is to be said of a row beside its numbers, a line each.
fn notes(row: &Row) -> Vec<String> {
    let group = row.group.as_ref().map_or_else(String::new, |g| format!(", {g}"));
    let place = place(&row.tap, row.step, row.call) + &group;
    let mut notes: Vec<String> = row.diagnoses.iter().map(|d| printable(&d.text)).collect();
    let counted = |n: u64, what: &str, beyond: &str| {
        let plural = if n == 1 { "" } else { "s" };
        (n > 0).then(|| format!("{n} {what}{plural} {beyond}"))
    };
    notes.extend(counted(row.padded, "slice", "of padding left out"));
    notes.extend(counted(row.nan, "place", "NaN on one side only"));
    notes.extend(counted(row.both_nan, "place", "NaN on both sides"));
    let mut lines: Vec<String> = notes.into_iter().map(|note| format!("{place}: {note}\n")).collect();
    lines.extend(
        row.diagnoses.iter().filter_map(|d| Some(format!("  placement = {:?}\n", d.suggest.as_ref()?))),
    );
    lines
}

/// A table narrower than this has to do without some numbers.
const WIDE: u16 = 110;

/// One line for each row; columns that would be empty are left out.
fn rows(rows: &[Row], several: bool, colours: bool) -> String {
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
    header.extend(["ranks", "placement"]);
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
        cells.push(Cell::new(placement(row, several)));
        table.add_row(cells);
    }
    for right in (2..3 + usize::from(calls)).chain(numbers..words) {
        if let Some(column) = table.column_mut(right) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    lines(&table)
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
fn short(x: f64) -> String {
    if !x.is_finite() || x == 0.0 {
        return number::float(x);
    }
    let rounded: f64 = format!("{x:.2e}").parse().unwrap_or(x);
    number::float(rounded)
}
