//! `tpcapture ps`: the live processes that can be switched on, and where each is.

use crate::{
    Error,
    live::{
        closed::Closed,
        jobs::{Job, jobs},
        process::Seen,
        table::{rows, width},
        watch::watch,
        whom::{Whom, remarks},
        words::{notes, now_ns, runs},
    },
    output::Output,
};
use serde::Serialize;

/// Arguments of `ps`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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
    processes: &'a [Seen],
    /// Processes that cannot be used, though they hold a page or look like a server.
    closed: &'a [Closed],
    /// How many processes this user may not look into.
    opaque: usize,
}

/// Lists the processes.
pub(crate) fn ps(args: &Args) -> Result<Output, Error> {
    let list = || list(args);
    if args.watch { watch(args.json, list) } else { list() }
}

fn list(args: &Args) -> Result<Output, Error> {
    let (found, processes) = args.whom.look()?;
    if args.json {
        let listing = Listing { processes: &processes, closed: &found.closed, opaque: found.n_opaque };
        return Ok(Output::json(&listing, &[]));
    }
    let mut output = Output::text(text(&processes, width(), now_ns()), &[]);
    output.notes = remarks(&found, processes.is_empty());
    Ok(output)
}

/// A table for each job, with what it captures above and what is to be said of it below.
fn text(processes: &[Seen], width: Option<usize>, now_ns: u64) -> String {
    let jobs = jobs(processes);
    let of = |job: &Job<'_>| {
        let mut text = String::new();
        if jobs.len() > 1 {
            text += &format!("{}\n", job.title());
        }
        for (run, members) in runs(&job.members) {
            text += &format!("{}\n", run.line(members[0], now_ns));
        }
        text += &rows(&job.members, width, now_ns);
        text.extend(notes(&job.members).into_iter().map(|note| note + "\n"));
        text
    };
    jobs.iter().map(of).collect::<Vec<_>>().join("\n")
}
