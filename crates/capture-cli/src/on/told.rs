//! What `on` says: which run, who begins when, what it took the place of, and what to type next.

use crate::{
    live::{
        process::Seen,
        switching::{Standing, Switched},
        words::{Run, by_rank, end, losses, now_ns, origin, runs},
    },
    number,
    run::printable,
};
use capture_compare::path_as_text;
use capture_core::{Request, answer::State, request::By};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A capture that another one took the place of.
#[derive(Debug, Serialize)]
pub(super) struct Ended {
    #[serde(serialize_with = "path_as_text")]
    run: PathBuf,
    by: Option<By>,
    began_ns: Option<u64>,
    #[serde(skip)]
    origin: String,
}

/// What was on where something else is now.
pub(super) fn ended(before: &[Seen], switched: &[Switched]) -> Vec<Ended> {
    let is_replaced = |(seen, now): &(&Seen, &Switched)| seen.is_on() && now.first.is_some();
    let replaced: Vec<&Seen> =
        before.iter().zip(switched).filter(is_replaced).map(|(seen, _)| seen).collect();
    let now_ns = now_ns();
    let of = |(run, members): (Run<'_>, Vec<&Seen>)| {
        let answer = &members[0].answer;
        let origin = origin(members[0], now_ns);
        Ended { run: run.path.to_owned(), by: answer.by.clone(), began_ns: answer.began_ns, origin }
    };
    runs(&replaced).into_iter().map(of).collect()
}

/// The run's directory, as far as it is known.
pub(super) fn path(request: &Request, switched: &[Switched]) -> Option<PathBuf> {
    let said = switched.iter().map(|one| &one.seen.answer).find(|answer| answer.id == request.id);
    said.and_then(|answer| answer.run.clone()).or_else(|| Some(request.dir.as_ref()?.join(&request.run)))
}

/// The run, what it took the place of, and who begins when.
pub(super) fn heading(
    request: &Request,
    path: Option<&Path>,
    ended: &[Ended],
    switched: &[Switched],
) -> String {
    let mut text = match path {
        Some(path) => format!("run {}\n", shown(path)),
        None => format!("run {}, in the directory that each process has by TPCAPTURE_DIR\n", request.run),
    };
    for Ended { run, origin, .. } in ended {
        text += &format!("ended run {}, {origin}\n", shown(run));
    }
    let lines = switched.iter().filter_map(|one| Some((&one.seen, line(one)?)));
    text.extend(by_rank(lines).into_iter().map(|line| line + "\n"));
    text
}

fn line(one: &Switched) -> Option<String> {
    let begins = match one.first {
        Some(0) => "at the next tap or step".to_owned(),
        Some(first) => format!("at step {first}"),
        None => "at no step: the count of its steps makes no sense".to_owned(),
    };
    Some(match one.standing {
        Standing::Taken => format!("begin {begins}"),
        Standing::Idle => format!("idle, begin {begins}"),
        Standing::Stopped => {
            format!("stopped (SIGSTOP, a terminal or a debugger), once continued begin {begins}")
        }
        Standing::Refused => {
            format!("refused: {}", printable(one.seen.answer.refused.as_deref().unwrap_or_default()))
        }
        Standing::Gone => "has ended".to_owned(),
        Standing::Unmeant => return None,
    })
}

/// Whether any process captures or will.
pub(super) fn begins(switched: &[Switched]) -> bool {
    switched.iter().any(|one| one.first.is_some())
}

/// 0 where all that are meant begin, 2 where none does.
pub(super) fn status(switched: &[Switched]) -> u8 {
    let fails =
        |one: &Switched| matches!(one.standing, Standing::Refused | Standing::Gone | Standing::Stopped);
    match switched.iter().any(fails) {
        _ if !begins(switched) => 2,
        true => 1,
        false => 0,
    }
}

/// The same once all has ended: a capture that something broke, or that was taken back, is not done as it was asked for, 1,
/// and one that kept nothing then is not done at all, 2.
pub(super) fn status_at_end(request: &Request, switched: &[Switched]) -> u8 {
    let ours = || switched.iter().map(|one| &one.seen).filter(|seen| seen.answer.id == request.id);
    let is_broken = ours().next().is_none()
        || ours().any(|seen| seen.answer.last_error.is_some() || died(seen).is_some());
    let is_empty = ours().all(|seen| seen.answer.counters.records == 0);
    status(switched).max(match (is_broken, is_empty) {
        (true, true) => 2,
        (true, false) => 1,
        (false, _) => 0,
    })
}

/// What to type next.
pub(super) fn next(request: &Request, path: Option<&Path>) -> String {
    let run = path.map_or_else(|| request.run.clone(), shown);
    let commands = [
        ("tpcapture ps --watch".to_owned(), "where each rank is"),
        ("tpcapture off".to_owned(), "end it"),
        (format!("tpcapture compare {run}"), "then, across its ranks"),
    ];
    let width = commands.iter().map(|(command, _)| command.chars().count()).max().unwrap_or(0);
    commands.iter().map(|(command, what)| format!("  {command:width$}  {what}\n")).collect()
}

/// What came of it, once all is sealed.
pub(super) fn outcome(request: &Request, switched: &[Switched]) -> String {
    let ours: Vec<&Seen> =
        switched.iter().map(|one| &one.seen).filter(|seen| seen.answer.id == request.id).collect();
    let sum = |of: fn(&Seen) -> u64| ours.iter().map(|seen| of(seen)).sum::<u64>();
    let records = sum(|seen| seen.answer.counters.records);
    let mut text = format!("{records} records, {}\n", number::bytes(sum(|seen| seen.answer.counters.bytes)));
    for of in [end, died, losses] {
        text.extend(
            by_rank(ours.iter().filter_map(|seen| Some((*seen, of(seen)?)))).into_iter().map(|l| l + "\n"),
        );
    }
    if ours.is_empty() {
        text += "it was switched off, or aimed elsewhere, before it began\n";
    }
    text
}

/// A process that ended before it had sealed what it captured.
fn died(seen: &Seen) -> Option<String> {
    let is_unsealed = seen.gone && !(seen.answer.state == State::Ended && seen.answer.sealed);
    is_unsealed.then(|| "its process ended before it was sealed: see tpcapture recover".to_owned())
}

fn shown(path: &Path) -> String {
    printable(&path.to_string_lossy())
}
