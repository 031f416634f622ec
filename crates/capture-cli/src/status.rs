//! `tpcapture status`: what live processes capture, and how that goes.

use crate::{
    Error,
    live::{
        process::Seen,
        table::{rows, width},
        watch::watch,
        whom::{Whom, remarks},
        words::{Run, notes, now_ns, runs},
    },
    output::Output,
    run::printable,
};
use capture_compare::path_as_text;
use serde::Serialize;
use std::path::Path;

/// Arguments of `status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only this run: its name or its directory.
    run: Option<String>,
    #[command(flatten)]
    whom: Whom,
    /// Print one JSON object; with --watch one a second, each in a line.
    #[arg(long)]
    json: bool,
    /// Draw it again and again, until Ctrl-C.
    #[arg(long)]
    watch: bool,
}

#[derive(Serialize)]
struct Listing<'a> {
    runs: Vec<OfRun<'a>>,
}

#[derive(Serialize)]
struct OfRun<'a> {
    #[serde(serialize_with = "path_as_text")]
    run: &'a Path,
    select: &'a str,
    processes: Vec<&'a Seen>,
}

/// Says how captures stand.
pub(crate) fn status(args: &Args) -> Result<Output, Error> {
    let state = || state(args);
    if args.watch { watch(args.json, state) } else { state() }
}

fn state(args: &Args) -> Result<Output, Error> {
    let (found, seen) = args.whom.look()?;
    let all: Vec<&Seen> = seen.iter().collect();
    let mut runs = runs(&all);
    runs.retain(|(run, _)| args.run.as_deref().is_none_or(|wanted| run.is_called(wanted)));
    if let (Some(wanted), true) = (&args.run, runs.is_empty()) {
        return Err(Error::NotFound(format!(
            "no live process captures, or last captured, run {wanted:?}; of runs that are over `tpcapture ls` tells"
        )));
    }
    if args.json {
        let of_runs = runs.into_iter();
        let runs =
            of_runs.map(|(Run { path: run, select }, processes)| OfRun { run, select, processes }).collect();
        return Ok(Output::json(&Listing { runs }, &[]));
    }
    let text = match runs.as_slice() {
        [] if !seen.is_empty() => format!("no capture is on: {} processes, see `tpcapture ps`\n", seen.len()),
        runs => runs.iter().map(|(run, members)| text(run, members)).collect::<Vec<_>>().join("\n"),
    };
    let mut output = Output::text(text, &[]);
    output.notes = remarks(&found, seen.is_empty());
    Ok(output)
}

fn text(run: &Run<'_>, members: &[&Seen]) -> String {
    let now_ns = now_ns();
    let mut text = format!("{}\n", run.line(members[0], now_ns));
    for (rule, value) in [("select", run.select), ("began at", &began(members))] {
        if !value.is_empty() {
            text += &format!("{rule:8}  {}\n", printable(value));
        }
    }
    text += &rows(members, width(), now_ns);
    text.extend(notes(members).into_iter().map(|note| note + "\n"));
    text
}

/// The counts of forward passes at which the run's step 1 began.
fn began(members: &[&Seen]) -> String {
    let mut steps: Vec<u64> = members.iter().filter_map(|seen| seen.answer.began_at).collect();
    steps.sort_unstable();
    steps.dedup();
    let steps: Vec<String> = steps.iter().map(u64::to_string).collect();
    if steps.is_empty() {
        String::new()
    } else {
        format!("step {} of the processes' own count", steps.join(" and "))
    }
}
