//! Starting a session's engine: the ring, the writer thread, and what the manifest says of this process.

use crate::FORMAT_VERSION;
use crate::engine::Engine;
use crate::heed;
use crate::identity::{self, Origin};
use crate::manifest::{self, Manifest, ProcessInfo};
use crate::record::Identity;
use crate::session::Session;
use crate::state::State;
use crate::writer::{self, Assignment, now_ns};
use std::collections::BTreeMap;
use std::sync::Arc;

impl State {
    /// The session's engine, started for the first who asks. Where it cannot be started the capture ends, for the
    /// reason returned.
    pub(crate) fn engine(&mut self) -> Result<Arc<Engine>, String> {
        if let Some(engine) = self.session.as_ref().and_then(|session| session.engine.as_ref()) {
            return Ok(Arc::clone(engine));
        }
        self.start_engine().map_err(|error| {
            let reason = format!("no ring or no thread: {error}");
            if let Some(session) = &self.session {
                session.ledger.fail(&reason, now_ns());
            }
            // There is no writer that would.
            self.publish();
            reason
        })
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
            dir: session.aim.dir.clone(),
            identity,
            min_free: self.config.min_free,
            announced: session.aim.announced,
            manifest,
            selection: session.aim.selection.clone(),
            ledger: Arc::clone(&session.ledger),
            attend: heed::attend,
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
        config.selection = session.aim.selection.clone();
        (config.ranks, config.steps) = (session.aim.ranks.clone(), session.aim.steps);
        config.texts().into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}
