//! Switching captures on and off, flushing them, and saying how they stand.

use crate::config::{Config, OnFull, Switch};
use crate::engine::{Engine, Stalled};
use crate::identity::{Origin, Who};
use crate::ledger::Balance;
use crate::manifest::{Counters, Loss, RuleCount};
use crate::mesh::Mesh;
use crate::notice::{notice, set_speaker};
use crate::page;
use crate::select::Rule;
use crate::session::Session;
use crate::state::{self, State};
use crate::writer::now_ns;

pub use crate::session::Aim;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What a framework says of this process.
#[derive(Debug, Clone)]
pub struct Word {
    /// Which framework: `vllm`, `torch.distributed`.
    pub from: String,
    /// Global rank.
    pub rank: u32,
    /// Number of ranks.
    pub world: u32,
    /// Place in the mesh, where it knows.
    pub mesh: Option<Mesh>,
}

/// Why a capture was not switched on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// `TPCAPTURE=never`.
    #[error("TPCAPTURE=never: nothing can switch this process on")]
    Never,
    /// Another capture is on.
    #[error("a capture is on already: run {run:?} in {dir:?}")]
    On {
        /// Its run.
        run: String,
        /// Its directory.
        dir: PathBuf,
    },
}

/// How a process stands.
#[derive(Debug, Clone)]
pub struct Status {
    /// `off`, `armed` (on, nothing captured yet), `capturing` or `ended`.
    pub state: &'static str,
    /// Directory of the run that is on or was last.
    pub run: Option<PathBuf>,
    /// Step of that run.
    pub step: u64,
    /// Forward passes of this process.
    pub abs_step: u64,
    /// Who this process is.
    pub who: Who,
    /// What was counted.
    pub counters: Counters,
    /// What was not captured and why.
    pub losses: Vec<Loss>,
    /// What each rule captured.
    pub rules: Vec<RuleCount>,
    /// Why the capture ended.
    pub end_reason: Option<String>,
    /// The last thing that went wrong.
    pub last_error: Option<String>,
}

/// Reads the environment, makes the control page and switches on where the environment says so. For a process's host
/// (the Python module, an engine's `main`), once, before its first tap.
pub fn start(get: impl Fn(&str) -> Option<OsString>) {
    let (config, warnings) = Config::from_env(&get);
    let (who, doubts) = Who::from_env(&get);
    set_speaker(who.rank);
    for warning in warnings.iter().chain(&doubts) {
        notice(&warning.to_string());
    }
    if let Some(globs) = &config.attach {
        notice(&format!(
            "TPCAPTURE_ATTACH={globs:?}: no plugin reads it yet; only taps in the code are captured"
        ));
    }
    let switch = config.switch;
    let aim = Aim {
        announced: true,
        selection: config.selection.clone(),
        ranks: config.ranks.clone(),
        steps: config.steps,
        ..Aim::everything(config.dir.clone())
    };
    let origin = Origin::of_this_process();
    {
        let mut state = state::lock();
        (state.config, state.who) = (config, who);
        state.introduce(origin);
    }
    if switch == Switch::Never {
        return;
    }
    if let Err(error) = page::map() {
        notice(&format!("no control page, only this process itself can switch it: {error}"));
    }
    state::watch_forks();
    state::lock().publish();
    if switch == Switch::On
        && let Err(error) = switch_on(aim)
    {
        notice(&error.to_string());
    }
}

/// Whether the environment asks for exceptions where otherwise a failure is counted.
#[must_use]
pub fn is_strict() -> bool {
    state::lock().config.strict
}

/// Whether taps in regions that a framework compiles are kept, so that they can be switched on: not where `TPCAPTURE` is unset.
#[must_use]
pub fn keeps_compiled_taps() -> bool {
    matches!(state::lock().config.switch, Switch::Standby | Switch::On)
}

/// Bytes of each device's ring: `TPCAPTURE_DEVICE_RING`.
#[must_use]
pub fn device_ring() -> usize {
    state::lock().config.device_ring
}

/// The directory that holds runs where nothing else is said: `TPCAPTURE_DIR`.
#[must_use]
pub fn configured_dir() -> PathBuf {
    state::lock().config.dir.clone()
}

/// Ends the capture that is on because something went wrong that should not have. Its writer seals what there is by
/// itself.
pub fn fail(reason: &str) {
    let mut state = state::lock();
    let Some(session) = state.active() else { return };
    let (ledger, engine) = (Arc::clone(&session.ledger), session.engine.clone());
    drop(state);
    ledger.fail(reason, now_ns());
    if let Some(engine) = engine {
        engine.ring.close();
    }
    state::lock().publish();
}

/// Counts, and says once, that a tap was called in a way that makes no sense.
pub fn complain(reason: &str) {
    let ledger = state::lock().active().map(|session| Arc::clone(&session.ledger));
    if let Some(ledger) = ledger {
        ledger.refuse("", reason);
    }
}

/// The host's word on who this process is, by a framework or an initialised `torch.distributed`, and on what it runs.
/// To be given at the first record or step after each switching-on, when frameworks are up; what the user said in
/// `TPCAPTURE_RANK` stands.
pub fn settle(word: Option<Word>, versions: BTreeMap<String, String>) {
    let mut state = state::lock();
    state.settled = true;
    state.versions = versions;
    if let Some(Word { from, rank, world, mesh }) = word.filter(|_| !state.who.is_certain()) {
        let (who, doubts) = Who::from_framework(&from, rank, world, mesh, |name| std::env::var_os(name));
        set_speaker(who.rank);
        state.who = who;
        state.rename_run();
        let Who { rank, mesh, .. } = &state.who;
        if state.waiting.as_ref().is_some_and(|waiting| !waiting.aim.ranks.contains(*rank, mesh)) {
            (state.waiting, state.is_meant) = (None, false);
        }
        state.publish();
        drop(state);
        for doubt in doubts {
            notice(&doubt.to_string());
        }
    }
}

/// Switches a capture on; returns the directory of its run, which is made at the first record.
///
/// # Errors
/// Where one is on already, or `TPCAPTURE=never`.
pub fn switch_on(mut aim: Aim) -> Result<PathBuf, SwitchError> {
    // The writer opens it later: by then the model may work elsewhere.
    aim.dir = std::path::absolute(&aim.dir).unwrap_or(aim.dir);
    let mut state = state::lock();
    if state.config.switch == Switch::Never {
        return Err(SwitchError::Never);
    }
    if let Some(session) = state.active() {
        return Err(SwitchError::On { run: session.run.clone(), dir: session.aim.dir.clone() });
    }
    if let Some(waiting) = &state.waiting {
        return Err(SwitchError::On { run: waiting.run.clone(), dir: waiting.aim.dir.clone() });
    }
    state.switchings += 1;
    let run = aim.run.clone().unwrap_or_else(|| state::run_name(&state));
    let session = Session::new(aim, run, None, page::steps());
    let path = session.path();
    state.settled = false;
    state.begin(session);
    state.publish();
    Ok(path)
}

/// Ends the capture that is on or armed, for `reason`, and returns once all it captured is sealed; what went wrong in it, if
/// anything did.
pub fn switch_off(reason: &str) -> Option<String> {
    state::lock().waiting = None;
    end_session(reason)
}

/// The same where the capture that is on, or was last, is that of the run in `path`. It may have been re-aimed from
/// outside: then another is on, which goes on.
pub fn switch_off_run(path: &Path, reason: &str) -> Option<String> {
    let is_its = state::lock().session.as_ref().is_some_and(|session| session.path() == path);
    if is_its { end_session(reason) } else { None }
}

fn end_session(reason: &str) -> Option<String> {
    await_writer(
        |session| {
            if !session.ledger.has_ended() && session.engine.is_none() && session.n_fired == 0 {
                notice(&format!(
                    "run {:?}: nothing was captured, no call of a tap met {:?} and its steps",
                    session.run,
                    session.aim.selection.to_string()
                ));
            }
            session.ledger.end(reason, now_ns());
        },
        Engine::finish,
    )
}

/// Returns once all that was captured before is sealed; what went wrong in this capture, if anything did.
pub fn flush() -> Option<String> {
    await_writer(|_| (), Engine::flush)
}

/// Prepares the session, then waits for its writer without the state's lock.
fn await_writer(
    prepare: impl FnOnce(&Session),
    wait: impl FnOnce(&Engine, Option<Duration>) -> Result<(), Stalled>,
) -> Option<String> {
    let (engine, ledger, stall) = {
        let mut state = state::lock();
        let stall = stall_limit(&state);
        let session = state.session.as_ref()?;
        prepare(session);
        let (engine, ledger) = (session.engine.clone(), Arc::clone(&session.ledger));
        state.publish();
        (engine, ledger, stall)
    };
    match engine.map_or(Ok(()), |engine| wait(&engine, stall)) {
        Ok(()) => ledger.balance().last_error,
        Err(stalled) => {
            notice(&format!("not all is sealed: {stalled}"));
            Some(stalled.to_string())
        }
    }
}

/// How long a writer may stand still before nobody waits for it any more.
fn stall_limit(state: &State) -> Option<Duration> {
    match state.config.on_full {
        OnFull::Wait(limit) => Some(limit.max(Duration::from_secs(1))),
        OnFull::WaitForever => None,
        OnFull::Drop => Some(Duration::from_secs(10)),
    }
}

/// How this process stands.
#[must_use]
pub fn status() -> Status {
    let state = state::lock();
    let abs_step = page::steps();
    let Some(session) = state.session.as_ref().filter(|_| state.waiting.is_none()) else {
        let waiting = state.waiting.as_ref();
        return Status {
            state: if waiting.is_some() { "armed" } else { "off" },
            run: waiting.map(|waiting| waiting.aim.dir.join(&waiting.run)),
            step: 0,
            abs_step,
            who: state.who.clone(),
            counters: Counters::default(),
            losses: Vec::new(),
            rules: Vec::new(),
            end_reason: None,
            last_error: None,
        };
    };
    let balance: Balance = session.ledger.balance();
    let rules = balance.rule_counts(session.aim.selection.rules().iter().map(Rule::text));
    Status {
        state: match (&balance.end, &session.engine) {
            (Some(_), _) => "ended",
            (None, None) => "armed",
            (None, Some(_)) => "capturing",
        },
        run: Some(session.path()),
        step: session.step(),
        abs_step,
        who: state.who.clone(),
        counters: balance.counters,
        losses: balance.losses,
        rules,
        end_reason: balance.end.map(|end| end.reason),
        last_error: balance.last_error,
    }
}
