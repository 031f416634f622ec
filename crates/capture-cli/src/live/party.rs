//! The processes that one command switches, while no other can.

use super::{
    LiveError,
    process::{Process, Seen},
};
use capture_core::{
    Answer, Request,
    page::{Locked, barrier},
    request::Op,
};
use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::sleep,
    time::{Duration, Instant},
};

/// How long another command may take that switches the same processes.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
const LOCK_POLL: Duration = Duration::from_millis(5);
/// How often answers are looked at: a fraction of the fastest step.
const ANSWER_POLL: Duration = Duration::from_micros(300);

/// A process whose page is locked.
pub(super) struct Party<'a> {
    process: &'a Process,
    pub(super) page: Locked<'a>,
    /// How it stood before.
    pub(super) before: &'a Seen,
    /// The generations of the first and the last request that were written; 0: none was.
    asked: [u64; 2],
}

impl<'a> Party<'a> {
    /// Locks the processes' pages, in the order given, which all commands share.
    pub(super) fn lock(processes: &'a [Process], before: &'a [Seen]) -> Result<Vec<Self>, LiveError> {
        let deadline = Instant::now() + LOCK_LIMIT;
        let lock = |(process, before): (&'a Process, &'a Seen)| {
            loop {
                match process.page.try_lock() {
                    Ok(page) => return Ok(Self { process, page, before, asked: [0, 0] }),
                    Err(_) if Instant::now() < deadline => sleep(LOCK_POLL),
                    Err(holder) => return Err(LiveError::Held { pid: process.pid(), holder }),
                }
            }
        };
        processes.iter().zip(before).map(lock).collect()
    }

    pub(super) fn ask(&mut self, request: &Request) -> Result<(), LiveError> {
        let generation = self.page.ask(request)?;
        let [first, _] = self.asked;
        self.asked = [if first == 0 { generation } else { first }, generation];
        Ok(())
    }

    /// Its answer to the last request; `None` as long as it has not taken that.
    pub(super) fn answer(&self) -> Option<Answer> {
        self.answered().filter(|answer| answer.heeded == self.asked[1])
    }

    /// Its answer to any request of this command.
    pub(super) fn answered(&self) -> Option<Answer> {
        let [first, last] = self.asked;
        self.page.answer().ok().flatten().filter(|answer| (first..=last).contains(&answer.heeded))
    }

    /// Whether it takes part: not one that refused, or found that its rank is not meant.
    pub(super) fn takes_part(&self) -> bool {
        self.answered().is_none_or(|answer| answer.refused.is_none() && answer.meant)
    }

    pub(super) fn look(&self) -> Seen {
        self.process.look()
    }
}

/// Takes back what was asked.
pub(super) fn take_back(parties: &mut [Party<'_>], request: &Request) {
    let off = Request { op: Op::Off, first: None, ..request.clone() };
    for party in parties.iter_mut().filter(|party| party.asked[0] > 0) {
        // It is shorter than what was written before.
        let _ = party.ask(&off);
    }
}

/// Makes sure that who has not seen yet what was written will see it, and that what is read now is not older.
pub(super) fn fence(parties: &[Party<'_>]) {
    barrier(parties.iter().map(|party| &*party.page));
}

/// Waits until it is so, at most so long.
pub(super) fn wait(
    limit: Duration,
    interrupt: &AtomicBool,
    mut is_so: impl FnMut() -> bool,
) -> Result<bool, LiveError> {
    let deadline = Instant::now() + limit;
    loop {
        if interrupt.load(Relaxed) {
            return Err(LiveError::Interrupted);
        }
        if is_so() {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(ANSWER_POLL);
    }
}
