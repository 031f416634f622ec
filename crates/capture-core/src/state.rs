//! The one state of the process: its configuration, who it is, its taps, and the capture that is on or was last.
//!
//! One lock guards it, for the time of a decision, never while bytes are copied or anything is waited for. `fork` takes
//! that lock first, so that a child finds it in order; everything else that a lock guards belongs to an engine, which
//! a child leaves behind.
#![expect(unsafe_code, reason = "fork handlers")]

use crate::answer::Answer;
use crate::config::Config;
use crate::identity::{self, Origin, Who};
use crate::notice::notice;
use crate::page;
use crate::select::Plan;
use crate::session::{Session, Waiting};
use crate::sync::{Mutex, MutexGuard};
use std::cell::UnsafeCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Once};

/// The most names that `capture(name, …)` may bring up: a name built per request must not fill the memory.
const MAX_TAPS: usize = 100_000;

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new()));

pub(crate) fn lock() -> MutexGuard<'static, State> {
    STATE.lock()
}

pub(crate) struct State {
    pub(crate) config: Config,
    pub(crate) who: Who,
    /// Whether the host was asked who this process is, since the capture was switched on.
    pub(crate) settled: bool,
    /// Versions of what this process runs, by name.
    pub(crate) versions: BTreeMap<String, String>,
    /// How often a capture was switched on.
    pub(crate) switchings: u32,
    /// The capture that is on, or was last.
    pub(crate) session: Option<Session>,
    /// The capture that a command ordered and that has not begun.
    pub(crate) waiting: Option<Waiting>,
    /// The generation of the last request that was taken.
    pub(crate) heeded: u64,
    /// Whether it was for this rank.
    pub(crate) is_meant: bool,
    /// Whether something was there that no command writes, which is said once.
    pub(crate) saw_garbage: bool,
    /// Why that request was not done.
    pub(crate) refused: Option<String>,
    /// What the control page says of this process.
    pub(crate) published: Option<Answer>,
    /// What does not change about this process, for the page.
    pub(crate) origin: Answer,
    taps: Vec<TapState>,
    by_name: HashMap<Arc<str>, TapId>,
    /// Moves with every session, so that taps know their plan is stale.
    epoch: u64,
    at_fork: AtFork,
}

/// How the process stood when it forked, which its child cannot find out: the ledger's lock may be held by a thread that
/// is not there, and the page is the parent's, which steps on.
#[derive(Default)]
struct AtFork {
    is_active: bool,
    steps: u64,
}

/// A tap's place in the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapId(usize);

struct TapState {
    name: Arc<str>,
    epoch: u64,
    plan: Option<Plan>,
    step: u64,
    /// Calls in that step.
    calls: u64,
}

/// A call of a tap that the selection may want.
pub(crate) struct Firing<'a> {
    pub(crate) name: Arc<str>,
    pub(crate) plan: &'a Plan,
    pub(crate) step: u64,
    pub(crate) abs_step: u64,
    pub(crate) call: u64,
}

impl State {
    fn new() -> Self {
        Self {
            config: Config::default(),
            who: Who::unknown(),
            settled: false,
            versions: BTreeMap::new(),
            switchings: 0,
            session: None,
            waiting: None,
            heeded: 0,
            is_meant: false,
            saw_garbage: false,
            refused: None,
            published: None,
            origin: Answer::default(),
            taps: Vec::new(),
            by_name: HashMap::new(),
            epoch: 0,
            at_fork: AtFork::default(),
        }
    }

    /// The tap of that name; `None` where there are too many names.
    pub(crate) fn tap(&mut self, name: &str) -> Option<TapId> {
        if let Some(id) = self.by_name.get(name) {
            return Some(*id);
        }
        if self.taps.len() >= MAX_TAPS {
            return None;
        }
        let (id, name) = (TapId(self.taps.len()), Arc::<str>::from(name));
        self.taps.push(TapState { name: Arc::clone(&name), epoch: 0, plan: None, step: 0, calls: 0 });
        self.by_name.insert(name, id);
        Some(id)
    }

    /// Begins a session, which the taps see where the step is one that it captures.
    pub(crate) fn begin(&mut self, session: Session) {
        self.session = Some(session);
        self.epoch += 1;
        self.wake();
    }

    /// Has the taps look where they have to, and the next step.
    fn wake(&self) {
        page::set_on(false);
        self.set_switch();
    }

    /// Sets the word of the taps right, whoever wrote to it.
    pub(crate) fn set_switch(&self) {
        let awake = self.session.as_ref().filter(|session| !session.ledger.has_ended() && session.is_awake());
        match awake {
            _ if awake.is_some() == page::is_on() => {}
            Some(session) => session.ledger.switch_on(),
            None => page::set_on(false),
        }
    }

    /// Derives the name of a run of which nothing is written yet anew: what the ranks share is better known now.
    pub(crate) fn rename_run(&mut self) {
        let run = run_name(self);
        if let Some(session) =
            self.session.as_mut().filter(|session| !session.is_named() && session.engine.is_none())
        {
            session.run = run;
        }
    }

    /// The session, where it is on.
    pub(crate) fn active(&mut self) -> Option<&mut Session> {
        self.session.as_mut().filter(|session| !session.ledger.has_ended())
    }

    /// Whether a capture is on.
    pub(crate) fn is_active(&self) -> bool {
        self.session.as_ref().is_some_and(|session| !session.ledger.has_ended())
    }

    /// What the session's selection means for the tap; `None` where no rule names it.
    pub(crate) fn plan(&mut self, tap: TapId) -> Option<&Plan> {
        let session = self.session.as_ref()?;
        let tap = &mut self.taps[tap.0];
        if tap.epoch != self.epoch {
            let plan = Plan::new(&session.aim.selection, &tap.name);
            (tap.epoch, tap.plan) = (self.epoch, Some(plan).filter(|plan| !plan.is_empty()));
            (tap.step, tap.calls) = (0, 0);
        }
        tap.plan.as_ref()
    }

    /// Counts a call of the tap; `None` where no rule names it.
    pub(crate) fn fire(&mut self, tap: TapId, abs_step: u64) -> Option<(Firing<'_>, &mut Session)> {
        self.plan(tap)?;
        let session = self.session.as_mut()?;
        let tap = &mut self.taps[tap.0];
        let plan = tap.plan.as_ref()?;
        // Never back: were two threads to mark steps, one may overwrite the other's, and a call must not come twice.
        let step = abs_step.wrapping_sub(session.base_step).max(tap.step);
        let abs_step = session.base_step.wrapping_add(step);
        if tap.calls == 0 {
            session.newest_tap = session.newest_tap.max(step);
        }
        if tap.step != step {
            (tap.step, tap.calls) = (step, 0);
        }
        let call = tap.calls;
        tap.calls += 1;
        Some((Firing { name: Arc::clone(&tap.name), plan, step, abs_step, call }, session))
    }

    /// Whether every tap that fired has all that its rules' limits allow, and none fired for the first time in the
    /// last whole step.
    pub(crate) fn limits_are_reached(&self) -> bool {
        let Some(session) = self.session.as_ref().filter(|session| session.n_fired > 0) else { return false };
        let fired = |tap: &&TapState| tap.epoch == self.epoch && tap.calls > 0;
        let is_exhausted =
            |tap: &TapState| tap.plan.as_ref().is_none_or(|plan| plan.is_exhausted(&session.aim.selection));
        session.step() > session.newest_tap + 1 && self.taps.iter().filter(fired).all(is_exhausted)
    }

    /// The tap's name.
    pub(crate) fn name_of(&self, tap: TapId) -> &Arc<str> {
        &self.taps[tap.0].name
    }

    /// In a child of fork: the same capture under a new process, with files, counters and memory of its own. The
    /// parent's engine is left where it is; its threads do not exist here, and its locks may be held by them.
    fn restart_in_child(&mut self) {
        self.epoch += 1;
        // The page is new: nothing was asked on it.
        (self.waiting, self.heeded, self.refused, self.published) = (None, 0, None, None);
        let Some(session) = &mut self.session else { return };
        if let Some(engine) = session.engine.take() {
            std::mem::forget(engine);
        }
        let parents = std::mem::take(&mut session.ledger);
        std::mem::forget(parents);
        if self.at_fork.is_active {
            (session.staged_bytes, session.n_fired, session.newest_tap) = (0, 0, 0);
            session.aim.announced = false;
            session.rank_is_checked = false;
            self.settled = false;
            self.wake();
        } else {
            self.session = None;
        }
    }
}

/// Registers what a fork has to do, once per process tree.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handlers are functions that live as long as this library, which is never unloaded once Python
        // or a Rust engine has it.
        let refused = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
        if refused != 0 {
            notice("pthread_atfork was refused: do not fork while a capture is on");
        }
    });
}

/// The guard that `before` took, until the fork is over. Only ever touched by the thread that forks, which holds the
/// lock meanwhile.
struct Held(UnsafeCell<Option<MutexGuard<'static, State>>>);

// SAFETY: whoever touches it holds the state's lock, see above.
unsafe impl Sync for Held {}

static HELD: Held = Held(UnsafeCell::new(None));

extern "C" fn before() {
    let mut guard = lock();
    guard.at_fork = AtFork { is_active: guard.is_active(), steps: page::steps() };
    // SAFETY: we hold the lock.
    unsafe { *HELD.0.get() = Some(guard) };
}

extern "C" fn in_parent() {
    // SAFETY: `before` took the lock on this very thread.
    drop(unsafe { (*HELD.0.get()).take() });
}

extern "C" fn in_child() {
    // SAFETY: this thread is the copy of the one that took the lock.
    if let Some(mut state) = unsafe { (*HELD.0.get()).take() } {
        let renewed = page::renew_in_child(state.at_fork.steps);
        state.restart_in_child();
        if !renewed {
            state.session = None;
        }
        state.publish();
    }
}

/// The name of a run that was given none: derived from what the ranks of the job share.
pub(crate) fn run_name(state: &State) -> String {
    let get = |name: &str| match name {
        "TPCAPTURE_RUN" => state.config.run.clone().map(Into::into),
        _ => std::env::var_os(name),
    };
    identity::run_name(get, &state.who, state.switchings, &Origin::of_this_process())
}
