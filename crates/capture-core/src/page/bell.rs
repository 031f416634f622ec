//! The three words by which a process is called: what its taps load, what its steps count, and from when on a step
//! looks up.
//!
//! ```text
//! switch  taps look up where it is not 0. ON: a capture is on in this step; the process sets and clears it. KNOCK: a
//!         request waits; the command sets it, the process clears it before it reads the request.
//! steps   forward passes of the process, counted by it alone.
//! due     a step looks up from this count on: u64::MAX never, 0 at once. The command writes it behind a request, the
//!         process puts it where it next has to look up.
//! ```
//!
//! **No request is lost.** The command writes the request, then KNOCK, then `due`. The process clears KNOCK before it
//! reads the request, so that what is written later knocks again. It moves `due` only where it still finds what it saw
//! before it read; were that a newer request's word of the same value, the exchange has read it, so that the request's
//! KNOCK is seen behind it.
//!
//! **All begin at the same step.** The command writes `due`, then asks for a barrier on every processor, then reads
//! `steps`. The process counts a step, then loads `due`. Of two parties that each write and then read what the other
//! wrote, with a whole fence between, one at least sees the other: a process whose count the command finds below
//! `due` will find `due` when it gets there. The process's own fence costs nothing, as the command's barrier makes it.

use super::word::Word;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// A capture is on.
pub(super) const ON: u64 = 1;
/// A request waits.
pub(super) const KNOCK: u64 = 2;

/// How often a knock may come in between; whoever knocks faster is no command, and waits for the next look.
const MAX_ROUNDS: usize = 4;

/// The words.
#[derive(Debug)]
pub struct Bell<'a, W> {
    /// What taps load.
    pub switch: &'a W,
    /// Forward passes.
    pub steps: &'a W,
    /// The count from which on a step looks up.
    pub due: &'a W,
}

impl<W: Word> Bell<'_, W> {
    /// A forward pass begins; whether the process has to look up. A load and a store rather than an atomic addition, as
    /// one thread marks steps. Were there two, a step could be lost; a session takes care that its own steps never go
    /// back.
    #[inline(always)]
    #[must_use]
    pub fn step(&self) -> bool {
        let n = self.steps.load(Relaxed).wrapping_add(1);
        self.steps.store(n, Relaxed);
        W::light_fence();
        n >= self.due.load(Relaxed)
    }

    /// The command calls the process, a request having been written: at its next tap, and at the step `due`.
    pub fn knock(&self, due: u64) {
        self.switch.fetch_or(KNOCK, Release);
        // An exchange, so that it stands in one order with the process's.
        self.due.swap(due, AcqRel);
    }

    /// Whether a tap has more to do than what a capture that is on gives it. A bit that nobody knows counts: it is to be
    /// cleared.
    #[must_use]
    pub fn is_knocked(&self) -> bool {
        self.switch.load(Relaxed) & !ON != 0
    }

    /// The process takes notice. `look` reads the request, does what it says, and returns from which step on it has to
    /// look again; it is called once more where somebody knocks meanwhile.
    pub fn heed(&self, mut look: impl FnMut() -> u64) {
        for _ in 0..MAX_ROUNDS {
            // Before the request is read, so that a later one knocks again. Unknown bits go with it.
            self.switch.fetch_and(ON, Acquire);
            let seen = self.due.load(Acquire);
            let due = look();
            // Where it is something else by now, a newer request's due stands.
            let _ = self.due.compare_exchange(seen, due, AcqRel, Acquire);
            if !self.is_knocked() {
                return;
            }
        }
    }
}
