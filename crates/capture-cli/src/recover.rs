//! `tpcapture recover`: seals what killed processes left.

use crate::{
    Error, number,
    output::{self, Output},
    run::rank,
};
use capture_compare::{locate, path_as_text};
use capture_core::{
    RunDir,
    recover::{Recovered, recover, unsealed},
    segment::SEALED,
};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Arguments of `recover`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Runs, or directories that hold one each.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Default, Serialize)]
struct Report {
    /// Segments that are sealed now.
    sealed: Vec<Sealed>,
    /// Those that are being written.
    live: Vec<Left>,
    /// Those that cannot be sealed.
    errors: Vec<Left>,
}

#[derive(Serialize)]
struct Sealed {
    #[serde(serialize_with = "path_as_text")]
    file: PathBuf,
    rank: Option<u32>,
    records: u64,
    bytes: u64,
}

/// A segment that stays as it is.
#[derive(Serialize)]
struct Left {
    /// Its path without its endings.
    #[serde(serialize_with = "path_as_text")]
    segment: PathBuf,
    reason: String,
}

/// Seals what is left in the runs.
pub(crate) fn recover_runs(args: &Args) -> Result<Output, Error> {
    let mut report = Report::default();
    let mut text = String::new();
    // All paths before any is touched: one that means no run is a mistake in the command.
    let runs: Vec<PathBuf> = args.runs.iter().map(|path| locate(path)).collect::<Result<_, _>>()?;
    for path in &runs {
        text += &recover_run(path, &mut report)?;
    }
    let status = match (report.errors.is_empty(), report.live.is_empty()) {
        (false, _) => 2,
        (true, false) => 1,
        (true, true) => 0,
    };
    if args.json {
        return Ok(Output { text: output::json(&report) + "\n", notes: Vec::new(), status });
    }
    let said = |left: &Left| format!("tpcapture: {}: left as it is: {}", left.segment.display(), left.reason);
    let notes = report.live.iter().chain(&report.errors).map(said).collect();
    Ok(Output { text, notes, status })
}

/// The same for one run; says what was done.
fn recover_run(path: &Path, report: &mut Report) -> Result<String, Error> {
    let unusable = |source| Error::Recover { path: path.to_owned(), source };
    // What the user names may be a link; what is in the run may not.
    let dir = path.canonicalize().and_then(|path| RunDir::reopen(&path)).map_err(unusable)?;
    let (mut text, n_before) = (String::new(), report.sealed.len());
    for base in unsealed(&dir).map_err(unusable)? {
        let left = |reason: String| Left { segment: path.join(&base), reason };
        match recover(&dir, &base) {
            Ok(Recovered::Sealed { identity, records, bytes }) => {
                let file = path.join(format!("{base}{SEALED}"));
                text += &format!(
                    "rank {}: {records} records, {}: {}\n",
                    rank(&identity),
                    number::bytes(bytes),
                    file.display()
                );
                report.sealed.push(Sealed { file, rank: identity.rank, records, bytes });
            }
            Ok(Recovered::Empty | Recovered::SealedByOthers) => {}
            Ok(Recovered::Live) => report.live.push(left("its process, or a child of it, is alive".into())),
            Err(error) => report.errors.push(left(error.to_string())),
        }
    }
    let n = report.sealed.len() - n_before;
    let what = match n {
        0 => "nothing to recover".to_owned(),
        1 => "1 segment recovered".to_owned(),
        n => format!("{n} segments recovered"),
    };
    Ok(text + &format!("{}: {what}\n", path.display()))
}
