//! Live processes in words: who they are, what they capture, and what is to be said of them.

use super::process::Seen;
use crate::{number, run::printable};
use capture_core::{answer::State, request::By};
use std::{
    collections::BTreeMap,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

/// Now, nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// A run that some processes capture, or captured last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run<'a> {
    /// Its directory.
    pub(crate) path: &'a Path,
    /// What is captured.
    pub(crate) select: &'a str,
}

impl Run<'_> {
    /// Whether that is its name or its directory.
    pub(crate) fn is_called(&self, wanted: &str) -> bool {
        let absolute = std::path::absolute(wanted).ok();
        self.path.file_name().is_some_and(|name| name == wanted)
            || absolute.is_some_and(|path| path == self.path)
    }

    /// Where it is and who switched it on, in one line.
    pub(crate) fn line(&self, member: &Seen, now_ns: u64) -> String {
        format!("run {}, {}", printable(&self.path.to_string_lossy()), origin(member, now_ns))
    }
}

/// The runs of those processes, by the first, and who has them.
pub(crate) fn runs<'a>(processes: &[&'a Seen]) -> Vec<(Run<'a>, Vec<&'a Seen>)> {
    let mut runs: Vec<(Run<'_>, Vec<&Seen>)> = Vec::new();
    for seen in processes.iter().copied() {
        let Some(path) = seen.answer.run.as_deref() else { continue };
        match runs.iter_mut().find(|(run, _)| run.path == path) {
            Some((_, members)) => members.push(seen),
            None => runs.push((Run { path, select: &seen.answer.select }, vec![seen])),
        }
    }
    runs
}

/// `switched on by ada (pid 77), 12 s ago`, as far as it is known.
pub(crate) fn origin(seen: &Seen, now_ns: u64) -> String {
    let by = seen.answer.by.as_ref().map_or_else(|| "from inside".to_owned(), by);
    let since =
        seen.answer.began_ns.map(|began| format!(", {} ago", number::span(now_ns.saturating_sub(began))));
    format!("switched on {by}{}", since.unwrap_or_default())
}

fn by(by: &By) -> String {
    format!("by {} (pid {})", printable(&by.user), by.pid)
}

/// A text for each process, those with the same text in one line: `ranks 0-3: text`. In the order of the first.
pub(crate) fn by_rank(
    lines: impl IntoIterator<Item = (impl std::borrow::Borrow<Seen>, String)>,
) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut whose: BTreeMap<String, (Vec<u64>, Vec<u64>)> = BTreeMap::new();
    for (seen, text) in lines {
        let answer = &seen.borrow().answer;
        let (ranks, pids) = whose.entry(text.clone()).or_default();
        match answer.rank {
            Some(rank) => ranks.push(u64::from(rank)),
            None => pids.push(u64::from(answer.pid)),
        }
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let line = |text: String| {
        let (ranks, pids) = whose.remove(&text).unwrap_or_default();
        let names = [named("rank", ranks), named("pid", pids)];
        let names: Vec<String> = names.into_iter().flatten().collect();
        format!("{}: {text}", names.join(", "))
    };
    texts.into_iter().map(line).collect()
}

/// `rank 3` or `ranks 0-3,7`.
fn named(what: &str, mut numbers: Vec<u64>) -> Option<String> {
    numbers.sort_unstable();
    numbers.dedup();
    let plural = if numbers.len() > 1 { "s" } else { "" };
    (!numbers.is_empty()).then(|| format!("{what}{plural} {}", number::ranges(numbers)))
}

/// What a table does not say.
pub(crate) fn notes(processes: &[&Seen]) -> Vec<String> {
    let of = [liveness, progress, end, losses, error];
    of.iter().flat_map(|of| by_rank(processes.iter().filter_map(|seen| Some((*seen, of(seen)?))))).collect()
}

fn liveness(seen: &Seen) -> Option<String> {
    Some(match seen {
        Seen { gone: true, .. } => "has ended".into(),
        Seen { stopped: true, .. } => {
            "does not answer, it is stopped (SIGSTOP, a terminal or a debugger)".into()
        }
        Seen { fault: Some(fault), .. } => (*fault).into(),
        Seen { unheeded: true, .. } => {
            "has not taken the last request yet, it does at its next tap or step".into()
        }
        _ => return None,
    })
}

fn progress(seen: &Seen) -> Option<String> {
    let answer = &seen.answer;
    if seen.unheeded || answer.state != State::Armed || answer.began_at.is_some() {
        return None;
    }
    Some(match answer.first {
        Some(0) => "begins at its next tap or step".into(),
        Some(first) => format!("begins at step {first}"),
        None => "was armed by a command that ended before it said where to begin: `tpcapture off`".into(),
    })
}

pub(crate) fn end(seen: &Seen) -> Option<String> {
    let reason = printable(seen.answer.reason.as_deref()?);
    let sealing =
        if seen.answer.sealed || seen.gone { "" } else { "; what it captured is still being sealed" };
    Some(format!("ended: {reason}{sealing}"))
}

pub(crate) fn losses(seen: &Seen) -> Option<String> {
    let counters = &seen.answer.counters;
    if counters.lost + counters.refused == 0 {
        return None;
    }
    let of = |n: u64, what: &str| (n > 0).then(|| format!("{n} {what}"));
    let counts: Vec<String> =
        [of(counters.lost, "lost"), of(counters.refused, "refused")].into_iter().flatten().collect();
    let first = seen.answer.losses.first();
    let first = first.map(|loss| format!(", first {:?}: {}", loss.tap, printable(&loss.reason)));
    Some(format!("{}{}", counts.join(", "), first.unwrap_or_default()))
}

fn error(seen: &Seen) -> Option<String> {
    let answer = &seen.answer;
    answer.last_error.as_deref().filter(|error| answer.reason.as_deref() != Some(error)).map(printable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture_core::{
        Answer,
        manifest::{Counters, Loss},
    };

    fn seen(rank: Option<u32>, pid: u32) -> Seen {
        Seen { answer: Answer { rank, pid, ..Answer::default() }, ..Seen::default() }
    }

    #[test]
    fn what_is_the_same_is_said_once() {
        let all =
            [(Some(1), 11), (None, 30), (Some(0), 10), (Some(2), 12)].map(|(rank, pid)| seen(rank, pid));
        let texts = ["a", "a", "b", "a"].map(str::to_owned);
        assert_eq!(by_rank(all.iter().zip(texts)), ["ranks 1-2, pid 30: a", "rank 0: b"]);
    }

    #[test]
    fn what_a_process_does_is_said() {
        let mut all = [seen(Some(0), 10), seen(Some(1), 11), seen(Some(2), 12)];
        all[0].stopped = true;
        all[1].answer.state = State::Armed;
        all[1].answer.first = Some(118);
        all[2].answer.state = State::Ended;
        all[2].answer.reason = Some("disk: full".into());
        all[2].answer.last_error = Some("disk: full".into());
        all[2].answer.counters = Counters { lost: 12, refused: 1, ..Counters::default() };
        all[2].answer.losses = vec![Loss { tap: "a.q".into(), reason: "ring full".into(), count: 12 }];
        let expected = [
            "rank 0: does not answer, it is stopped (SIGSTOP, a terminal or a debugger)",
            "rank 1: begins at step 118",
            "rank 2: ended: disk: full; what it captured is still being sealed",
            "rank 2: 12 lost, 1 refused, first \"a.q\": ring full",
        ];
        assert_eq!(notes(&all.iter().collect::<Vec<_>>()), expected);
    }

    #[test]
    fn who_switched_it_on_is_said() {
        let mut one = seen(None, 1);
        assert_eq!(origin(&one, 0), "switched on from inside");
        one.answer.by = Some(By { pid: 77, user: "ada".into(), host: "h".into() });
        one.answer.began_ns = Some(5_000_000_000);
        assert_eq!(origin(&one, 17_400_000_000), "switched on by ada (pid 77), 12 s ago");
    }
}
