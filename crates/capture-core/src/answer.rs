//! What a process says of itself, as JSON in the control page.

use crate::manifest::{Counters, Loss};
use crate::mesh::Mesh;
use crate::request::By;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// How a process stands. Where it is in its steps stands in the page itself, as that moves without it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Answer {
    /// The generation of the last request that it took; 0: none so far.
    pub heeded: u64,
    /// Whether this rank was among those that the request is for.
    pub meant: bool,
    /// Why it did not do what that request asked; null: it did.
    pub refused: Option<String>,
    /// The capture that is on, armed or was last.
    pub state: State,
    /// The [`id`](crate::request::Request::id) of the switching-on that the capture is of; 0: no command's.
    pub id: u64,
    /// The run's directory.
    #[serde(serialize_with = "as_text")]
    pub run: Option<PathBuf>,
    /// What is captured.
    pub select: String,
    /// Who switched it on, where a command did.
    pub by: Option<By>,
    /// The count of forward passes at which it is to begin, while armed.
    pub first: Option<u64>,
    /// The count of forward passes at which it should have begun and could not, as it heard of it only then.
    pub late_at: Option<u64>,
    /// The count of forward passes at which step 1 of the run begins, or began.
    pub began_at: Option<u64>,
    /// When it began, nanoseconds since 1970.
    pub began_ns: Option<u64>,
    /// Why it ended.
    pub reason: Option<String>,
    /// Whether all that was captured is in sealed files.
    pub sealed: bool,
    /// What was counted, at most 50 ms ago while bytes move.
    pub counters: Counters,
    /// The first few of what was not captured, and why.
    pub losses: Vec<Loss>,
    /// The last thing that went wrong.
    pub last_error: Option<String>,
    /// Global rank; null is unknown.
    pub rank: Option<u32>,
    /// Number of ranks.
    pub world: Option<u32>,
    /// Place in the mesh.
    pub mesh: Mesh,
    /// Who said which rank it is, as in the manifest.
    pub identity_from: String,
    /// Process id, in its own namespace.
    pub pid: u32,
    /// Host name.
    pub host: String,
    /// Its program, as started.
    pub program: String,
    /// The version of tpcapture.
    pub version: String,
    /// When the process imported it, nanoseconds since 1970.
    pub started_ns: u64,
}

/// How a capture stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// There was none.
    #[default]
    Off,
    /// It waits for the step at which it begins, or for the first call of a tap that it wants.
    Armed,
    /// It goes on.
    Capturing,
    /// It ended.
    Ended,
}

impl State {
    /// As written in the page.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Armed => "armed",
            Self::Capturing => "capturing",
            Self::Ended => "ended",
        }
    }
}

/// How many bytes a text that has no bound of its own may have: a selection, an error.
const MAX_TEXT: usize = 1024;

impl Answer {
    /// The text that goes into the page, of at most `limit` bytes: long texts are cut, and losses left out, until it
    /// fits. Empty where not even that helps.
    #[must_use]
    pub fn to_json(mut self, limit: usize) -> Vec<u8> {
        let text = |answer: &Self| serde_json::to_vec(answer).unwrap_or_default();
        let mut json = text(&self);
        if json.len() > limit {
            for long in [
                Some(&mut self.select),
                self.last_error.as_mut(),
                self.reason.as_mut(),
                self.refused.as_mut(),
            ] {
                long.into_iter().for_each(cut);
            }
            json = text(&self);
        }
        while json.len() > limit && self.losses.pop().is_some() {
            json = text(&self);
        }
        if json.len() > limit {
            // A directory of a thousand control characters: better half of its name than no word of the process.
            self.run = self.run.map(|run| {
                let mut text = run.to_string_lossy().into_owned();
                cut(&mut text);
                text.into()
            });
            json = text(&self);
        }
        if json.len() > limit { Vec::new() } else { json }
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// Where it is no answer.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }
}

/// A path may hold any bytes, and JSON may not.
fn as_text<S: serde::Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

fn cut(text: &mut String) {
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_reads_back_and_what_is_not_known_is_passed_over() {
        let answer =
            Answer { heeded: 3, state: State::Armed, rank: Some(2), first: Some(9), ..Answer::default() };
        assert_eq!(Answer::parse(&answer.clone().to_json(4096)).unwrap(), answer);
        let later = Answer::parse(br#"{"state": "ended", "of_a_later_version": {}}"#).unwrap();
        assert_eq!(later, Answer { state: State::Ended, ..Answer::default() });
    }

    #[test]
    fn what_is_too_long_is_cut_and_losses_are_left_out() {
        let loss = |i: u64| Loss { tap: format!("tap {i}"), reason: "x".repeat(700), count: i };
        let answer = Answer {
            select: "é".repeat(9000),
            losses: (0..5).map(loss).collect(),
            last_error: Some("disk".into()),
            ..Answer::default()
        };
        let json = answer.clone().to_json(4000);
        assert!(json.len() <= 4000);
        let read = Answer::parse(&json).unwrap();
        assert_eq!((read.select.len(), read.last_error.as_deref()), (1024 + "…".len(), Some("disk")));
        assert!((1..5).contains(&read.losses.len()), "{}", read.losses.len());
        assert_eq!(read.losses, answer.losses[..read.losses.len()]);
        assert_eq!(answer.to_json(10), b"");
    }

    /// A process in an odd directory would otherwise say nothing at all.
    #[test]
    fn a_path_of_any_bytes_is_said() {
        use std::os::unix::ffi::OsStrExt as _;
        let of = |bytes: &[u8]| {
            let run = Some(PathBuf::from(std::ffi::OsStr::from_bytes(bytes)));
            Answer::parse(&Answer { run, pid: 7, ..Answer::default() }.to_json(2048)).unwrap()
        };
        assert_eq!(of(b"/tmp/c\xff/run").run, Some(PathBuf::from("/tmp/c\u{fffd}/run")));
        assert_eq!(of(&[b'x'; 4000]).run.unwrap().as_os_str().len(), 1024 + "…".len());
    }
}
