//! A record on its way: wanted by the selection, charged to the budget, not yet copied.

use crate::config::OnFull as Configured;
use crate::engine::{Draft, NotStaged, OnFull, Promise};
use crate::ledger::Ledger;
use crate::notice::notice;
use crate::state::State;
use crate::view::TensorView;
use crate::writer::now_ns;
use std::sync::Arc;

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
                self.ledger.lose(&self.tap, &reason);
                Err(reason)
            }
            // By the writer, in its turn.
            Err(NotStaged::Counted(reason)) => Err(reason),
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

impl State {
    /// Charges the draft to the budget and gives it to the session's engine, which is started for the first one.
    pub(crate) fn ticket(
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
        let (staged, next) = (session.staged_bytes, draft.charge());
        // What the headers of many small segments take counts as well.
        let written = staged + session.engine.as_ref().map_or(0, |engine| engine.overhead());
        let over = |n_bytes: u64, limit: u64| n_bytes.saturating_add(next) > limit;
        let reason = match session.aim.limit_bytes {
            _ if over(written, budget) => format!(
                "budget reached: {written} bytes captured, the next record of {next} would exceed TPCAPTURE_BUDGET={budget}"
            ),
            Some(limit) if over(staged, limit) => format!(
                "limit reached: {staged} bytes captured, the next record of {next} would exceed the limit of {limit}"
            ),
            _ => String::new(),
        };
        if !reason.is_empty() {
            session.end(&reason);
            notice(&format!("capture ended: {reason}"));
            self.publish();
            return Ok(None);
        }
        session.staged_bytes += next;
        let engine = self.engine().map_err(|reason| {
            ledger.lose(&tap, &reason);
            CaptureError::Lost { tap: tap.to_string(), reason }
        })?;
        Ok(Some(Ticket { tap, draft, kept, on_full, engine: Promise::new(engine), ledger }))
    }
}
