//! The manifest: what is known of one process's part in a run, beside its records.

use crate::{
    FORMAT_VERSION,
    mesh::Mesh,
    record::Identity,
    rundir::RunDir,
    tags::{self, TagsError},
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Write},
};

/// `stem.json`, as docs/format.md describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format version.
    pub tpcapture: String,
    /// Run name.
    pub run: String,
    /// Global rank; `None` is unknown.
    pub rank: Option<u32>,
    /// Number of ranks.
    pub world: Option<u32>,
    /// Place in the mesh.
    pub mesh: Mesh,
    /// Who said which rank this is: `TPCAPTURE_RANK`, `vllm`, `RANK`, `unknown`, …
    pub identity_from: String,
    /// The process.
    pub process: ProcessInfo,
    /// Versions by name: `tpcapture`, and of the host language and its frameworks where loaded.
    pub versions: BTreeMap<String, String>,
    /// What it was told: `select`, `ranks`, `steps`, `budget`, … as text.
    pub config: BTreeMap<String, String>,
    /// When the capture started, nanoseconds since 1970.
    pub started_ns: u64,
    /// When it ended.
    pub ended_ns: Option<u64>,
    /// Whether it goes on.
    pub state: State,
    /// Why it ended: `off`, `exit`, `steps done`, `budget reached: …`, `disk: …`, `ring full: …`.
    pub end_reason: Option<String>,
    /// What was counted.
    pub counters: Counters,
    /// Records that were to be captured and were not, and tensors that were refused.
    pub losses: Vec<Loss>,
    /// The selection's rules; one with 0 records never captured anything.
    pub rules: Vec<RuleCount>,
    /// The last error of the writer.
    pub last_error: Option<String>,
}

/// The process that captures.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessInfo {
    /// `PID-HEX`.
    pub id: String,
    /// Process id in its own namespace.
    pub pid: u32,
    /// Host name.
    pub host: String,
    /// Its program, as started.
    pub program: String,
}

/// Whether a capture goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It goes on, or its process was killed.
    Capturing,
    /// It ended, for the reason given.
    Ended,
}

/// What a capture counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Records written.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Segments sealed.
    pub segments: u64,
    /// Records that were to be captured and were lost.
    pub lost: u64,
    /// Tensors that were refused.
    pub refused: u64,
}

/// Records of one tap that are not in the run, for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// Tap name.
    pub tap: String,
    /// Why.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// A rule of the selection and what it captured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleCount {
    /// The rule as written.
    pub rule: String,
    /// Records it captured.
    pub records: u64,
}

impl Manifest {
    /// Whether it ended as whoever switched it on or off wanted: docs/format.md lists the reasons.
    #[must_use]
    pub fn ended_as_told(&self) -> bool {
        const WORDS: [&str; 3] = ["off", "exit", "steps done"];
        const BEGINNINGS: [&str; 3] = ["limit reached", "time is up: ", "re-aimed: "];
        self.end_reason.as_deref().is_none_or(|reason| {
            WORDS.contains(&reason) || BEGINNINGS.iter().any(|beginning| reason.starts_with(beginning))
        })
    }
}

/// Why a file is no manifest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Not the JSON it has to be.
    #[error("manifest: {0}")]
    Json(#[from] serde_json::Error),
    /// Another version, or an identity that cannot be.
    #[error("manifest: {0}")]
    Tags(#[from] TagsError),
}

impl Manifest {
    /// Reads a manifest and checks its identity.
    pub fn parse(json: &[u8]) -> Result<Self, ManifestError> {
        let manifest: Self = serde_json::from_slice(json)?;
        if manifest.tpcapture != FORMAT_VERSION {
            return Err(TagsError::Version(manifest.tpcapture).into());
        }
        tags::check(&manifest.identity())?;
        Ok(manifest)
    }

    /// The manifest's text.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("strings, numbers and maps with string keys are JSON")
    }

    /// Writes `stem.json` into the run, replacing an earlier one in a single step: a reader finds the one or the other.
    pub fn write(&self, dir: &RunDir, stem: &str) -> io::Result<()> {
        let json = self.to_json();
        let (name, mut file) = temporary(dir, stem)?;
        let written =
            file.write_all(json.as_bytes()).and_then(|()| dir.rename(&name, &format!("{stem}.json")));
        if written.is_err() {
            // What remains is no more than a file that readers do not look at.
            let _ = dir.delete(&name);
        }
        written
    }

    /// The identity in it.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity {
            run: self.run.clone(),
            rank: self.rank,
            world: self.world,
            mesh: self.mesh.clone(),
            process: self.process.id.clone(),
        }
    }
}

/// A new file beside the manifest. Only this process's own leavings can bear the first name, and few of them.
fn temporary(dir: &RunDir, stem: &str) -> io::Result<(String, std::fs::File)> {
    let mut last = None;
    for n in 0..8 {
        let name = format!("{stem}.json.{n}.tmp");
        match dir.create_new(&name) {
            Ok(file) => return Ok((name, file)),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => last = Some(e),
            Err(e) => return Err(e),
        }
    }
    Err(last.unwrap_or_else(|| ErrorKind::AlreadyExists.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn a_manifest_is_replaced_and_nothing_is_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "run").unwrap();
        let (victim, at) = (dir.path().join("victim"), |name: &str| run.path().join(name));
        fs::write(&victim, "untouched").unwrap();
        symlink(&victim, at("s.json.0.tmp")).unwrap();
        symlink(&victim, at("s.json")).unwrap();
        let mut manifest = Manifest::parse(DOCUMENTED.as_bytes()).unwrap();
        for records in [4, 5] {
            manifest.counters.records = records;
            manifest.write(&run, "s").unwrap();
            assert_eq!(Manifest::parse(&fs::read(at("s.json")).unwrap()).unwrap(), manifest);
        }
        assert_eq!(fs::read_to_string(victim).unwrap(), "untouched");
        let mut names: Vec<_> = fs::read_dir(run.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["s.json", "s.json.0.tmp"]);
    }

    const DOCUMENTED: &str = r#"{
        "tpcapture": "1", "run": "r", "rank": 1, "world": 2,
        "mesh": {"dims": [{"name": "tp", "coord": 1, "size": 2}], "assumed": false},
        "identity_from": "RANK",
        "process": {"id": "42-0badcafe", "pid": 42, "host": "h", "program": "python serve.py"},
        "versions": {"tpcapture": "0.1.0", "torch": "2.15.0"},
        "config": {"select": "*", "budget": "10GiB"},
        "started_ns": 5, "ended_ns": null, "state": "capturing", "end_reason": null,
        "counters": {"records": 3, "bytes": 24, "segments": 1, "lost": 2, "refused": 0},
        "losses": [{"tap": "q", "reason": "ring full", "count": 2}],
        "rules": [{"rule": "*", "records": 3}], "last_error": null, "a later key": {"is": "ignored"}
    }"#;

    #[test]
    fn an_end_that_somebody_wanted_is_told_from_one_that_befell_it() {
        let mut manifest = Manifest::parse(DOCUMENTED.as_bytes()).unwrap();
        let mut is_told = |reason: &str| {
            manifest.end_reason = Some(reason.into());
            manifest.ended_as_told()
        };
        for reason in ["off", "exit", "steps done", "limit reached at every tap", "time is up: 30s"] {
            assert!(is_told(reason), "{reason}");
        }
        assert!(
            is_told("re-aimed: run \"b\" by ada (pid 7)") && is_told("limit reached: 7 bytes captured, …")
        );
        for reason in ["budget reached: 10 GiB", "disk: …", "ring full: …", "offline", "steps done?"] {
            assert!(!is_told(reason), "{reason}");
        }
    }

    #[test]
    fn a_manifest_reads_back() {
        let manifest = Manifest::parse(DOCUMENTED.as_bytes()).unwrap();
        assert_eq!(manifest.identity(), crate::tags::tests::identity());
        assert_eq!((manifest.state, manifest.counters.lost), (State::Capturing, 2));
        let again = serde_json::to_vec(&manifest).unwrap();
        assert_eq!(Manifest::parse(&again).unwrap(), manifest);
    }

    #[test]
    fn what_is_no_manifest_says_why() {
        let error =
            |from, to| Manifest::parse(DOCUMENTED.replace(from, to).as_bytes()).unwrap_err().to_string();
        assert_eq!(
            error(r#""tpcapture": "1""#, r#""tpcapture": "9""#),
            r#"manifest: expected format version "1", found "9""#
        );
        assert_eq!(
            error(r#""rank": 1"#, r#""rank": 7"#),
            r#"manifest: rank: expected a rank below the world, found "7 of 2""#
        );
        assert!(error(r#""state": "capturing""#, r#""state": 1"#).starts_with("manifest: "));
    }
}
