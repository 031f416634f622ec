//! `tpcapture show`: what is in a tap's records, rank by rank.

use crate::{
    Error,
    number::{self, float, value},
    output::{Output, lines, table},
    pattern::matching,
    run::{RunArgs, dtype, logical_shape, printable, rank},
};
use capture_compare::{
    Entry, FileError, Kept, Run, path_as_text,
    summary::{Finite, Summary, summarise},
};
use capture_core::{Dtype, Hash, Identity, Record, Stats, digest, ranks::RankSet};
use comfy_table::CellAlignment;
use serde::Serialize;
use std::{collections::BTreeSet, path::Path};

/// Arguments of `show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: RunArgs,
    /// A tap, or a pattern such as 'model.layers.{0..3}.*'.
    tap: String,
    /// The step; the tap's first one if none is given.
    #[arg(long)]
    step: Option<u64>,
    /// The call within the step; its first one if none is given.
    #[arg(long)]
    call: Option<u64>,
    /// Ranks: 0,3 or 0-3 or, by mesh, tp:0.
    #[arg(long = "rank", value_name = "RANKS", default_value = "all")]
    ranks: RankSet,
}

#[derive(Serialize)]
struct Shown<'a> {
    #[serde(serialize_with = "path_as_text")]
    run: &'a Path,
    records: Vec<Row<'a>>,
    errors: &'a [FileError],
}

#[derive(Serialize)]
struct Row<'a> {
    rank: Option<u32>,
    process: &'a str,
    dtype: String,
    shape: &'a [u64],
    bytes: u64,
    #[serde(flatten)]
    record: &'a Record,
    /// How much was kept: full, stats or hash.
    mode: &'static str,
    /// Of a hash there is none.
    summary: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<Hash>,
    #[serde(skip)]
    identity: &'a Identity,
    #[serde(skip)]
    stored: Dtype,
}

/// First values in a table, so that a row fits 80 columns; JSON has more.
const IN_TABLE: usize = 4;

/// Shows the records of a tap, or of several.
pub(crate) fn show(args: &Args) -> Result<Output, Error> {
    let run = args.run.open()?;
    let (mut text, mut records) = (String::new(), Vec::new());
    let mut first_missing = None;
    for tap in matching(&taps(&run), &args.tap)? {
        let rows = match rows(&run, args, tap) {
            // Of several taps some may lack the step.
            Err(error @ Error::NotFound(_)) => {
                first_missing.get_or_insert(error);
                continue;
            }
            rows => rows?,
        };
        text += if text.is_empty() { "" } else { "\n" };
        text += &describe(&run, tap, &rows);
        records.extend(rows);
    }
    if let (Some(error), true) = (first_missing, records.is_empty()) {
        return Err(error);
    }
    if args.run.json {
        let shown = Shown { run: &run.path, records, errors: &run.errors };
        return Ok(Output::json(&shown, &run.errors));
    }
    Ok(Output::text(text, &run.errors))
}

/// The run's taps, in capture order.
fn taps(run: &Run) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let mut records: Vec<_> = found(run).into_iter().map(|found| (found.process(), found.record())).collect();
    records.sort_by_key(|(process, record)| (*process, record.seq));
    records.into_iter().map(|(_, record)| record.tap.as_str()).filter(|tap| seen.insert(*tap)).collect()
}

/// A record, with its bytes or without.
#[derive(Clone, Copy)]
enum Found<'a> {
    Full(&'a Entry),
    Kept(&'a Kept),
}

/// All records of a run.
fn found(run: &Run) -> Vec<Found<'_>> {
    run.entries.iter().map(Found::Full).chain(run.digests.iter().map(Found::Kept)).collect()
}

impl<'a> Found<'a> {
    fn record(self) -> &'a Record {
        match self {
            Self::Full(entry) => &entry.record,
            Self::Kept(kept) => &kept.digested.record,
        }
    }

    fn process(self) -> usize {
        match self {
            Self::Full(entry) => entry.process,
            Self::Kept(kept) => kept.process,
        }
    }

    fn row(self, run: &'a Run) -> Result<Row<'a>, Error> {
        let (record, identity) = (self.record(), &run.processes[self.process()].identity);
        let (stored, shape, bytes) = match self {
            Self::Full(entry) => (entry.dtype, &entry.shape, entry.n_bytes()),
            Self::Kept(kept) => (kept.digested.dtype, &kept.digested.shape, 0),
        };
        let (mode, summary, hash) = match self {
            Self::Full(entry) => ("full", Some(summarise(run, entry)?), None),
            Self::Kept(Kept { digested, .. }) => {
                (digested.digest.mode(), digested.digest.stats().map(summary), digested.digest.hash())
            }
        };
        Ok(Row {
            rank: identity.rank,
            process: &identity.process,
            dtype: dtype(record, stored),
            shape: logical_shape(record, shape),
            bytes,
            record,
            mode,
            summary,
            hash,
            identity,
            stored,
        })
    }
}

/// Statistics that were kept, as those of bytes would be: without a histogram and first numbers.
fn summary(stats: &Stats) -> Summary {
    let Stats { n, nan, pos_inf, neg_inf, zero, finite } = *stats;
    let finite = finite.map(|digest::Finite { min, max, mean, rms, absmax }| Finite {
        min,
        max,
        mean,
        rms,
        absmax,
        histogram: Vec::new(),
    });
    Summary { n, nan, pos_inf, neg_inf, zero, finite, first: Vec::new() }
}

/// A tap's records of one step and call.
fn rows<'a>(run: &'a Run, args: &Args, tap: &str) -> Result<Vec<Row<'a>>, Error> {
    let identity = |found: &Found<'a>| &run.processes[found.process()].identity;
    let of_tap: Vec<Found<'a>> = found(run).into_iter().filter(|f| f.record().tap == tap).collect();
    let wanted = |f: &&Found<'a>| args.ranks.contains(identity(f).rank, &identity(f).mesh);
    let of_ranks: Vec<Found<'a>> = of_tap.iter().filter(wanted).copied().collect();
    let numbers =
        |of: &[Found<'a>], number: fn(&Record) -> u64| of.iter().map(|f| number(f.record())).collect();
    let missing =
        |what: String, there: String| Error::NotFound(format!("tap {tap:?} has no record {what}; {there}"));
    if of_ranks.is_empty() {
        let ranks: BTreeSet<String> = of_tap.iter().map(|f| rank(identity(f))).collect();
        let there = format!("it has ranks {}", ranks.into_iter().collect::<Vec<_>>().join(","));
        return Err(missing("of those ranks".into(), there));
    }
    let steps: BTreeSet<u64> = numbers(&of_ranks, |r| r.step);
    let step = args.step.or(steps.first().copied()).unwrap_or_default();
    let of_step: Vec<Found<'a>> = of_ranks.into_iter().filter(|f| f.record().step == step).collect();
    let calls: BTreeSet<u64> = numbers(&of_step, |r| r.call);
    let call = args.call.or(calls.first().copied()).unwrap_or_default();
    if of_step.is_empty() {
        return Err(missing(format!("of step {step}"), format!("it has steps {}", number::ranges(steps))));
    }
    let of_call: Vec<Found<'a>> = of_step.into_iter().filter(|f| f.record().call == call).collect();
    if of_call.is_empty() {
        let there = format!("it has calls {}", number::ranges(calls));
        return Err(missing(format!("of step {step}, call {call}"), there));
    }
    of_call.iter().map(|found| found.row(run)).collect()
}

fn describe(run: &Run, tap: &str, rows: &[Row<'_>]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let numbers = |number: fn(&Record) -> u64, of: fn(&Record, &Record) -> bool| -> BTreeSet<u64> {
        let records = found(run).into_iter().map(Found::record);
        records.filter(|r| r.tap == tap && of(r, first.record)).map(number).collect()
    };
    let steps = numbers(|r| r.step, |_, _| true);
    let calls = numbers(|r| r.call, |r, first| r.step == first.step);
    let of = |all: &BTreeSet<u64>| match all.len() {
        1 => String::new(),
        _ => format!(" of {}", number::ranges(all.iter().copied())),
    };
    let (step, call) = (first.record.step, first.record.call);
    let placement = first.record.placement.as_deref().map_or_else(|| "no placement".to_owned(), printable);
    let tap = printable(tap);
    let heading = format!("{tap}: step {step}{}, call {call}{}, {placement}\n", of(&steps), of(&calls));
    let statistics =
        if rows.iter().any(|row| row.summary.is_some()) { statistics(rows) } else { String::new() };
    heading + &statistics + &contents(rows)
}

fn statistics(rows: &[Row<'_>]) -> String {
    let mut table = table(&["rank", "n", "nan", "inf", "zero", "min", "max", "mean", "rms"]);
    for Row { identity, summary, stored, .. } in rows {
        let Some(summary) = summary else { continue };
        let mut cells = vec![rank(identity)];
        let inf = summary.pos_inf + summary.neg_inf;
        cells.extend([summary.n, summary.nan, inf, summary.zero].map(|n| n.to_string()));
        let finite = summary
            .finite
            .as_ref()
            .map(|f| [value(f.min, *stored), value(f.max, *stored), float(f.mean), float(f.rms)]);
        cells.extend(finite.unwrap_or_default());
        table.add_row(cells);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    lines(&table)
}

fn contents(rows: &[Row<'_>]) -> String {
    let mut table = table(&["rank", "dtype", "shape", "min to max", "first values"]);
    for Row { identity, dtype, shape, summary, hash, mode, stored, .. } in rows {
        let histogram = summary.as_ref().and_then(|s| s.finite.as_ref()).map(|f| bars(&f.histogram));
        let histogram = histogram.unwrap_or_default();
        let values = match (summary, hash) {
            (_, Some(hash)) => format!("only a hash was kept: {hash}"),
            (Some(summary), _) if *mode == "full" => {
                let first: Vec<_> = summary.first.iter().take(IN_TABLE).map(|x| value(*x, *stored)).collect();
                let more = if summary.n > first.len() as u64 { " …" } else { "" };
                first.join(" ") + more
            }
            _ => "only statistics were kept".to_owned(),
        };
        table.add_row([rank(identity), printable(dtype), format!("{shape:?}"), histogram, values]);
    }
    if let Some(column) = table.column_mut(0) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    lines(&table)
}

/// A histogram as blocks: an empty part is a dot, the fullest the full block.
fn bars(counts: &[u64]) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = counts.iter().max().copied().unwrap_or(0).max(1);
    let bar = |n: &u64| match n {
        0 => '·',
        n => BLOCKS[(*n as f64 / most as f64 * 7.0).round() as usize],
    };
    counts.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_high_as_counts() {
        let counts = [0, 1, 0, 0, 50, 100, 0, 0, 0, 0, 0, 0, 0, 0, 0, u64::from(u32::MAX)];
        assert_eq!(bars(&counts), "·▁··▁▁·········█");
        assert_eq!(bars(&[7; 16]), "████████████████");
        assert_eq!(bars(&[0; 16]), "················");
    }
}
