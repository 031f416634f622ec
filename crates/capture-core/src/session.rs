//! One switching-on: what it is aimed at, and what has become of it so far.

use crate::engine::Engine;
use crate::ledger::Ledger;
use crate::page;
use crate::ranks::RankSet;
use crate::request::By;
use crate::select::Selection;
use crate::steps::Steps;
use crate::writer::now_ns;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a capture is aimed at.
#[derive(Debug, Clone)]
pub struct Aim {
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
    /// The most bytes of records, where that is less than the configuration's budget.
    pub limit_bytes: Option<u64>,
    /// For how long from its beginning.
    pub duration: Option<Duration>,
}

impl Aim {
    /// Everything on every rank and in every step, until it is switched off.
    #[must_use]
    pub fn everything(dir: PathBuf) -> Self {
        Self {
            dir,
            run: None,
            announced: false,
            selection: Selection::everything(),
            ranks: RankSet::default(),
            steps: Steps::All,
            limit_bytes: None,
            duration: None,
        }
    }
}

/// The command's side of a switching-on, where it came from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    /// As in the request.
    pub(crate) id: u64,
    pub(crate) by: By,
    /// The count of forward passes at which the run's step 1 begins, once it is said; 0: at the next tap or step.
    pub(crate) first: Option<u64>,
}

/// A capture that was ordered and has not begun. Taps are as off.
#[derive(Debug, Clone)]
pub(crate) struct Waiting {
    pub(crate) aim: Aim,
    pub(crate) run: String,
    /// How many steps, if not all.
    pub(crate) n_steps: Option<u64>,
    pub(crate) order: Order,
    /// The steps that were missed, as the process heard too late where to begin.
    pub(crate) late_at: Option<u64>,
}

/// One switching-on that has begun.
pub(crate) struct Session {
    pub(crate) run: String,
    /// What it is aimed at; the directory is absolute.
    pub(crate) aim: Aim,
    pub(crate) order: Option<Order>,
    /// The process's step count when it was switched on.
    pub(crate) base_step: u64,
    pub(crate) started_ns: u64,
    /// When it ends by itself.
    pub(crate) deadline: Option<Instant>,
    /// Bytes handed to the engine, against the budget.
    pub(crate) staged_bytes: u64,
    /// Wanted calls of taps.
    pub(crate) n_fired: u64,
    /// The last step in which a tap fired for the first time.
    pub(crate) newest_tap: u64,
    pub(crate) ledger: Arc<Ledger>,
    /// From the first record on.
    pub(crate) engine: Option<Arc<Engine>>,
    /// Whether the ranks of the aim were asked.
    pub(crate) rank_is_checked: bool,
}

impl Session {
    /// One that begins now, its step 1 with the forward pass after `base_step`.
    pub(crate) fn new(aim: Aim, run: String, order: Option<Order>, base_step: u64) -> Self {
        Self {
            run,
            order,
            base_step,
            started_ns: now_ns(),
            deadline: aim.duration.and_then(|duration| Instant::now().checked_add(duration)),
            staged_bytes: 0,
            n_fired: 0,
            newest_tap: 0,
            ledger: Arc::new(Ledger::default()),
            engine: None,
            rank_is_checked: false,
            aim,
        }
    }

    /// Whether the run's name was asked for, and not derived.
    pub(crate) fn is_named(&self) -> bool {
        self.aim.run.is_some()
    }

    /// The run's directory.
    pub(crate) fn path(&self) -> PathBuf {
        self.aim.dir.join(&self.run)
    }

    /// The step of the run that the process is in.
    pub(crate) fn step(&self) -> u64 {
        page::steps().wrapping_sub(self.base_step)
    }

    /// Whether taps have anything to do in the step that the process is in.
    pub(crate) fn is_awake(&self) -> bool {
        self.aim.steps.contains(self.step())
    }

    /// The count of forward passes at which a step has to look up: every one while taps are awake, or while it may end by
    /// the clock; else the next that is captured.
    pub(crate) fn due(&self) -> u64 {
        let next = self.aim.steps.next(self.step()).filter(|_| !self.is_awake() && self.deadline.is_none());
        next.map_or(0, |step| self.base_step.saturating_add(step))
    }

    /// Whether all that was captured is in sealed files.
    pub(crate) fn is_sealed(&self) -> bool {
        self.ledger.has_ended() && self.engine.as_ref().is_none_or(|engine| engine.is_finished())
    }

    /// A call of a tap is wanted: whoever looks at the page sees where the model is.
    pub(crate) fn note_firing(&mut self, tap: &str, step: u64, call: u64, time_ns: u64) {
        page::publish_tap(tap, [step, call, self.n_fired, time_ns]);
        self.n_fired += 1;
    }

    /// Why it is to end now, where its time is up.
    pub(crate) fn overdue(&self) -> Option<String> {
        let is_over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let duration = self.aim.duration.filter(|_| is_over)?;
        Some(format!("time is up: {duration:?}"))
    }

    /// Ends the session as foreseen. Its writer seals what there is by itself.
    pub(crate) fn end(&self, reason: &str) {
        self.ledger.end(reason, now_ns());
        if let Some(engine) = &self.engine {
            engine.ring.close();
        }
    }

    /// Ends the session and has all it wrote deleted.
    pub(crate) fn discard(&self) {
        self.end("thrown away: not every rank could begin at that step");
        if let Some(engine) = &self.engine {
            engine.discard();
        }
    }
}
