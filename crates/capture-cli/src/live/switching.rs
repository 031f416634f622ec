//! Switching captures on and off in several processes at once.
//!
//! First all are armed: each takes the request at its next tap or step, ends what it had on, and waits. Who is idle or
//! stuck takes it later, and misses nothing. Then each is told its first step, until all begin together.

use super::{
    LiveError,
    jobs::conflict,
    party::{Party, fence, take_back, wait},
    process::{Process, Seen},
    replica::{Counted, Replica},
};
use capture_core::{Request, request::Op};
use serde::Serialize;
use std::{sync::atomic::AtomicBool, time::Duration};

/// How long processes that make steps take to see that they are asked; and how many steps, of the fastest.
const ARM_LIMIT: Duration = Duration::from_millis(50);
const ARM_STEPS: u64 = 4;
/// Long enough to see whether steps go by.
const ARM_LEAST: Duration = Duration::from_millis(2);
/// How often a first step is looked for, each time twice as far ahead.
const TRIES: usize = 10;

/// What has become of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Standing {
    /// It took the request.
    Taken,
    /// It takes the request at its next tap or step.
    Idle,
    /// As idle, once it is continued.
    Stopped,
    /// It does not do what was asked.
    Refused,
    /// Its rank is not meant.
    Unmeant,
    /// It has ended.
    Gone,
}

/// A process that was switched.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Switched {
    pub(crate) standing: Standing,
    /// The count of forward passes at which it begins; 0: at its next tap or step.
    #[serde(rename = "begins_at")]
    pub(crate) first: Option<u64>,
    #[serde(flatten)]
    pub(crate) seen: Seen,
}

/// Switches a capture on: `processes` stood as in `before`, and are asked for `request`.
pub(crate) fn switch_on(
    processes: &[Process],
    before: &[Seen],
    request: &Request,
    interrupt: &AtomicBool,
) -> Result<Vec<Switched>, LiveError> {
    let mut parties = Party::lock(processes, before)?;
    let agreed = arm(&mut parties, request, interrupt).and_then(|counted| {
        let mut replicas = Replica::of(&parties, &counted);
        agree(&mut parties, &mut replicas, request, interrupt)?;
        Ok(replicas)
    });
    if agreed.is_err() {
        take_back(&mut parties, request);
    }
    let replicas = agreed?;
    let first =
        |i: usize| replicas.iter().find(|replica| replica.members.contains(&i)).map(|replica| replica.first);
    Ok(parties.iter().enumerate().map(|(i, party)| switched(party, first(i))).collect())
}

/// Ends what is on.
pub(crate) fn switch_off(
    processes: &[Process],
    before: &[Seen],
    request: &Request,
) -> Result<Vec<Switched>, LiveError> {
    let mut parties = Party::lock(processes, before)?;
    for party in &mut parties {
        party.ask(request)?;
    }
    let all = || parties.iter().all(|party| !party.before.is_on() || party.answer().is_some());
    // Who is on has a writer that looks.
    wait(2 * ARM_LIMIT, &AtomicBool::new(false), all)?;
    Ok(parties.iter().map(|party| switched(party, None)).collect())
}

/// Arms all, and returns how their steps moved meanwhile.
fn arm(
    parties: &mut [Party<'_>],
    request: &Request,
    interrupt: &AtomicBool,
) -> Result<Vec<Counted>, LiveError> {
    let request = Request { op: Op::On, first: None, ..request.clone() };
    for party in parties.iter_mut() {
        party.ask(&request)?;
    }
    let before: Vec<u64> = parties.iter().map(|party| party.page.steps()).collect();
    wait(ARM_LEAST, interrupt, || false)?;
    let has_passed =
        |(party, before): (&Party<'_>, &u64)| party.page.steps().saturating_sub(*before) >= ARM_STEPS;
    wait(ARM_LIMIT, interrupt, || {
        parties.iter().all(|party| party.answer().is_some()) || parties.iter().zip(&before).any(has_passed)
    })?;
    // Ranks are known better now.
    let seen: Vec<Seen> = parties.iter().filter(|party| party.takes_part()).map(Party::look).collect();
    if let Some(jobs) = conflict(&seen) {
        return Err(LiveError::SeveralJobs(jobs));
    }
    let counted = |(party, before): (&Party<'_>, u64)| {
        let mesh = party.page.answer().ok().flatten().unwrap_or_default().mesh;
        let stages = mesh.dim("pp").map_or(1, |dim| u64::from(dim.size));
        Counted { before, after: party.page.steps(), stages }
    };
    Ok(parties.iter().zip(before).map(counted).collect())
}

/// Tells all their first step, until all begin at it.
fn agree(
    parties: &mut [Party<'_>],
    replicas: &mut [Replica],
    request: &Request,
    interrupt: &AtomicBool,
) -> Result<(), LiveError> {
    for _ in 0..TRIES {
        let mut pending: Vec<&mut Replica> =
            replicas.iter_mut().filter(|replica| !replica.is_agreed).collect();
        pending.iter_mut().for_each(|replica| replica.measure(parties));
        let paces: Vec<_> = pending.iter().filter_map(|replica| replica.pace()).collect();
        for replica in &mut pending {
            replica.choose(&paces);
            let request = Request { op: Op::On, first: Some(replica.first), ..request.clone() };
            for i in &replica.members {
                parties[*i].ask(&request)?;
            }
        }
        fence(parties);
        for replica in &mut pending {
            replica.check(parties, interrupt)?;
        }
        if pending.iter().all(|replica| replica.is_agreed) {
            return Ok(());
        }
    }
    Err(LiveError::TooFast { tries: TRIES })
}

fn switched(party: &Party<'_>, first: Option<u64>) -> Switched {
    let seen = party.look();
    let standing = match party.answered() {
        _ if seen.gone => Standing::Gone,
        Some(answer) if answer.refused.is_some() => Standing::Refused,
        Some(answer) if !answer.meant => Standing::Unmeant,
        Some(_) => Standing::Taken,
        None if seen.stopped => Standing::Stopped,
        None => Standing::Idle,
    };
    let first = first.filter(|_| !matches!(standing, Standing::Refused | Standing::Unmeant | Standing::Gone));
    Switched { standing, first, seen }
}
