//! The hook: a tap in model code, and what happens when it fires while a capture is on.

use crate::engine::Draft;
use crate::heed::{self, At};
use crate::name::MAX_TAP_NAME;
use crate::notice::notice;
use crate::page;
use crate::record::Record;
use crate::select::{Decision, Mode, Subject};
use crate::state::{self, Firing, State};
use crate::stored::{StoredError, byte_length};
use crate::view::TensorView;
use crate::writer::now_ns;
use std::sync::{Arc, OnceLock};

pub use crate::state::TapId;
pub use crate::ticket::{CaptureError, Patience, Ticket};

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

impl Tap {
    /// A tap of that name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, id: OnceLock::new() }
    }

    /// Captures a tensor where the selection wants it. Never fails and, while off, does nothing but load one word.
    #[inline(always)]
    pub fn capture(&self, view: &TensorView<'_>) {
        if page::is_awake() {
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
        if page::is_awake() { self.fire(view) } else { Ok(()) }
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

/// A forward pass begins: later records belong to the next step.
#[inline(always)]
pub fn step() {
    if page::step() {
        heed::at_step();
    }
}

/// The tap of that name, the same for every asker; `None` where there are too many or the name is too long.
#[must_use]
pub fn tap(name: &str) -> Option<TapId> {
    if name.len() > MAX_TAP_NAME { None } else { state::lock().tap(name) }
}

/// What the capture that is on wants of a tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// Nothing: the tensor need not even be described.
    None,
    /// That it fired, whatever the tensor: [`pass`].
    Call,
    /// Its tensor: [`begin`].
    Tensor,
}

/// What the capture that is on wants of the tap.
#[must_use]
pub fn interest(tap: TapId) -> Interest {
    let mut state = state::lock();
    let Some(session) = state.active() else { return Interest::None };
    let selection = session.aim.selection.clone();
    match state.plan(tap) {
        None => Interest::None,
        Some(plan) if plan.needs_no_tensor(&selection) => Interest::Call,
        Some(_) => Interest::Tensor,
    }
}

/// The tap fired: whoever looks at the page sees where the model is.
pub fn pass(tap: TapId) {
    let mut state = state::lock();
    state.look(At::Tap);
    if !state.is_open_for_this_rank() {
        return;
    }
    let rank = state.who.rank;
    let Some((firing, session)) = state.fire(tap, page::steps()) else { return };
    let subject = Subject { dtype: None, shape: &[], call: firing.call, rank };
    let decision = firing.plan.decide(&session.aim.selection, &subject);
    if session.aim.steps.contains(firing.step) && matches!(decision, Decision::Capture { .. }) {
        session.note_firing(&firing.name, firing.step, firing.call, now_ns());
        if session.n_fired == 1 {
            state.publish();
        }
    }
}

/// What was given to the tap cannot be captured: counted, said once. `Ok` where it was not wanted anyway.
///
/// # Errors
/// The refusal.
#[cold]
pub fn refuse(tap: TapId, reason: &str) -> Result<(), CaptureError> {
    let mut state = state::lock();
    let name = Arc::clone(state.name_of(tap));
    let is_open = state.is_open_for_this_rank();
    // It fired all the same: the next call is the next call.
    let fired = state.fire(tap, page::steps());
    let is_wanted = fired.is_some_and(|(firing, session)| session.aim.steps.contains(firing.step));
    if is_open && is_wanted { Err(state.refused(&name, reason.to_owned())) } else { Ok(()) }
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
    state.look(At::Tap);
    if !state.is_open_for_this_rank() {
        return Ok(None);
    }
    let rank = state.who.rank;
    let Some((firing, session)) = state.fire(tap, page::steps()) else { return Ok(None) };
    if !session.aim.steps.contains(firing.step) {
        if session.aim.steps.next(firing.step).is_none() {
            session.end("steps done");
            state.publish();
        }
        return Ok(None);
    }
    let element = view.element();
    let shape = element.recorded_shape(view.shape());
    let subject = Subject { dtype: Some(element.recorded_dtype()), shape: &shape, call: firing.call, rank };
    let decision = firing.plan.decide(&session.aim.selection, &subject);
    let Firing { name, step, abs_step, call, .. } = firing;
    let time_ns = now_ns();
    if matches!(decision, Decision::Capture { .. }) {
        session.note_firing(&name, step, call, time_ns);
        if session.n_fired == 1 {
            state.publish();
        }
    }
    let (rule, mode, head) = match decision {
        Decision::Capture { rule, mode: mode @ (Mode::Full | Mode::Stats | Mode::Hash), head } => {
            (rule, mode, head)
        }
        Decision::Skip | Decision::Capture { .. } => return Ok(None),
    };
    let full_rows = head.and_then(|head| view.shape().first().copied().filter(|rows| *rows > head));
    let kept = full_rows.zip(head).map(|(_, head)| {
        let mut kept = view.shape().to_vec();
        kept[0] = head;
        kept
    });
    let shape_of_kept = kept.as_deref().map(|kept| element.recorded_shape(kept));
    let kept = match (mode, rows) {
        (Mode::Stats | Mode::Hash, Some(rows)) => without_padding(kept, view.shape(), rows),
        _ => kept,
    };
    let full_rows = full_rows.and_then(|rows| element.recorded_rows(view.shape(), rows));
    let rows = rows.and_then(|rows| element.recorded_rows(view.shape(), rows));
    let digested = kept.as_deref().map(|kept| element.recorded_shape(kept));
    let shape = shape_of_kept.unwrap_or(shape);
    let n_bytes = kept.as_deref().map_or(*view, |kept| view.head(kept)).n_bytes();
    let dtype = element.recorded_dtype();
    if byte_length(dtype, &shape).is_none()
        || byte_length(dtype, digested.as_deref().unwrap_or(&shape)) != Some(n_bytes)
    {
        // Half a byte of `head=N` rows, or an empty tensor with dimensions that no file can hold.
        let reason = StoredError::Bits { dtype, shape }.to_string();
        return Err(state.refused(&name, reason));
    }
    let record = Record {
        tap: name.to_string(),
        step,
        abs_step,
        call,
        seq: 0,
        time_ns,
        placement: placement.map(str::to_owned),
        rows: rows.map(|rows| rows.min(shape.first().copied().unwrap_or(rows))),
        full_rows,
        strides: view.strides().to_vec(),
        device: view.device().to_owned(),
        encoding: element.encoding().map(str::to_owned),
        crc32: 0,
    };
    let draft = Box::new(Draft { record, dtype, shape, n_bytes, rule, mode, digest: None });
    state.ticket(name, draft, kept)
}

/// The shape in memory of the rows that a digest is of: those that are kept and no padding.
fn without_padding(kept: Option<Vec<u64>>, shape: &[u64], rows: u64) -> Option<Vec<u64>> {
    let mut valid = kept.unwrap_or_else(|| shape.to_vec());
    if let Some(first) = valid.first_mut() {
        *first = rows.min(*first);
    }
    Some(valid)
}

impl State {
    /// Counts a tensor that was wanted and cannot be had. The engine is started also for this, so that the run has a
    /// manifest that says so.
    fn refused(&mut self, tap: &str, reason: String) -> CaptureError {
        if let Some(session) = self.active() {
            session.ledger.refuse(tap, &reason);
            // Where it cannot be started the capture has ended, which was said.
            let _ = self.engine();
        }
        CaptureError::Refused { tap: tap.to_owned(), reason }
    }

    /// Whether the session goes on, and on this rank.
    fn is_open_for_this_rank(&mut self) -> bool {
        let Self { who, session, .. } = self;
        let Some(session) = session.as_mut().filter(|session| !session.ledger.has_ended()) else {
            return false;
        };
        if !session.rank_is_checked {
            session.rank_is_checked = true;
            if !session.aim.ranks.contains(who.rank, &who.mesh) {
                if who.rank.is_none() {
                    notice(&format!(
                        "TPCAPTURE_RANKS={}: the rank of this process is unknown, so nothing is captured; set TPCAPTURE_RANK",
                        session.aim.ranks
                    ));
                }
                session.end("this rank is not among TPCAPTURE_RANKS");
                self.publish();
                return false;
            }
        }
        true
    }
}
