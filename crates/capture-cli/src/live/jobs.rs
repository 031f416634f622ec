//! Which processes belong together.
//!
//! A launcher starts the ranks of a job, and ranks start helpers. So a job is what one process started: the topmost
//! process with a page, and all with pages below its parent. A shell starts many things: there only the ranks' world
//! tells which of its children are one job.

use super::{closed::shortened, process::Seen};
use std::collections::{BTreeMap, BTreeSet};

/// The processes of a job.
#[derive(Debug, Clone)]
pub(crate) struct Job<'a> {
    /// The process that is above all others, or their launcher: its pid and program.
    pub(crate) head: (u32, &'a str),
    pub(crate) members: Vec<&'a Seen>,
}

impl Job<'_> {
    /// What tells it from others.
    pub(crate) fn title(&self) -> String {
        let (pid, program) = self.head;
        format!("pid {pid} ({})", shortened(program, 60))
    }
}

/// Programs that start whatever a person or a container wants.
const SHELLS: [&str; 12] =
    ["ash", "bash", "csh", "dash", "fish", "init", "ksh", "sh", "sshd", "systemd", "tcsh", "zsh"];

/// What tells one job from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// What this process started.
    Launched(u32),
    /// What a shell started, of ranks of a world.
    World(u32, u32),
    /// What is below a child of a shell, of which no more is known.
    Alone(u32),
}

/// The jobs, by their first process.
pub(crate) fn jobs(processes: &[Seen]) -> Vec<Job<'_>> {
    let mut jobs: BTreeMap<Key, Job<'_>> = BTreeMap::new();
    let mut keys = Vec::new();
    for (seen, (key, head)) in processes.iter().zip(heads(processes)) {
        keys.push(key);
        jobs.entry(key).or_insert(Job { head, members: Vec::new() }).members.push(seen);
    }
    let mut taken = BTreeSet::new();
    keys.into_iter().filter(|key| taken.insert(*key)).filter_map(|key| jobs.remove(&key)).collect()
}

/// The job of each process, and who is its head.
pub(crate) fn heads(processes: &[Seen]) -> Vec<(Key, (u32, &str))> {
    let by_pid: BTreeMap<u32, &Seen> = processes.iter().map(|seen| (seen.answer.pid, seen)).collect();
    let of = |seen: &Seen| {
        let above = seen.ancestors.iter().rposition(|above| by_pid.contains_key(&above.pid));
        let root = above.map_or(seen.answer.pid, |i| seen.ancestors[i].pid);
        let root = by_pid[&root];
        let head = (root.answer.pid, root.answer.program.as_str());
        match (root.ancestors.first(), root.answer.world.or(seen.answer.world)) {
            (Some(above), _) if !is_shell(above.pid, &above.name) => {
                (Key::Launched(above.pid), (above.pid, above.name.as_str()))
            }
            (Some(above), Some(world)) if world > 1 => (Key::World(above.pid, world), head),
            _ => (Key::Alone(head.0), head),
        }
    };
    processes.iter().map(|seen| by_pid[&seen.answer.pid]).map(of).collect()
}

fn is_shell(pid: u32, name: &str) -> bool {
    pid <= 1 || name.starts_with("tmux") || name.starts_with("containerd-shim") || SHELLS.contains(&name)
}

/// Why these processes cannot all be given one run; `None` where they can. A run has one process of a rank, and its
/// helpers.
pub(crate) fn conflict(processes: &[Seen]) -> Option<String> {
    let ranked: Vec<&Seen> = processes.iter().filter(|seen| is_ranked(seen)).collect();
    let mut twice = ranked.iter().enumerate().flat_map(|(i, a)| ranked[..i].iter().map(move |b| (*b, *a)));
    let (one, other) = twice.find(|(a, b)| cannot_join(processes, a, b))?;
    let jobs = jobs(processes);
    let of = |seen: &Seen| {
        jobs.iter().find(|job| job.members.iter().any(|member| member.answer.pid == seen.answer.pid))
    };
    let heads = [of(one)?.head, of(other)?.head];
    let heads = if heads[0] == heads[1] {
        [one, other].map(|seen| (seen.answer.pid, seen.answer.program.as_str()))
    } else {
        heads
    };
    let [one, other] = heads.map(|(pid, program)| format!("--pid {pid} ({})", shortened(program, 40)));
    Some(format!("several: choose one by {one} or {other}"))
}

fn cannot_join(all: &[Seen], a: &Seen, b: &Seen) -> bool {
    let is_above = |a: &Seen, b: &Seen| b.ancestors.iter().any(|above| above.pid == a.answer.pid);
    if a.answer.pid == b.answer.pid || is_above(a, b) || is_above(b, a) {
        return false;
    }
    match (a.answer.rank, b.answer.rank) {
        (Some(one), Some(other)) => one == other || a.answer.world != b.answer.world,
        // Of one job a rank may not be known yet; of two it is not one.
        _ => {
            let keys = heads(all);
            let key = |seen: &Seen| {
                let at = all.iter().position(|other| other.answer.pid == seen.answer.pid);
                at.map(|at| keys[at].0)
            };
            key(a) != key(b)
        }
    }
}

/// Whether a process takes part in a model's passes. One that only imported tpcapture, to read a run, does not.
pub(crate) fn is_ranked(seen: &Seen) -> bool {
    seen.answer.rank.is_some() || seen.steps > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::process::Ancestor;
    use capture_core::Answer;

    /// A process below those pids and names.
    fn seen(pid: u32, rank: Option<u32>, world: Option<u32>, above: &[(u32, &str)]) -> Seen {
        let ancestors = above.iter().map(|(pid, name)| Ancestor { pid: *pid, name: (*name).into() });
        let program = format!("python {pid}.py");
        Seen {
            answer: Answer { pid, rank, world, program, ..Answer::default() },
            ancestors: ancestors.collect(),
            ..Seen::default()
        }
    }

    /// The pids of each job, behind its head.
    fn pids(processes: &[Seen]) -> Vec<(u32, Vec<u32>)> {
        let of = |job: Job<'_>| (job.head.0, job.members.iter().map(|seen| seen.answer.pid).collect());
        jobs(processes).into_iter().map(of).collect()
    }

    const BASH: (u32, &str) = (9, "bash");

    #[test]
    fn what_a_launcher_started_is_a_job() {
        let torchrun = [(20, "torchrun"), BASH];
        let helper = [(21, "python"), (20, "torchrun"), BASH];
        let all = [
            seen(21, Some(0), Some(2), &torchrun),
            seen(22, Some(1), Some(2), &torchrun),
            seen(30, None, None, &[BASH]),
            seen(31, None, None, &[(30, "python"), BASH]),
            seen(40, Some(0), Some(2), &helper),
        ];
        assert_eq!(pids(&all), [(20, vec![21, 22, 40]), (30, vec![30, 31])]);
        assert_eq!(conflict(&all), None, "a helper has its parent's rank, and a reader of runs has none");
    }

    #[test]
    fn what_a_shell_started_is_a_job_by_its_world() {
        let all = [
            seen(21, Some(0), Some(2), &[BASH]),
            seen(22, Some(1), Some(2), &[BASH]),
            seen(23, Some(0), Some(4), &[BASH]),
            seen(24, None, None, &[(1, "tini")]),
        ];
        assert_eq!(pids(&all), [(21, vec![21, 22]), (23, vec![23]), (24, vec![24])]);
        let text = "several: choose one by --pid 21 (python 21.py) or --pid 23 (python 23.py)";
        assert_eq!(conflict(&all).as_deref(), Some(text));
        assert_eq!(conflict(&all[..2]), None);
    }

    #[test]
    fn ranks_that_were_started_by_hand_are_one_job() {
        let all = [seen(21, Some(0), Some(2), &[BASH]), seen(22, Some(1), Some(2), &[(8, "zsh")])];
        assert_eq!(pids(&all).len(), 2);
        assert_eq!(conflict(&all), None);
    }

    #[test]
    fn two_servers_are_not_one() {
        let stepping = |pid| Seen { steps: 5, ..seen(pid, None, None, &[BASH]) };
        let text = "several: choose one by --pid 21 (python 21.py) or --pid 22 (python 22.py)";
        assert_eq!(conflict(&[stepping(21), stepping(22)]).as_deref(), Some(text));
        // Of two that were launched alike the ranks tell.
        let launched = |pid, rank| seen(pid, Some(rank), Some(2), &[(20, "supervisord")]);
        assert_eq!(conflict(&[launched(21, 0), launched(22, 0)]).as_deref(), Some(text));
        let unknown = |pid| Seen { steps: 5, ..seen(pid, None, None, &[(20, "EngineCore")]) };
        assert_eq!(conflict(&[unknown(21), unknown(22)]), None, "their ranks are learnt later");
    }
}
