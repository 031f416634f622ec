//! What the process says of itself in the control page.

use crate::answer::{self, Answer};
use crate::identity::Origin;
use crate::page;
use crate::state::State;
use crate::writer::now_ns;

/// How many losses are told; the manifest has all.
const N_LOSSES: usize = 8;

impl State {
    /// Learns what stays as it is, once.
    pub(crate) fn introduce(&mut self, origin: Origin) {
        let program = std::env::args_os().next();
        self.origin = Answer {
            host: origin.host,
            program: program.map_or_else(String::new, |program| program.to_string_lossy().into()),
            version: env!("CARGO_PKG_VERSION").into(),
            started_ns: now_ns(),
            ..Answer::default()
        };
    }

    /// Tells the page how the process stands, where that has changed.
    pub(crate) fn publish(&mut self) {
        let answer = self.answer();
        if self.published.as_ref() != Some(&answer) {
            let block = page::answer();
            // It was made to fit.
            let _ = block.write(&answer.clone().to_json(block.capacity()));
            self.published = Some(answer);
        }
    }

    fn answer(&self) -> Answer {
        let mut answer = Answer {
            heeded: self.heeded,
            meant: self.is_meant,
            refused: self.refused.clone(),
            rank: self.who.rank,
            world: self.who.world,
            mesh: self.who.mesh.clone(),
            identity_from: self.who.from.clone(),
            pid: std::process::id(),
            ..self.origin.clone()
        };
        if let Some(waiting) = &self.waiting {
            answer.state = answer::State::Armed;
            answer.id = waiting.order.id;
            answer.run = Some(waiting.aim.dir.join(&waiting.run));
            answer.select = waiting.aim.selection.to_string();
            answer.by = Some(waiting.order.by.clone());
            (answer.first, answer.late_at) = (waiting.order.first, waiting.late_at);
            return answer;
        }
        let Some(session) = &self.session else { return answer };
        let balance = session.ledger.brief(N_LOSSES);
        answer.state = match (&balance.end, session.n_fired) {
            (Some(_), _) => answer::State::Ended,
            (None, 0) => answer::State::Armed,
            (None, _) => answer::State::Capturing,
        };
        answer.run = Some(session.path());
        answer.select = session.aim.selection.to_string();
        if let Some(order) = &session.order {
            (answer.id, answer.by) = (order.id, Some(order.by.clone()));
        }
        answer.began_at = Some(session.base_step.wrapping_add(1));
        answer.began_ns = Some(session.started_ns);
        answer.reason = balance.end.map(|end| end.reason);
        answer.sealed = session.is_sealed();
        (answer.counters, answer.losses, answer.last_error) =
            (balance.counters, balance.losses, balance.last_error);
        answer
    }
}
