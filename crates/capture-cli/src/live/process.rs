//! A process with a control page, and how it stands.

use super::procfs::{Life, ProcDir};
use capture_core::{
    Answer,
    answer::State,
    page::{LastTap, Other},
};
use serde::Serialize;

/// A process that can be switched on and off.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) dir: ProcDir,
    pub(crate) page: Other,
    /// Its command line.
    pub(crate) program: String,
    /// As [`Seen::ancestors`].
    pub(crate) ancestors: Vec<Ancestor>,
}

/// A process above another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ancestor {
    pub(crate) pid: u32,
    /// Its program's short name.
    pub(crate) name: String,
}

/// How a process stood when it was looked at.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Seen {
    /// What it says of itself; its pid is as this command sees it, its program the whole command line.
    #[serde(flatten)]
    pub(crate) answer: Answer,
    /// Its count of forward passes.
    pub(crate) steps: u64,
    /// Step of the run, while capturing.
    pub(crate) step: Option<u64>,
    /// The call of a tap that the selection wanted last.
    pub(crate) last_tap: Option<Tap>,
    /// Whether it is stopped, by SIGSTOP, a terminal or a debugger.
    pub(crate) stopped: bool,
    /// Whether it has ended since it was found.
    pub(crate) gone: bool,
    /// Whether it has not taken the last request yet.
    pub(crate) unheeded: bool,
    /// Whether its paths are not this command's: it runs in a container.
    pub(crate) contained: bool,
    /// What is wrong with its page.
    pub(crate) fault: Option<&'static str>,
    /// Its parent, that one's parent, and so on.
    #[serde(skip)]
    pub(crate) ancestors: Vec<Ancestor>,
}

/// A call of a tap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Tap {
    pub(crate) tap: String,
    pub(crate) step: u64,
    pub(crate) call: u64,
    pub(crate) time_ns: u64,
}

impl From<LastTap> for Tap {
    fn from(LastTap { tap, step, call, time_ns, .. }: LastTap) -> Self {
        Self { tap, step, call, time_ns }
    }
}

/// How often what is being overwritten is read anew.
const TRIES: usize = 4;

impl Seen {
    /// Whether a capture is on, or armed.
    pub(crate) fn is_on(&self) -> bool {
        matches!(self.answer.state, State::Armed | State::Capturing)
    }
}

impl Process {
    pub(crate) fn pid(&self) -> u32 {
        self.dir.pid
    }

    /// Whether the process is `pid` or below it.
    pub(crate) fn is_of(&self, pid: u32) -> bool {
        self.pid() == pid || self.ancestors.iter().any(|above| above.pid == pid)
    }

    pub(crate) fn look(&self) -> Seen {
        let life = self.dir.life();
        let answer = (0..TRIES).find_map(|_| self.page.answer().ok());
        let fault = match answer {
            Some(Some(_)) => None,
            Some(None) => Some("it has said nothing of itself yet"),
            None => Some("what it says of itself is not whole"),
        };
        let answer = answer.flatten().unwrap_or_default();
        let is_on = answer.state == State::Capturing;
        let steps = self.page.steps();
        let began = answer.began_at.filter(|_| is_on);
        Seen {
            steps,
            step: began.map(|began| steps.saturating_add(1).saturating_sub(began)),
            last_tap: is_on.then(|| self.last_tap()).flatten(),
            stopped: life == Life::Stopped,
            gone: life == Life::Ended,
            unheeded: self.page.is_knocked() || self.page.requested() != answer.heeded,
            contained: !self.dir.shares_paths(),
            fault,
            ancestors: self.ancestors.clone(),
            answer: Answer { pid: self.pid(), program: self.program.clone(), ..answer },
        }
    }

    fn last_tap(&self) -> Option<Tap> {
        (0..TRIES).find_map(|_| self.page.last_tap().ok()).flatten().map(Tap::from)
    }
}
