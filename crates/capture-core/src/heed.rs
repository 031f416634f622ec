//! What a process does when it is called: takes the command's request, begins at the step that was agreed, and ends
//! what is to end by itself.
//!
//! It looks at its next tap or step after a knock, at the step that is due, and at every step while a capture is on; a
//! writer looks, too, so that a process that stands still can be switched off. All of it happens under the state's
//! lock and waits for nothing. The page may hold anything, as others can write to it: what is asked for is checked,
//! and the words are set right on every look.

use crate::name::is_run_name;
use crate::notice::notice;
use crate::page;
use crate::ranks::RankSet;
use crate::request::{By, Op, Request};
use crate::select::Selection;
use crate::session::{Aim, Order, Session, Waiting};
use crate::state::{self, State};
use crate::steps::Steps;
use std::time::Duration;

/// Who looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    /// A tap.
    Tap,
    /// A step that has just begun.
    Step,
    /// A writer, at no particular time of the model.
    Writer,
}

/// What a look has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Taps have nothing to do.
    Quiet,
    /// A capture is on, or armed, and the host has not said who this process is: see
    /// [`settle`](crate::control::settle).
    Unsettled,
    /// A capture is on.
    Capturing,
}

/// A tap found that [the process is awake](page::is_awake).
#[cold]
pub fn at_tap() -> Standing {
    let mut state = state::lock();
    state.look(At::Tap);
    state.standing()
}

/// A step [has to look up](page::step).
#[cold]
pub fn at_step() -> Standing {
    let mut state = state::lock();
    state.look(At::Step);
    state.standing()
}

/// A writer looks, and says how the process stands.
pub(crate) fn attend() {
    let mut state = state::lock();
    state.look(At::Writer);
    state.publish();
}

impl State {
    fn standing(&self) -> Standing {
        match (self.is_active(), self.waiting.is_some()) {
            (false, false) => Standing::Quiet,
            _ if !self.settled => Standing::Unsettled,
            (true, _) => Standing::Capturing,
            (false, true) => Standing::Quiet,
        }
    }

    /// Looks, where there may be anything to see.
    pub(crate) fn look(&mut self, at: At) {
        let is_active = self.active().is_some_and(|session| session.overdue().is_none());
        // A tap while a capture is on, the most frequent of all, has only these two to ask.
        if at == At::Step || !is_active || page::bell().is_knocked() {
            self.heed(at);
        }
    }

    fn heed(&mut self, at: At) {
        let mut is_news = false;
        page::bell().heed(|| {
            is_news |= self.take_request();
            is_news |= self.begin_or_miss(at);
            is_news |= self.end_by_itself(at);
            self.set_switch();
            self.due(at)
        });
        if is_news {
            self.publish();
        }
    }

    /// The count of forward passes at which a step has to look again.
    fn due(&self, at: At) -> u64 {
        if let Some(session) = self.session.as_ref().filter(|session| !session.ledger.has_ended()) {
            return session.due();
        }
        match self.waiting.as_ref().and_then(|waiting| waiting.order.first) {
            // Only a step knows that it was missed: for others a step may have counted, and be about to look.
            Some(first) if at == At::Step && page::steps() > first.max(1) => u64::MAX,
            Some(first) => first,
            None => u64::MAX,
        }
    }

    /// Takes the request that is there, if it is another than the last; whether it was.
    fn take_request(&mut self) -> bool {
        let block = page::request();
        let generation = block.generation();
        if generation == self.heeded {
            return false;
        }
        let read = block.read();
        self.heeded =
            read.as_ref().map_or(generation, |text| text.as_ref().map_or(0, |text| text.generation));
        let Ok(Some(text)) = read else {
            self.refuse_garbage("what is there is no whole request");
            return true;
        };
        match Request::parse(&text.bytes) {
            Ok(request) => self.refused = self.obey(request).err(),
            Err(error) => self.refuse_garbage(&format!("the request does not parse: {error}")),
        }
        true
    }

    /// No command writes such a thing.
    fn refuse_garbage(&mut self, reason: &str) {
        self.refused = Some(reason.to_owned());
        if !std::mem::replace(&mut self.saw_garbage, true) {
            notice(&format!("control page: {reason}; it is passed over"));
        }
    }

    fn obey(&mut self, request: Request) -> Result<(), String> {
        let ranks: RankSet = match request.ranks.as_str() {
            "" => RankSet::default(),
            text => text.parse().map_err(|error| format!("ranks: {error}"))?,
        };
        // A rank that is not known yet may become known before the first record, and is asked then.
        self.is_meant = self.who.rank.is_none() || ranks.contains(self.who.rank, &self.who.mesh);
        match request.op {
            Op::Unknown => Err("expected op on or off".to_owned()),
            _ if !self.is_meant => Ok(()),
            Op::Off => {
                self.waiting = None;
                if let Some(session) = self.active() {
                    session.end("off");
                }
                Ok(())
            }
            Op::On => self.order(request, ranks),
        }
    }

    /// Arms, or says where to begin, or where to begin instead.
    fn order(&mut self, request: Request, ranks: RankSet) -> Result<(), String> {
        let same = |session: &&Session| session.order.as_ref().is_some_and(|order| order.id == request.id);
        if let Some(session) = self.session.as_ref().filter(same) {
            let began = session.order.as_ref().and_then(|order| order.first);
            if request.first.is_none() || request.first == began {
                return Ok(());
            }
            // Another rank could not begin there: what this one has is of no use.
            session.discard();
            self.session = None;
        }
        let aim = self.aim(&request, ranks)?;
        let is_armed = self.waiting.as_ref().is_some_and(|waiting| waiting.order.id == request.id);
        if let Some(session) = self.active() {
            let By { user, pid, .. } = &request.by;
            session.end(&format!("re-aimed: run {:?} by {user} (pid {pid})", request.run));
        }
        let order = Order { id: request.id, by: request.by, first: request.first };
        self.waiting = Some(Waiting { aim, run: request.run, n_steps: request.steps, order, late_at: None });
        self.settled &= is_armed;
        Ok(())
    }

    fn aim(&self, request: &Request, ranks: RankSet) -> Result<Aim, String> {
        if !is_run_name(&request.run) {
            return Err(format!("expected a run name, found {:?}", request.run));
        }
        let dir = request.dir.as_ref().unwrap_or(&self.config.dir);
        Ok(Aim {
            dir: std::path::absolute(dir).map_err(|error| format!("{error}: {}", dir.display()))?,
            run: Some(request.run.clone()),
            announced: true,
            selection: match request.select.as_str() {
                "" => Selection::everything(),
                text => text.parse().map_err(|error| format!("{error}"))?,
            },
            ranks,
            steps: Steps::All,
            limit_bytes: request.limit_bytes,
            duration: request.for_ms.map(Duration::from_millis),
        })
    }

    /// Begins what waits, where this is the step; or finds that it has passed. Whether either.
    fn begin_or_miss(&mut self, at: At) -> bool {
        let n = page::steps();
        let Some(Waiting { order: Order { first: Some(first), .. }, late_at, .. }) = self.waiting.as_mut()
        else {
            return false;
        };
        let first = *first;
        let base = match at {
            // Before the first step of all: what the taps have is of step 0.
            At::Tap if first == 0 && n == 0 => 0,
            At::Step if n == first.max(1) => n - 1,
            At::Tap | At::Step if n >= first.max(1) => {
                // The pass has begun without it.
                return late_at.replace(n) != Some(n);
            }
            _ => return false,
        };
        let Some(Waiting { mut aim, run, order, n_steps, .. }) = self.waiting.take() else { return false };
        if let Some(last) = n_steps {
            aim.steps = Steps::Range { first: u64::from(first > 0), last: last.max(1), stride: 1 };
        }
        self.begin(Session::new(aim, run, Some(order), base));
        true
    }

    /// Ends the capture where it has come to its end by itself; whether it has.
    fn end_by_itself(&mut self, at: At) -> bool {
        let is_exhausted = at == At::Step && self.limits_are_reached();
        let Some(session) = self.active() else { return false };
        let reason = match session.overdue() {
            Some(reason) => reason,
            None if at == At::Step && session.aim.steps.next(session.step()).is_none() => {
                "steps done".to_owned()
            }
            None if is_exhausted => "limit reached at every tap".to_owned(),
            None => return false,
        };
        session.end(&reason);
        true
    }
}
