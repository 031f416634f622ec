//! `tpcapture on`: switches a capture on in live processes.

mod told;

use crate::{
    Error,
    live::{
        LiveError,
        interrupt::Interrupt,
        jobs::conflict,
        sealing::after_on,
        switching::{Switched, switch_on},
        user::asker,
        whom::{Whom, nobody, remarks},
    },
    output::{Output, early},
};
use capture_core::{
    Request, Selection,
    config::quantity::{parse_size, parse_time},
    name::is_run_name,
    request::Op,
};
use serde::Serialize;
use std::{
    hash::{BuildHasher as _, RandomState},
    path::PathBuf,
    time::Duration,
};
use told::Ended;

/// Arguments of `on`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    whom: Whom,
    /// What to capture, as in TPCAPTURE: '*.q[limit=1], *.mlp.*[every=100]'.
    #[arg(long, default_value = "*")]
    select: Selection,
    /// The next so many steps; else until it is switched off.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    steps: Option<u64>,
    /// The directory that holds runs, as the processes see it; else each has its TPCAPTURE_DIR.
    #[arg(long)]
    dir: Option<PathBuf>,
    /// The run's name; else made of the time.
    #[arg(long, value_parser = run_name)]
    run: Option<String>,
    /// The most bytes that a rank captures, such as 500MB.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    limit_bytes: Option<u64>,
    /// For how long, such as 30s.
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    duration: Option<Duration>,
    /// Return once all ranks have sealed what they captured.
    #[arg(long)]
    wait: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn size(text: &str) -> Result<u64, &'static str> {
    parse_size(text)
        .filter(|n_bytes| *n_bytes > 0)
        .ok_or("expected a size such as 10GiB, 500MB or 1e9 (bytes)")
}

fn time(text: &str) -> Result<Duration, &'static str> {
    let is_long_enough = |time: &Duration| *time >= Duration::from_millis(1);
    parse_time(text).filter(is_long_enough).ok_or("expected a time such as 30s, 500ms or 2m")
}

fn run_name(text: &str) -> Result<String, &'static str> {
    const EXPECTED: &str =
        "expected letters, digits, \".\", \"_\" and \"-\", not beginning with \".\", at most 200 bytes";
    if is_run_name(text) { Ok(text.to_owned()) } else { Err(EXPECTED) }
}

#[derive(Serialize)]
struct Report<'a> {
    /// The run's name.
    run: &'a str,
    /// Its directory, where a process has said so.
    path: Option<PathBuf>,
    processes: &'a [Switched],
    /// Captures that were on before.
    ended: &'a [Ended],
}

/// Switches on.
pub(crate) fn on(args: &Args) -> Result<Output, Error> {
    let interrupt = Interrupt::heed();
    let (found, before) = args.whom.look()?;
    if before.is_empty() {
        return Err(LiveError::Nobody(nobody(&found)).into());
    }
    if let Some(jobs) = conflict(&before) {
        return Err(LiveError::SeveralJobs(jobs).into());
    }
    let request = request(args)?;
    let mut switched = switch_on(&found.processes, &before, &request, interrupt.flag())?;
    interrupt.release();
    let (path, ended) = (told::path(&request, &switched), told::ended(&before, &switched));
    let mut text = told::heading(&request, path.as_deref(), &ended, &switched);
    let mut status = told::status(&switched);
    if !args.wait {
        text += &told::next(&request, path.as_deref());
    } else if told::begins(&switched) {
        if !args.json {
            early(&std::mem::take(&mut text));
        }
        for (switched, seen) in switched.iter_mut().zip(after_on(&found.processes, request.id)) {
            switched.seen = seen;
        }
        text += &told::outcome(&request, &switched);
        status = told::status_at_end(&request, &switched);
    }
    let mut output = if args.json {
        Output::json(&Report { run: &request.run, path, processes: &switched, ended: &ended }, &[])
    } else {
        Output::text(text, &[])
    };
    // Whoever was named and is not there was not switched on.
    status = status.max(u8::from(!found.absent.is_empty()));
    (output.status, output.notes) = (status, remarks(&found, false));
    Ok(output)
}

fn request(args: &Args) -> Result<Request, LiveError> {
    let now = jiff::Timestamp::now();
    // Milliseconds: who switches on twice in a second gets two runs.
    let name = || format!("on-{}.{:03}", now.strftime("%Y%m%d-%H%M%S"), now.subsec_millisecond());
    Ok(Request {
        op: Op::On,
        id: RandomState::new().hash_one((now, std::process::id())),
        run: args.run.clone().unwrap_or_else(name),
        // The processes may work elsewhere.
        dir: args.dir.as_ref().map(std::path::absolute).transpose().map_err(LiveError::NoDirectory)?,
        select: args.select.to_string(),
        ranks: args.whom.ranks.to_string(),
        first: None,
        steps: args.steps,
        limit_bytes: args.limit_bytes,
        for_ms: args.duration.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        by: asker(),
    })
}
