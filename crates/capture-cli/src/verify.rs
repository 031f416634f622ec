//! `tpcapture verify`: every record against its checksum.

use crate::{
    Error, number,
    output::Output,
    progress::Progress,
    run::{RunArgs, rank},
};
use capture_compare::{Entry, FileError, path_as_text};
use serde::Serialize;
use std::path::Path;

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    #[serde(serialize_with = "path_as_text")]
    run: &'a Path,
    /// Records whose bytes were read.
    records: u64,
    bytes: u64,
    /// Records of which statistics or a hash were kept, which nothing can be held against.
    digests: usize,
    mismatches: Vec<Mismatch<'a>>,
    errors: &'a [FileError],
}

/// A record whose bytes are not those that were written.
#[derive(Serialize)]
struct Mismatch<'a> {
    #[serde(serialize_with = "path_as_text")]
    file: &'a Path,
    rank: Option<u32>,
    tap: &'a str,
    step: u64,
    call: u64,
    expected: u32,
    found: u32,
}

/// Verifies a run.
pub(crate) fn verify(args: &Args) -> Result<Output, Error> {
    let run = args.run.open()?;
    let progress = Progress::new(run.entries.iter().map(Entry::n_bytes).sum());
    let (mut errors, mut mismatches, mut texts) = (run.errors.clone(), Vec::new(), Vec::new());
    let (mut records, mut bytes) = (0, 0);
    for entry in &run.entries {
        let found = match run.checksum(entry) {
            Ok(found) => found,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        progress.add(entry.n_bytes());
        (records, bytes) = (records + 1, bytes + entry.n_bytes());
        let (record, identity) = (&entry.record, &run.processes[entry.process].identity);
        if found != record.crc32 {
            let (tap, file, expected) = (record.tap.as_str(), run.file(entry), record.crc32);
            texts.push(format!(
                "rank {} tap {tap:?} step {} call {}: expected checksum {expected:08x}, found {found:08x}: {}\n",
                rank(identity),
                record.step,
                record.call,
                file.display()
            ));
            let (rank, step, call) = (identity.rank, record.step, record.call);
            mismatches.push(Mismatch { file, rank, tap, step, call, expected, found });
        }
    }
    drop(progress);
    let failed = mismatches.len();
    let mut output = if args.run.json {
        Output::json(
            &Report {
                run: &run.path,
                records,
                bytes,
                digests: run.digests.len(),
                mismatches,
                errors: &errors,
            },
            &errors,
        )
    } else {
        let verdict = match failed {
            0 => "every checksum holds".to_owned(),
            n => format!("{n} of them not as written"),
        };
        let unchecked = match run.digests.len() {
            0 => String::new(),
            n => format!("; {n} records of statistics or hashes have no bytes to check"),
        };
        let summary = format!(
            "{}: {records} records, {}: {verdict}{unchecked}\n",
            run.path.display(),
            number::bytes(bytes)
        );
        Output::text(texts.concat() + &summary, &errors)
    };
    if failed > 0 {
        output.status = 1;
    }
    Ok(output)
}
