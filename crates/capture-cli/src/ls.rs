//! `tpcapture ls`: what a run holds.

use crate::{
    Error,
    gaps::{assumed, gaps},
    number,
    output::{Output, lines, table},
    run::{RunArgs, dtype, logical_shape, printable},
};
use capture_compare::{FileError, Run, path_as_text};
use capture_core::{
    Dtype, Mesh, Record,
    manifest::{Loss, State},
};
use comfy_table::{Cell, CellAlignment};
use serde::Serialize;
use std::{
    collections::{BTreeSet, HashMap},
    path::Path,
};

/// Arguments of `ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Serialize)]
struct Listing<'a> {
    #[serde(serialize_with = "path_as_text")]
    run: &'a Path,
    processes: Vec<Process<'a>>,
    taps: Vec<Tap<'a>>,
    errors: &'a [FileError],
}

#[derive(Serialize)]
struct Process<'a> {
    rank: Option<u32>,
    world: Option<u32>,
    mesh: &'a Mesh,
    process: &'a str,
    records: u64,
    bytes: u64,
    state: Option<State>,
    end_reason: Option<&'a str>,
    lost: Option<u64>,
    refused: Option<u64>,
    /// What was lost or refused, by tap and reason.
    losses: &'a [Loss],
}

/// All records of one tap.
#[derive(Serialize)]
struct Tap<'a> {
    tap: &'a str,
    steps: BTreeSet<u64>,
    /// The most calls within a step.
    calls: u64,
    /// Global ranks; null is unknown.
    ranks: BTreeSet<Option<u32>>,
    dtypes: BTreeSet<String>,
    shapes: BTreeSet<&'a [u64]>,
    placements: BTreeSet<&'a str>,
    /// Most rows of a tensor of which only the first were kept; null where all were.
    full_rows: Option<u64>,
    /// How much of the records was kept.
    modes: BTreeSet<&'static str>,
    records: u64,
    bytes: u64,
}

/// A record of any mode.
struct Known<'a> {
    record: &'a Record,
    process: usize,
    dtype: Dtype,
    shape: &'a [u64],
    mode: &'static str,
    bytes: u64,
}

/// All records of a run, by process and within it in the order of capture.
fn known(run: &Run) -> Vec<Known<'_>> {
    let full = run.entries.iter().map(|entry| Known {
        record: &entry.record,
        process: entry.process,
        dtype: entry.dtype,
        shape: &entry.shape,
        mode: "full",
        bytes: entry.n_bytes(),
    });
    let kept = run.digests.iter().map(|kept| Known {
        record: &kept.digested.record,
        process: kept.process,
        dtype: kept.digested.dtype,
        shape: &kept.digested.shape,
        mode: kept.digested.digest.mode(),
        bytes: 0,
    });
    let mut all: Vec<_> = full.chain(kept).collect();
    all.sort_by_key(|known| (known.process, known.record.seq));
    all
}

/// Lists a run.
pub(crate) fn ls(args: &Args) -> Result<Output, Error> {
    let run = args.run.open()?;
    let listing =
        Listing { run: &run.path, processes: processes(&run), taps: taps(&run), errors: &run.errors };
    if args.run.json {
        return Ok(Output::json(&listing, &run.errors));
    }
    Ok(Output::text(heading(&run, &listing) + &text(&listing.taps), &run.errors))
}

fn processes(run: &Run) -> Vec<Process<'_>> {
    let mut counts = vec![(0, 0); run.processes.len()];
    for known in known(run) {
        let (records, bytes) = &mut counts[known.process];
        (*records, *bytes) = (*records + 1, *bytes + known.bytes);
    }
    let with_counts = run.processes.iter().zip(counts);
    with_counts
        .map(|(process, (records, bytes))| {
            let (identity, manifest) = (&process.identity, process.manifest.as_ref());
            Process {
                rank: identity.rank,
                world: identity.world,
                mesh: &identity.mesh,
                process: &identity.process,
                records,
                bytes,
                state: manifest.map(|m| m.state),
                end_reason: manifest.and_then(|m| m.end_reason.as_deref()),
                lost: manifest.map(|m| m.counters.lost),
                refused: manifest.map(|m| m.counters.refused),
                losses: manifest.map_or(&[], |m| m.losses.as_slice()),
            }
        })
        .collect()
}

/// The taps in the order in which they were first captured.
fn taps(run: &Run) -> Vec<Tap<'_>> {
    let (mut taps, mut index) = (Vec::new(), HashMap::new());
    for Known { record, process, dtype: stored, shape, mode, bytes } in known(run) {
        let i = *index.entry(record.tap.as_str()).or_insert_with(|| {
            taps.push(Tap {
                tap: &record.tap,
                steps: BTreeSet::new(),
                calls: 0,
                ranks: BTreeSet::new(),
                dtypes: BTreeSet::new(),
                shapes: BTreeSet::new(),
                placements: BTreeSet::new(),
                full_rows: None,
                modes: BTreeSet::new(),
                records: 0,
                bytes: 0,
            });
            taps.len() - 1
        });
        let tap = &mut taps[i];
        tap.steps.insert(record.step);
        tap.calls = tap.calls.max(record.call.saturating_add(1));
        tap.ranks.insert(run.processes[process].identity.rank);
        tap.dtypes.insert(dtype(record, stored));
        tap.shapes.insert(logical_shape(record, shape));
        tap.placements.extend(record.placement.as_deref());
        tap.full_rows = tap.full_rows.max(record.full_rows);
        tap.records += 1;
        tap.modes.insert(mode);
        tap.bytes += bytes;
    }
    taps
}

fn heading(run: &Run, listing: &Listing<'_>) -> String {
    let total: u64 = listing.processes.iter().map(|p| p.bytes).sum();
    let text = format!(
        "{}: {}, {}, {}\n",
        run.path.display(),
        counted(run.processes.len() as u64, "process", "es"),
        counted((run.entries.len() + run.digests.len()) as u64, "record", "s"),
        number::bytes(total)
    );
    text + &gaps(run) + &assumed([run])
}

fn counted(n: u64, what: &str, plural: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { plural })
}

const COLUMNS: [&str; 8] = ["tap", "steps", "calls", "ranks", "dtype", "shape", "bytes", "placement"];
/// Columns that a narrow terminal does without, the first to go first.
const DISPENSABLE: [&str; 4] = ["calls", "bytes", "dtype", "steps"];

fn text(taps: &[Tap<'_>]) -> String {
    if taps.is_empty() {
        return String::new();
    }
    let rows: Vec<[String; COLUMNS.len()]> = taps.iter().map(row).collect();
    let columns = kept(&rows, table(&[]).width());
    let mut table = table(&columns.iter().map(|c| COLUMNS[*c]).collect::<Vec<_>>());
    for row in &rows {
        // A name that is still too long is broken at its dots.
        let cell = |c: &usize| Cell::new(&row[*c]).set_delimiter(if *c == 0 { '.' } else { ' ' });
        table.add_row(columns.iter().map(cell));
    }
    for (at, column) in columns.iter().enumerate() {
        if let ("calls" | "bytes", Some(column)) = (COLUMNS[*column], table.column_mut(at)) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    lines(&table)
}

/// The columns that are printed, so that the table is as wide as the terminal at most.
fn kept(rows: &[[String; COLUMNS.len()]], width: Option<u16>) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..COLUMNS.len()).collect();
    let of = |c: usize| {
        let cells = rows.iter().map(|row| row[c].chars().count()).max();
        cells.unwrap_or(0).max(COLUMNS[c].len()) + 2
    };
    for dispensable in DISPENSABLE {
        let all: usize = kept.iter().map(|c| of(*c)).sum();
        if width.is_none_or(|width| all <= usize::from(width)) {
            break;
        }
        kept.retain(|c| COLUMNS[*c] != dispensable);
    }
    kept
}

fn row(tap: &Tap<'_>) -> [String; COLUMNS.len()] {
    let join =
        |texts: Vec<String>, missing: &str| if texts.is_empty() { missing.into() } else { texts.join(" ") };
    let known = number::ranges(tap.ranks.iter().flatten().map(|r| u64::from(*r)));
    let unknown = tap.ranks.contains(&None).then(|| "?".to_owned());
    let ranks: Vec<_> = Some(known).filter(|k| !k.is_empty()).into_iter().chain(unknown).collect();
    let placements: Vec<_> = tap.placements.iter().map(|p| printable(p)).collect();
    [
        printable(tap.tap),
        number::ranges(tap.steps.iter().copied()),
        tap.calls.to_string(),
        join(ranks, "?"),
        join(tap.dtypes.iter().cloned().collect(), ""),
        shapes(&tap.shapes) + &tap.full_rows.map_or_else(String::new, |n| format!(", first rows of {n}")),
        kept_of(tap),
        placements.join(" | "),
    ]
}

/// Bytes, or which digest stands for them: `24 KiB`, `stats`, `24 KiB hash`.
fn kept_of(tap: &Tap<'_>) -> String {
    let bytes = tap.modes.contains("full").then(|| number::bytes(tap.bytes));
    let digests = tap.modes.iter().filter(|mode| **mode != "full").map(|mode| (*mode).to_owned());
    bytes.into_iter().chain(digests).collect::<Vec<_>>().join(" ")
}

/// One shape, or for each number of dims the smallest and largest size of each: `[1..512, 128]`.
fn shapes(shapes: &BTreeSet<&[u64]>) -> String {
    let lengths: BTreeSet<usize> = shapes.iter().map(|s| s.len()).collect();
    let of_length = |n: usize| {
        let same: Vec<_> = shapes.iter().filter(|s| s.len() == n).collect();
        let sizes = (0..n).map(|d| {
            let sizes = || same.iter().map(|s| s[d]);
            match (sizes().min(), sizes().max()) {
                (Some(low), Some(high)) if low < high => format!("{low}..{high}"),
                (low, _) => low.unwrap_or_default().to_string(),
            }
        });
        format!("[{}]", sizes.collect::<Vec<_>>().join(", "))
    };
    lengths.into_iter().map(of_length).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_does_without_some_columns() {
        let row =
            |tap: &str| [tap, "1-3", "1", "0-1", "F32", "[4, 256]", "24 KiB", "S(-1)"].map(str::to_owned);
        let columns = |tap: &str, width| {
            kept(&[row(tap)], width).into_iter().map(|c| COLUMNS[c]).collect::<Vec<_>>().join(" ")
        };
        // With their gaps the columns but the first take 7 + 7 + 7 + 7 + 10 + 8 + 11 = 57.
        let all = "tap steps calls ranks dtype shape bytes placement";
        assert_eq!(columns(&"t".repeat(21), Some(80)), all);
        assert_eq!(columns(&"t".repeat(500), None), all);
        assert_eq!(columns(&"t".repeat(22), Some(80)), "tap steps ranks dtype shape bytes placement");
        assert_eq!(columns(&"t".repeat(36), Some(80)), "tap steps ranks dtype shape placement");
        assert_eq!(columns(&"t".repeat(60), Some(80)), "tap ranks shape placement");
    }

    #[test]
    fn shapes_that_vary_are_ranges() {
        let of = |all: &[&'static [u64]]| shapes(&all.iter().copied().collect());
        assert_eq!(of(&[&[5, 128]]), "[5, 128]");
        assert_eq!(of(&[&[5, 128], &[1, 128], &[512, 128]]), "[1..512, 128]");
        assert_eq!(of(&[&[], &[5], &[7, 1]]), "[] [5] [7, 1]");
    }
}
