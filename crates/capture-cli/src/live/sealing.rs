//! Waiting until captures have ended and all they captured is in sealed files.

use super::{
    process::{Process, Seen},
    replica::replica_keys,
};
use capture_core::answer::State;
use std::{
    collections::BTreeSet,
    thread::sleep,
    time::{Duration, Instant},
};

const POLL: Duration = Duration::from_millis(10);

/// Waits until the captures that were on in `before` have ended and are sealed, at most so long; how the processes
/// stand then. Who is stopped, or waits for its next tap, is not waited for.
pub(crate) fn after_off(processes: &[Process], before: &[Seen], limit: Option<Duration>) -> Vec<Seen> {
    let is_busy = |(before, now): (&Seen, &Seen)| {
        let is_same = before.answer.run == now.answer.run && before.answer.id == now.answer.id;
        is_same && !now.gone && !now.stopped && is_writing(now)
    };
    wait(processes, limit, |now| !before.iter().zip(now).any(is_busy))
}

/// Waits until the switching-on of that id has come to its end wherever it began. A replica where nobody has begun is
/// not waited for, nor one of another replica's processes that never made a step.
pub(crate) fn after_on(processes: &[Process], id: u64) -> Vec<Seen> {
    wait(processes, None, |now| is_over(now, id))
}

fn is_over(now: &[Seen], id: u64) -> bool {
    let keys = replica_keys(now);
    let begun: BTreeSet<_> =
        now.iter().zip(&keys).filter(|(seen, _)| has_begun(seen, id)).map(|(_, key)| key).collect();
    let is_awaited = |(seen, key): (&Seen, &_)| {
        let (is_ours, has_begun) = (seen.answer.id == id, has_begun(seen, id));
        let is_done = is_ours && seen.answer.state == State::Ended && seen.answer.sealed;
        // One that has not taken the request yet bears another's id.
        let may_begin = (is_ours || seen.unheeded) && seen.steps > 0 && begun.contains(key);
        !seen.gone && !is_done && (has_begun || may_begin)
    };
    // Whoever is not gone has been switched off or aimed elsewhere before it began.
    let is_nobodys = now.iter().all(|seen| seen.gone || (seen.answer.id != id && !seen.unheeded));
    is_nobodys || (!begun.is_empty() && !now.iter().zip(&keys).any(is_awaited))
}

fn has_begun(seen: &Seen, id: u64) -> bool {
    seen.answer.id == id && (seen.answer.began_at.is_some() || seen.answer.state == State::Ended)
}

fn is_writing(seen: &Seen) -> bool {
    match seen.answer.state {
        State::Capturing => true,
        State::Ended => !seen.answer.sealed,
        State::Off | State::Armed => false,
    }
}

fn wait(processes: &[Process], limit: Option<Duration>, is_done: impl Fn(&[Seen]) -> bool) -> Vec<Seen> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    loop {
        let now: Vec<Seen> = processes.iter().map(Process::look).collect();
        if is_done(&now) || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return now;
        }
        sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture_core::Answer;

    /// A process of switching-on 7 in that state, which began at step 5 unless it is armed.
    fn seen(pid: u32, state: State, sealed: bool) -> Seen {
        let began_at = (state != State::Armed).then_some(5);
        let rank = Some(pid);
        let answer =
            Answer { pid, rank, world: Some(4), id: 7, state, sealed, began_at, ..Answer::default() };
        let ancestors = vec![super::super::process::Ancestor { pid: 9, name: "torchrun".into() }];
        Seen { answer, steps: 5, ancestors, ..Seen::default() }
    }

    #[test]
    fn it_is_over_once_all_that_began_are_sealed() {
        let sealed = |pid| seen(pid, State::Ended, true);
        assert!(is_over(&[sealed(1), sealed(2)], 7));
        assert!(!is_over(&[sealed(1), seen(2, State::Ended, false)], 7));
        assert!(!is_over(&[sealed(1), seen(2, State::Capturing, false)], 7));
        assert!(!is_over(&[sealed(1), seen(2, State::Armed, false)], 7), "it is behind, and will begin");
        assert!(is_over(&[sealed(1), Seen { gone: true, ..seen(2, State::Capturing, false) }], 7));
        let mut silent = seen(2, State::Armed, false);
        silent.answer.began_at = Some(5);
        assert!(!is_over(&[sealed(1), silent], 7), "it has begun, and none of its taps has fired yet");
        let re_aimed = |mut seen: Seen| {
            seen.answer.id = 8;
            seen
        };
        assert!(is_over(&[sealed(1), re_aimed(seen(2, State::Capturing, false))], 7));
        let unheeded = Seen { unheeded: true, ..re_aimed(seen(2, State::Armed, false)) };
        assert!(!is_over(&[sealed(1), unheeded], 7));
    }

    #[test]
    fn what_was_taken_back_before_it_began_is_over() {
        let of = |id, unheeded| {
            let mut seen = seen(1, State::Armed, false);
            (seen.answer.id, seen.unheeded) = (id, unheeded);
            seen
        };
        assert!(!is_over(&[of(7, false), of(8, false)], 7));
        assert!(!is_over(&[of(6, true)], 7), "it has not taken the request yet");
        assert!(is_over(&[of(8, false), Seen { gone: true, ..of(7, false) }], 7));
    }

    #[test]
    fn who_never_begins_is_not_waited_for() {
        let idle = |pid| seen(pid, State::Armed, false);
        assert!(!is_over(&[idle(1), idle(2)], 7), "until somebody has begun");
        let never = Seen { steps: 0, ..idle(3) };
        assert!(is_over(&[seen(1, State::Ended, true), never], 7));
        let mut elsewhere = idle(4);
        elsewhere.ancestors[0].pid = 10;
        assert!(is_over(&[seen(1, State::Ended, true), elsewhere], 7));
    }
}
