//! Switching captures on and off, flushing them, and saying how they stand.

use crate::config::{Config, OnFull, Switch};
use crate::engine::{Engine, Stalled};
use crate::identity::Who;
use crate::ledger::{Balance, Ledger};
use crate::manifest::{Counters, Loss, RuleCount};
use crate::mesh::Mesh;
use crate::notice::{notice, set_speaker};
use crate::page;
use crate::ranks::RankSet;
use crate::select::{Rule, Selection};
use crate::state::{self, Session, State};
use crate::steps::Steps;
use crate::writer::now_ns;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// What a capture is switched on with.
#[derive(Debug, Clone)]
pub struct Request {
    /// The directory that holds runs.
    pub dir: PathBuf,
    /// Run name, taken as it is; by `TPCAPTURE_RUN` or derived where `None`.
    pub run: Option<String>,
    /// Whether rank 0 tells where the run is, as nobody else has.
    pub announced: bool,
    /// What to capture.
    pub selection: Selection,
    /// On which ranks.
    pub ranks: RankSet,
    /// In which steps of the run.
    pub steps: Steps,
}

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
    let request = Request {
        dir: config.dir.clone(),
        run: None,
        announced: true,
        selection: config.selection.clone(),
        ranks: config.ranks.clone(),
        steps: config.steps,
    };
    {
        let mut state = state::lock();
        (state.config, state.who) = (config, who);
    }
    if switch == Switch::Never {
        return;
    }
    if let Err(error) = page::map() {
        notice(&format!("no control page, only this process itself can switch it: {error}"));
    }
    state::watch_forks();
    if switch == Switch::On
        && let Err(error) = switch_on(request)
    {
        notice(&error.to_string());
    }
}

/// Whether the environment asks for exceptions where otherwise a failure is counted.
#[must_use]
pub fn is_strict() -> bool {
    state::lock().config.strict
}

/// Whether the host has had its say since the capture was switched on, see [`settle`].
#[must_use]
pub fn is_settled() -> bool {
    state::lock().settled
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
pub fn switch_on(mut request: Request) -> Result<PathBuf, SwitchError> {
    // The writer opens it later: by then the model may work elsewhere.
    request.dir = std::path::absolute(&request.dir).unwrap_or(request.dir);
    let mut state = state::lock();
    if state.config.switch == Switch::Never {
        return Err(SwitchError::Never);
    }
    if let Some(session) = state.active() {
        return Err(SwitchError::On { run: session.run.clone(), dir: session.dir.clone() });
    }
    state.switchings += 1;
    let named = request.run.is_some();
    let run = request.run.unwrap_or_else(|| state::run_name(&state));
    let path = request.dir.join(&run);
    state.begin(Session {
        run,
        named,
        announced: request.announced,
        dir: request.dir,
        selection: Arc::new(request.selection),
        ranks: request.ranks,
        steps: request.steps,
        base_step: page::steps(),
        started_ns: now_ns(),
        staged_bytes: 0,
        ledger: Arc::new(Ledger::default()),
        engine: None,
        rank_is_checked: false,
    });
    Ok(path)
}

/// Ends the capture that is on, for `reason`, and returns once all it captured is sealed; what went wrong in it, if
/// anything did.
pub fn switch_off(reason: &str) -> Option<String> {
    await_writer(
        |session| {
            if !session.ledger.has_ended() && session.engine.is_none() {
                notice(&format!(
                    "run {:?}: nothing was captured, no call of a tap met {:?} and its steps",
                    session.run,
                    session.selection.to_string()
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
        let state = state::lock();
        let session = state.session.as_ref()?;
        prepare(session);
        (session.engine.clone(), Arc::clone(&session.ledger), stall_limit(&state))
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
    let Some(session) = &state.session else {
        return Status {
            state: "off",
            run: None,
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
    let rules = balance.rule_counts(session.selection.rules().iter().map(Rule::text));
    Status {
        state: match (&balance.end, &session.engine) {
            (Some(_), _) => "ended",
            (None, None) => "armed",
            (None, Some(_)) => "capturing",
        },
        run: Some(session.dir.join(&session.run)),
        step: abs_step.wrapping_sub(session.base_step),
        abs_step,
        who: state.who.clone(),
        counters: balance.counters,
        losses: balance.losses,
        rules,
        end_reason: balance.end.map(|end| end.reason),
        last_error: balance.last_error,
    }
}
