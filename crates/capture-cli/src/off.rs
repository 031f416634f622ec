//! `tpcapture off`: ends captures in live processes.

use crate::{
    Error,
    live::{
        LiveError,
        process::{Process, Seen},
        sealing::after_off,
        switching::{Standing, Switched, switch_off},
        user::asker,
        whom::{Whom, nobody},
        words::{by_rank, losses, runs},
    },
    number,
    output::Output,
    run::printable,
};
use capture_core::{Request, request::Op};
use serde::Serialize;
use std::time::Duration;

/// Arguments of `off`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    whom: Whom,
    /// Wait until all is sealed, however long that takes; else 5 seconds.
    #[arg(long)]
    wait: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// How long the writers have for what is left in their rings.
const SEAL_LIMIT: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Report<'a> {
    processes: &'a [Switched],
}

/// Ends what is on.
pub(crate) fn off(args: &Args) -> Result<Output, Error> {
    let (found, seen) = args.whom.look()?;
    if seen.is_empty() {
        return Err(LiveError::Nobody(nobody(&found)).into());
    }
    let (processes, before) = on_or_asked(found.processes, seen);
    let request =
        Request { op: Op::Off, ranks: args.whom.ranks.to_string(), by: asker(), ..Request::default() };
    let mut switched = switch_off(&processes, &before, &request)?;
    let after = after_off(&processes, &before, (!args.wait).then_some(SEAL_LIMIT));
    for (switched, seen) in switched.iter_mut().zip(after) {
        switched.seen = seen;
    }
    let mut output = if args.json {
        Output::json(&Report { processes: &switched }, &[])
    } else {
        Output::text(text(&switched), &[])
    };
    // Who is idle costs nothing until it takes notice.
    let fails = |one: &Switched| one.standing != Standing::Idle && trouble(one).is_some();
    output.status = u8::from(switched.iter().any(fails) || !found.absent.is_empty());
    output.notes = found.absent.iter().map(|line| format!("tpcapture: {line}")).collect();
    Ok(output)
}

/// Those that have something to end.
fn on_or_asked(processes: Vec<Process>, seen: Vec<Seen>) -> (Vec<Process>, Vec<Seen>) {
    processes.into_iter().zip(seen).filter(|(_, seen)| seen.is_on() || seen.unheeded).unzip()
}

fn text(switched: &[Switched]) -> String {
    if switched.is_empty() {
        return "no capture is on\n".to_owned();
    }
    let seen: Vec<&Seen> = switched.iter().map(|one| &one.seen).collect();
    let mut text = String::new();
    for (run, members) in runs(&seen) {
        let sum = |of: fn(&Seen) -> u64| members.iter().map(|seen| of(seen)).sum::<u64>();
        let records = sum(|seen| seen.answer.counters.records);
        let bytes = number::bytes(sum(|seen| seen.answer.counters.bytes));
        text += &format!("{}: {records} records, {bytes}\n", printable(&run.path.to_string_lossy()));
    }
    let troubles = switched.iter().filter_map(|one| Some((&one.seen, trouble(one)?)));
    text.extend(by_rank(troubles).into_iter().map(|line| line + "\n"));
    let lost = seen.iter().filter_map(|seen| Some((*seen, losses(seen)?)));
    text.extend(by_rank(lost).into_iter().map(|line| line + "\n"));
    text
}

/// Why a process is not done yet.
fn trouble(one: &Switched) -> Option<String> {
    Some(match one.standing {
        Standing::Gone => "has ended".into(),
        Standing::Stopped => "is stopped, and ends its capture once it is continued".into(),
        Standing::Refused => {
            format!("refused: {}", printable(one.seen.answer.refused.as_deref().unwrap_or_default()))
        }
        Standing::Idle if one.seen.unheeded => "idle, ends its capture at its next tap or step".into(),
        Standing::Taken if !one.seen.answer.sealed && one.seen.answer.began_at.is_some() => {
            "still seals what it captured: see `tpcapture ps`".into()
        }
        _ => return None,
    })
}
