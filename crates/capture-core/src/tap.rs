//! The hook: a tap in model code, and what happens when it fires while a capture is on.

use crate::FORMAT_VERSION;
use crate::config::OnFull as Configured;
use crate::engine::{Draft, Engine, NotStaged, OnFull, Promise};
use crate::identity::{self, Origin};
use crate::ledger::Ledger;
use crate::manifest::{self, Manifest, ProcessInfo};
use crate::name::MAX_TAP_NAME;
use crate::page;
use crate::record::{Identity, Record};
use crate::select::{Decision, Mode, Selection, Subject};
use crate::state::{self, Session, State};
use crate::stored::{StoredError, byte_length};
use crate::view::TensorView;
use crate::writer::{self, Assignment, now_ns};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

pub use crate::state::TapId;

/// A named capture point of an engine written in Rust.
///
/// ```
/// use capture_core::{Dtype, Element, Tap, TensorView};
///
/// static Q: Tap = Tap::new("layers.0.attn.q");
///
/// let q = [1.0f32, 2.0, 3.0, 4.0];
/// // SAFETY: four floats, alive as long as the view.
/// let view = unsafe {
///     TensorView::new(q.as_ptr().cast(), Element::Plain(Dtype::F32), &[2, 2], &[2, 1], "cpu")
/// };
/// Q.capture(&view.unwrap());
/// ```
#[derive(Debug)]
pub struct Tap {
    name: &'static str,
    id: OnceLock<Option<TapId>>,
}

/// Why a tensor was not captured. It has been counted, and said once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// It cannot be.
    #[error("tap {tap:?}: {reason}")]
    Refused {
        /// The tap.
        tap: String,
        /// Why.
        reason: String,
    },
    /// There was no room.
    #[error("tap {tap:?}: lost: {reason}")]
    Lost {
        /// The tap.
        tap: String,
        /// Why.
        reason: String,
    },
}

impl Tap {
    /// A tap of that name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, id: OnceLock::new() }
    }

    /// Captures a tensor where the selection wants it. Never fails and, while off, does nothing but load one word.
    #[inline(always)]
    pub fn capture(&self, view: &TensorView<'_>) {
        if page::is_on() {
            // Counted and said by what failed.
            let _ = self.fire(view);
        }
    }

    /// The same, saying why not.
    ///
    /// # Errors
    /// Where the selection wants the tensor and it could not be captured.
    #[inline(always)]
    pub fn try_capture(&self, view: &TensorView<'_>) -> Result<(), CaptureError> {
        if page::is_on() { self.fire(view) } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn fire(&self, view: &TensorView<'_>) -> Result<(), CaptureError> {
        let Some(tap) = *self.id.get_or_init(|| tap(self.name)) else {
            return Ok(());
        };
        match begin(tap, view, None, None)? {
            Some(ticket) => ticket.stage(view, Patience::Full).map(drop),
            None => Ok(()),
        }
    }
}

/// The tap of that name, the same for every asker; `None` where there are too many or the name is too long.
#[must_use]
pub fn tap(name: &str) -> Option<TapId> {
    if name.len() > MAX_TAP_NAME { None } else { state::lock().tap(name) }
}

/// Whether any rule names the tap: if not, the tensor need not even be described.
#[must_use]
pub fn is_named(tap: TapId) -> bool {
    state::lock().is_named(tap)
}

/// What was given to the tap cannot be captured: counted, said once.
#[cold]
pub fn refuse(tap: TapId, reason: &str) -> CaptureError {
    let mut state = state::lock();
    let name = state.name_of(tap).to_string();
    let is_open = state.is_open_for_this_rank();
    // It fired all the same: the next call is the next call.
    if let Some((firing, session)) = state.fire(tap, page::steps())
        && is_open
        && session.steps.contains(firing.step)
    {
        session.ledger.refuse(&name, reason);
    }
    CaptureError::Refused { tap: name, reason: reason.to_owned() }
}

/// Something about a call of the tap that is worth knowing and does not keep the tensor from being captured: counted
/// among the losses, said once.
#[cold]
pub fn remark(tap: TapId, remark: &str) {
    let mut state = state::lock();
    let name = Arc::clone(state.name_of(tap));
    if let Some(session) = state.active() {
        session.ledger.remark(&name, remark);
    }
}

/// How much a caller can wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Not at all: it holds something that other threads need.
    None,
    /// As long as the configuration says.
    Full,
}

/// A tensor that is to be captured.
pub struct Ticket {
    tap: Arc<str>,
    draft: Box<Draft>,
    /// The shape in memory of what is kept, where only the first rows are.
    kept: Option<Vec<u64>>,
    on_full: OnFull,
    engine: Promise,
    ledger: Arc<Ledger>,
}

/// Asks the selection about a tensor. `None`: it is not wanted.
///
/// # Errors
/// Where it is wanted and cannot be had.
pub fn begin(
    tap: TapId,
    view: &TensorView<'_>,
    placement: Option<&str>,
    rows: Option<u64>,
) -> Result<Option<Ticket>, CaptureError> {
    let mut guard = state::lock();
    let state = &mut *guard;
    if !state.is_open_for_this_rank() {
        return Ok(None);
    }
    let rank = state.who.rank;
    let Some((firing, session)) = state.fire(tap, page::steps()) else { return Ok(None) };
    if !session.steps.contains(firing.step) {
        if session.steps.is_past(firing.step) {
            session.end("steps done");
        }
        return Ok(None);
    }
    let element = view.element();
    let shape = element.recorded_shape(view.shape());
    let subject = Subject { dtype: Some(element.recorded_dtype()), shape: &shape, call: firing.call, rank };
    let (rule, head) = match firing.plan.decide(&session.selection, &subject) {
        Decision::Capture { rule, mode: Mode::Full, head } => (rule, head),
        Decision::Capture { mode: mode @ (Mode::Stats | Mode::Hash), .. } => {
            let reason = format!("mode {mode} is not built yet, only full is");
            session.ledger.refuse(&firing.name, &reason);
            return Err(CaptureError::Refused { tap: firing.name.to_string(), reason });
        }
        Decision::Skip | Decision::Capture { .. } => return Ok(None),
    };
    let full_rows = head.and_then(|head| view.shape().first().copied().filter(|rows| *rows > head));
    let kept = full_rows.zip(head).map(|(_, head)| {
        let mut kept = view.shape().to_vec();
        kept[0] = head;
        kept
    });
    let full_rows = full_rows.and_then(|rows| element.recorded_rows(view.shape(), rows));
    let rows = rows.and_then(|rows| element.recorded_rows(view.shape(), rows));
    let shape = kept.as_deref().map_or(shape, |kept| element.recorded_shape(kept));
    let n_bytes = kept.as_deref().map_or(*view, |kept| view.head(kept)).n_bytes();
    let dtype = element.recorded_dtype();
    if byte_length(dtype, &shape) != Some(n_bytes) {
        // Half a byte of `head=N` rows, or an empty tensor with dimensions that no file can hold.
        let reason = StoredError::Bits { dtype, shape }.to_string();
        session.ledger.refuse(&firing.name, &reason);
        return Err(CaptureError::Refused { tap: firing.name.to_string(), reason });
    }
    let record = Record {
        tap: firing.name.to_string(),
        step: firing.step,
        abs_step: firing.abs_step,
        call: firing.call,
        seq: 0,
        time_ns: now_ns(),
        placement: placement.map(str::to_owned),
        rows: rows.map(|rows| rows.min(shape.first().copied().unwrap_or(rows))),
        full_rows,
        strides: view.strides().to_vec(),
        device: view.device().to_owned(),
        encoding: element.encoding().map(str::to_owned),
        crc32: 0,
    };
    let name = firing.name;
    let draft = Box::new(Draft { record, dtype, shape, n_bytes, rule });
    state.ticket(name, draft, kept)
}

impl Ticket {
    /// Copies the tensor. Gives the ticket back where that would take more patience than the caller has.
    ///
    /// # Errors
    /// Where there was no room: the record is lost, or the capture has ended.
    pub fn stage(mut self, view: &TensorView<'_>, patience: Patience) -> Result<Option<Self>, CaptureError> {
        let on_full = match patience {
            Patience::None => OnFull::Busy,
            Patience::Full => self.on_full,
        };
        let view = self.kept.as_deref().map_or(*view, |kept| view.head(kept));
        match self.engine.stage(self.draft, &view, on_full) {
            Ok(()) => return Ok(None),
            Err(NotStaged::Busy(draft)) => {
                self.draft = draft;
                return Ok(Some(self));
            }
            Err(NotStaged::Lost(reason)) => {
                self.ledger.lose(&self.tap, reason);
                Err(reason.to_owned())
            }
            Err(NotStaged::Full(waited)) => {
                let reason = format!("ring full: the disk made no room in {waited:?} (TPCAPTURE_ON_FULL)");
                self.ledger.lose(&self.tap, &reason);
                self.ledger.fail(&reason, now_ns());
                self.engine.ring.close();
                Err(reason)
            }
            Err(NotStaged::Ended) => {
                let reason = "the capture had just ended".to_owned();
                self.ledger.lose(&self.tap, &reason);
                Err(reason)
            }
        }
        .map_err(|reason| CaptureError::Lost { tap: self.tap.to_string(), reason })
    }
}

impl Session {
    /// Ends the session as foreseen. Its writer seals what there is by itself.
    fn end(&self, reason: &str) {
        self.ledger.end(reason, now_ns());
        if let Some(engine) = &self.engine {
            engine.ring.close();
        }
    }
}

impl State {
    /// Whether a rule names the tap.
    fn is_named(&mut self, tap: TapId) -> bool {
        self.plan(tap).is_some()
    }

    /// Whether the session goes on, and on this rank.
    fn is_open_for_this_rank(&mut self) -> bool {
        let Self { who, session, .. } = self;
        let Some(session) = session.as_mut().filter(|session| !session.ledger.has_ended()) else {
            return false;
        };
        if !session.rank_is_checked {
            session.rank_is_checked = true;
            if !session.ranks.contains(who.rank, &who.mesh) {
                session.end("this rank is not among TPCAPTURE_RANKS");
                return false;
            }
        }
        true
    }

    /// Charges the draft to the budget and gives it to the session's engine, which is started for the first one.
    fn ticket(
        &mut self,
        tap: Arc<str>,
        draft: Box<Draft>,
        kept: Option<Vec<u64>>,
    ) -> Result<Option<Ticket>, CaptureError> {
        let budget = self.config.budget;
        let on_full = match self.config.on_full {
            Configured::Wait(limit) => OnFull::Wait(Some(limit)),
            Configured::WaitForever => OnFull::Wait(None),
            Configured::Drop => OnFull::Drop,
        };
        let Some(session) = self.active() else { return Ok(None) };
        let ledger = Arc::clone(&session.ledger);
        if session.staged_bytes.saturating_add(draft.n_bytes) > budget {
            let reason = format!(
                "budget reached: {} bytes captured, the next record of {} would exceed TPCAPTURE_BUDGET={budget}",
                session.staged_bytes, draft.n_bytes
            );
            session.end(&reason);
            crate::notice::notice(&format!("capture ended: {reason}"));
            return Ok(None);
        }
        session.staged_bytes += draft.n_bytes;
        let engine = match &session.engine {
            Some(engine) => Arc::clone(engine),
            None => match self.start_engine() {
                Ok(engine) => engine,
                Err(error) => {
                    let reason = format!("no ring or no thread: {error}");
                    ledger.lose(&tap, &reason);
                    ledger.fail(&reason, now_ns());
                    return Err(CaptureError::Lost { tap: tap.to_string(), reason });
                }
            },
        };
        Ok(Some(Ticket { tap, draft, kept, on_full, engine: Promise::new(engine), ledger }))
    }

    fn start_engine(&mut self) -> std::io::Result<Arc<Engine>> {
        let engine = Arc::new(Engine::new(self.config.ring)?);
        let process = identity::process_id();
        let session = self.session.as_ref().expect("an engine is started for a session");
        let identity = Identity {
            run: session.run.clone(),
            rank: self.who.rank,
            world: self.who.world,
            mesh: self.who.mesh.clone(),
            process: process.clone(),
        };
        let mut versions = self.versions.clone();
        versions.insert("tpcapture".into(), env!("CARGO_PKG_VERSION").into());
        let manifest = Manifest {
            tpcapture: FORMAT_VERSION.into(),
            run: identity.run.clone(),
            rank: identity.rank,
            world: identity.world,
            mesh: identity.mesh.clone(),
            identity_from: self.who.from.clone(),
            process: ProcessInfo {
                id: process,
                pid: std::process::id(),
                host: Origin::of_this_process().host,
                program: std::env::args_os().next().map_or_else(String::new, |p| p.to_string_lossy().into()),
            },
            versions,
            config: self.config_as_text(session),
            started_ns: session.started_ns,
            ended_ns: None,
            state: manifest::State::Capturing,
            end_reason: None,
            counters: manifest::Counters::default(),
            losses: Vec::new(),
            rules: Vec::new(),
            last_error: None,
        };
        let assignment = Assignment {
            dir: session.dir.clone(),
            identity,
            min_free: self.config.min_free,
            manifest,
            selection: Arc::clone(&session.selection),
            ledger: Arc::clone(&session.ledger),
        };
        writer::spawn(Arc::clone(&engine), assignment)?;
        if let Some(session) = &mut self.session {
            session.engine = Some(Arc::clone(&engine));
        }
        Ok(engine)
    }

    /// The configuration as text, with what this session was asked for in place of what the environment says.
    fn config_as_text(&self, session: &Session) -> BTreeMap<String, String> {
        let mut config = self.config.clone();
        config.selection = Selection::clone(&session.selection);
        (config.ranks, config.steps) = (session.ranks.clone(), session.steps);
        config.texts().into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}
