//! What a command asks of a process, as JSON in the control page.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A request. A field that is missing has its default, one that is not known is passed over, so that a command and a
/// process of neighbouring versions understand each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// What to do.
    pub op: Op,
    /// Tells one switching-on from another: the same in all its requests, to all its processes.
    pub id: u64,
    /// The run's name, as in docs/format.md.
    pub run: String,
    /// The directory that holds runs, absolute; the process's own (`TPCAPTURE_DIR`) where missing.
    pub dir: Option<PathBuf>,
    /// A selection.
    pub select: String,
    /// Which ranks are meant, as in `TPCAPTURE_RANKS`.
    pub ranks: String,
    /// The process's count of forward passes at which the run's step 1 begins. Missing: only arms, the count follows in
    /// another request. 0: for a process that never stepped, which begins at its next tap with step 0, or at its first
    /// step with step 1.
    pub first: Option<u64>,
    /// How many steps; until it is switched off where missing.
    pub steps: Option<u64>,
    /// The most bytes of records, beside what `TPCAPTURE_BUDGET` allows.
    pub limit_bytes: Option<u64>,
    /// How long, in milliseconds from when the process begins.
    pub for_ms: Option<u64>,
    /// Who asks.
    pub by: By,
}

/// What to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Op {
    /// End the capture that is on, or armed.
    Off,
    /// Arm, and begin at [`Request::first`] where it is said.
    On,
    /// What this version does not know, and refuses.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Who asks, for people to read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct By {
    /// The command's process id, in its own namespace.
    pub pid: u32,
    /// The user's name or id.
    pub user: String,
    /// The host's name.
    pub host: String,
}

impl Request {
    /// The text that goes into the page.
    ///
    /// # Errors
    /// Where the directory's name is no Unicode.
    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Reads what [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// Where it is no request.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_back_and_what_is_missing_has_a_default() {
        let request = Request {
            op: Op::On,
            id: 7,
            run: "r".into(),
            dir: Some("/tmp/x".into()),
            select: "*".into(),
            ranks: "all".into(),
            first: Some(12),
            steps: Some(3),
            limit_bytes: Some(1 << 30),
            for_ms: Some(1500),
            by: By { pid: 4, user: "ada".into(), host: "node7".into() },
        };
        assert_eq!(Request::parse(&request.to_json().unwrap()).unwrap(), request);
        let short = Request::parse(br#"{"op": "on", "id": 7, "of_a_later_version": [1]}"#).unwrap();
        assert_eq!(short, Request { op: Op::On, id: 7, ..Request::default() });
        for unknown in [&br#"{"op": "sideways"}"#[..], b"{}"] {
            assert_eq!(Request::parse(unknown).unwrap().op, Op::Unknown);
        }
        assert!(Request::parse(b"on").is_err());
    }
}
