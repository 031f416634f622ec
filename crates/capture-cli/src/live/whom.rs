//! Which processes a command is for.

use super::{
    LiveError,
    closed::Closed,
    process::{Process, Seen},
    procfs::{Life, ProcDir},
    search::Found,
};
use crate::number;
use capture_core::ranks::RankSet;

/// Arguments of every command that is for some processes.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Whom {
    /// Only this process and those below it, such as a launcher and its ranks; may be given several times.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Vec<u32>,
    /// Only these ranks: 0,3 or 0-3, or by mesh tp:0,1;pp:0 (all must hold).
    #[arg(long, default_value = "all", value_name = "SET")]
    pub(crate) ranks: RankSet,
}

impl Whom {
    /// Finds those that are meant.
    pub(crate) fn search(&self) -> Result<Found, LiveError> {
        let mut found = Found::search()?;
        if self.pid.is_empty() {
            return Ok(found);
        }
        found.n_opaque = 0;
        let is_absent = |pid: &&u32| !found.processes.iter().any(|process| process.is_of(**pid));
        found.absent = self.pid.iter().filter(is_absent).map(|pid| absent(*pid, &found.closed)).collect();
        if found.absent.len() == self.pid.len() {
            return Err(LiveError::Nobody(found.absent.swap_remove(0)));
        }
        found.processes.retain(|process| self.pid.iter().any(|pid| process.is_of(*pid)));
        found.closed.retain(|closed| self.pid.contains(&closed.pid));
        Ok(found)
    }

    /// Whether a process is meant, as far as can be said. It asks itself again once it knows its rank.
    pub(crate) fn may_mean(&self, seen: &Seen) -> bool {
        let answer = &seen.answer;
        answer.rank.is_none() || self.ranks.contains(answer.rank, &answer.mesh)
    }

    /// Finds those that are meant, and how they stand.
    pub(crate) fn look(&self) -> Result<(Found, Vec<Seen>), LiveError> {
        let mut found = self.search()?;
        let seen: Vec<Seen> = found.processes.iter().map(Process::look).collect();
        let others = seen.iter().filter(|seen| !self.may_mean(seen));
        found.other_ranks = others.filter_map(|seen| seen.answer.rank).collect();
        let mut meant = seen.iter().map(|seen| self.may_mean(seen));
        found.processes.retain(|_| meant.next().unwrap_or(false));
        Ok((found, seen.into_iter().filter(|seen| self.may_mean(seen)).collect()))
    }
}

/// Why a process that was asked for cannot be had.
fn absent(pid: u32, closed: &[Closed]) -> String {
    if let Some(closed) = closed.iter().find(|closed| closed.pid == pid) {
        return closed.line();
    }
    let is_there = ProcDir::open(pid).is_ok_and(|dir| dir.life() != Life::Ended);
    if !is_there {
        return format!("there is no process {pid}");
    }
    format!(
        "process {pid} has no control page, nor has any below it: it has not imported tpcapture, has \
         TPCAPTURE=never, or could not make one, which it then said on stderr"
    )
}

/// What to say where nobody is there.
pub(crate) fn nobody(found: &Found) -> String {
    if !found.other_ranks.is_empty() {
        let ranks = number::ranges(found.other_ranks.iter().map(|rank| u64::from(*rank)));
        return format!("no process is of the ranks that --ranks names: there are {ranks}");
    }
    let mut text =
        "no process here has a control page; one has it from `import tpcapture` on, unless TPCAPTURE=never"
            .to_owned();
    if found.n_opaque > 0 {
        text += &format!("; {} processes cannot be looked into by this user", found.n_opaque);
    }
    text
}

/// Processes that cannot be used, and so many at most.
const MOST_CLOSED: usize = 8;

/// What could not be looked at, for stderr.
pub(crate) fn remarks(found: &Found, is_empty: bool) -> Vec<String> {
    let nobody = is_empty.then(|| nobody(found));
    let closed = found.closed.iter().take(MOST_CLOSED).map(Closed::line);
    let more = found.closed.len().saturating_sub(MOST_CLOSED);
    let more = (more > 0).then(|| format!("and {more} more like these"));
    let absent = found.absent.iter().cloned();
    nobody
        .into_iter()
        .chain(absent)
        .chain(closed)
        .chain(more)
        .map(|line| format!("tpcapture: {line}"))
        .collect()
}
