//! Live processes: which there are, how they stand, and switching captures on and off in them.

pub(crate) mod procfs;
pub(crate) mod user;
pub(crate) mod closed;
pub(crate) mod process;
pub(crate) mod search;
pub(crate) mod jobs;
pub(crate) mod whom;
pub(crate) mod interrupt;
mod party;
mod replica;
pub(crate) mod switching;
pub(crate) mod sealing;
pub(crate) mod words;
pub(crate) mod table;
pub(crate) mod watch;

use capture_core::page::{AskError, Holder};
use std::io;

/// Why live processes cannot be looked at or switched.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// No `/proc`.
    #[error("expected /proc to be mounted, as that is where live processes are found: {0}")]
    NoProc(io::Error),
    /// Nobody to switch, and why.
    #[error("{0}")]
    Nobody(String),
    /// Several jobs, and how to choose.
    #[error("expected the processes of one job, found {0}")]
    SeveralJobs(String),
    /// Another command switches the same processes.
    #[error("pid {pid} is being switched by {}: try again once that is done", holder_text(*.holder))]
    Held {
        /// A process it holds.
        pid: u32,
        /// The command.
        holder: Holder,
    },
    /// The request does not go into the page.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// A relative directory means nothing there.
    #[error("--dir: expected a working directory that exists, or an absolute path: {0}")]
    NoDirectory(io::Error),
    /// Ctrl-C while processes were being armed.
    #[error("interrupted: nothing was switched on")]
    Interrupted,
    /// Steps go by faster than a first one can be agreed on.
    #[error(
        "no first step was agreed on in {tries} tries, as steps went by faster; nothing was switched on: try again"
    )]
    TooFast {
        /// How often it was tried.
        tries: usize,
    },
    /// A view that is drawn needs something to draw on.
    #[error("--watch: expected a terminal on stdout, or --json for an object a second")]
    NoTerminal,
    /// The terminal refuses.
    #[error("writing the output: {0}")]
    Draw(io::Error),
}

fn holder_text(holder: Holder) -> String {
    match holder.pid {
        0 => "another command".to_owned(),
        pid => format!("another command, pid {pid} of {}", user::name(holder.uid)),
    }
}
