//! Sealing what a killed process left: a partial segment, and the journal that says what is in it.
//!
//! Nothing is lost on the way. The header goes into the room that was kept for it, which readers of a partial pass
//! over; only then is the file renamed, and the journal deleted last. Whoever is interrupted can begin again. What is not
//! as a killed process leaves it stays as it is: it may be worth more to somebody than a sealed file without it.

use crate::{
    header::MAX_HEADER,
    header_text::HeaderText,
    journal::{self, Journal, JournalError},
    open_segment::{JOURNAL, Names, Open, PARTIAL, WriteError},
    record::Identity,
    rundir::RunDir,
    stored::Stored,
};
use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};
use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, MetadataExt},
};

/// Bytes that are read at once.
const PIECE: usize = 1 << 20;

/// A segment that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recovered {
    /// It is sealed now.
    Sealed {
        /// Whose it is.
        identity: Box<Identity>,
        /// Its records.
        records: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// It has no record: its process was killed before the first, or has just begun it.
    Empty,
    /// It is being written, by a process that lives or by a child that it has forked.
    Live,
    /// It was sealed meanwhile.
    SealedByOthers,
}

/// Why a segment stays as it is.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The system refuses.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Sealing failed.
    #[error(transparent)]
    Seal(#[from] WriteError),
    /// A partial alone.
    #[error("its journal is missing")]
    NoJournal,
    /// A journal with records alone.
    #[error("its segment is missing")]
    NoSegment,
    /// The journal does not say whose the segment is.
    #[error("its journal has no whole line")]
    NoOpening,
    /// The journal makes no sense.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal is damaged in its middle.
    #[error("its journal is damaged: whole lines stand behind line {0}, which is not")]
    Damaged(usize),
    /// The file is none that a capture makes.
    #[error("expected a regular file of one name, found {0}")]
    Kind(&'static str),
    /// The segment is shorter than its journal says.
    #[error("expected {expected} records, found bytes of {found}")]
    Short {
        /// In the journal.
        expected: usize,
        /// In the segment.
        found: usize,
    },
    /// Bytes that are not those that were written.
    #[error("tap {tap:?}, step {step}, call {call}: expected checksum {expected:08x}, found {found:08x}")]
    Checksum {
        /// Tap name.
        tap: String,
        /// Step of the run.
        step: u64,
        /// Call within the step.
        call: u64,
        /// As written.
        expected: u32,
        /// Of what is there.
        found: u32,
    },
    /// Two records of one name.
    #[error("tap {tap:?}, step {step}, call {call} is there twice")]
    Twice {
        /// Tap name.
        tap: String,
        /// Step of the run.
        step: u64,
        /// Call within the step.
        call: u64,
    },
    /// The room for the header is none.
    #[error("expected room for a header of {needed} to {MAX_HEADER} bytes, found {found}")]
    Room {
        /// Bytes that the header needs.
        needed: u64,
        /// Where data begins.
        found: u64,
    },
}

/// The stems and numbers of all segments of the run that are not sealed.
///
/// # Errors
/// Where the directory cannot be listed.
pub fn unsealed(dir: &RunDir) -> io::Result<Vec<String>> {
    let names = dir.names()?;
    let bases: BTreeSet<&str> =
        names.iter().filter_map(|n| n.strip_suffix(PARTIAL).or_else(|| n.strip_suffix(JOURNAL))).collect();
    let is_sealed = |base: &str| names.binary_search(&Names::new(base).sealed).is_ok();
    Ok(bases.into_iter().filter(|base| !is_sealed(base)).map(str::to_owned).collect())
}

/// Seals that segment, and returns once it is on disk.
///
/// # Errors
/// Where it is not as a killed process leaves it, or the system refuses. It is then as it was.
pub fn recover(dir: &RunDir, base: &str) -> Result<Recovered, RecoverError> {
    let names = Names::new(base);
    let is_there = |name: &str| dir.has(name).map_err(io_error("look for the files"));
    let Some(journal) = open(dir, &names.journal)? else {
        return match (is_there(&names.partial)?, is_there(&names.sealed)?) {
            (true, _) => Err(RecoverError::NoJournal),
            (false, true) => Ok(Recovered::SealedByOthers),
            (false, false) => Ok(Recovered::Empty),
        };
    };
    // A segment is locked before its first record. One that has none may be about to be: it is left alone.
    match read_journal(&journal)? {
        None if is_there(&names.partial)? => return Err(RecoverError::NoOpening),
        Some(said) if !said.entries.is_empty() => {}
        _ => return Ok(Recovered::Empty),
    }
    let Some(partial) = open(dir, &names.partial)? else {
        let is_sealed = is_there(&names.sealed)?;
        return if is_sealed { Ok(Recovered::SealedByOthers) } else { Err(RecoverError::NoSegment) };
    };
    match flock(&partial, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(Recovered::Live),
        Err(e) => return Err(io_error("find out whether it is being written")(e.into())),
    }
    if is_there(&names.sealed)? {
        return Ok(Recovered::SealedByOthers);
    }
    // Now that nobody writes it any more.
    let said = read_journal(&journal)?.ok_or(RecoverError::NoOpening)?;
    check_header(&said)?;
    check_records(&partial, &said)?;
    let (identity, records) = (Box::new(said.identity.clone()), said.entries.len() as u64);
    let bytes = said.entries.last().map_or(0, |last| last.range().end);
    Open::resume(dir, names, [partial, journal], &said).seal()?;
    dir.sync().map_err(io_error("sync the directory"))?;
    Ok(Recovered::Sealed { identity, records, bytes })
}

/// A file of the run, if it is there. What has other names besides must not be written to: it may be anything.
fn open(dir: &RunDir, name: &str) -> Result<Option<File>, RecoverError> {
    let file = match dir.open_existing(name) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) if e.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            return Err(RecoverError::Kind("a symbolic link"));
        }
        Err(e) => return Err(io_error("open its files")(e)),
    };
    let metadata = file.metadata().map_err(io_error("look at its files"))?;
    match (metadata.is_file(), metadata.nlink()) {
        (true, 0 | 1) => Ok(Some(file)),
        (true, _) => Err(RecoverError::Kind("one with hard links")),
        (false, _) => Err(RecoverError::Kind("something else")),
    }
}

fn read_journal(file: &File) -> Result<Option<Journal>, RecoverError> {
    let length = file.metadata().map_err(io_error("look at the journal"))?.len();
    if length > MAX_HEADER {
        let source = io::Error::other(format!("expected at most {MAX_HEADER} bytes, found {length}"));
        return Err(io_error("read the journal")(source));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0).map_err(io_error("read the journal"))?;
    let said = journal::decode(&bytes)?;
    let n_whole = said.as_ref().map_or(0, |said| 1 + said.entries.len());
    if let Some(broken) = said.as_ref().and_then(|said| said.broken.clone()) {
        return Err(broken.into());
    }
    if !journal::is_torn_at_its_end_only(&bytes) {
        return Err(RecoverError::Damaged(n_whole + 1));
    }
    Ok(said)
}

/// The records have names of their own, and a header that tells of them all fits before the data.
fn check_header(said: &Journal) -> Result<(), RecoverError> {
    let found = said.data_start;
    let mut header = HeaderText::new(&said.identity, said.segment, found);
    for entry in &said.entries {
        if header.has(entry) {
            let Stored { record, .. } = entry;
            return Err(RecoverError::Twice {
                tap: record.tap.clone(),
                step: record.step,
                call: record.call,
            });
        }
        header.push(entry);
    }
    let needed = header.length();
    if (needed..=MAX_HEADER).contains(&found) { Ok(()) } else { Err(RecoverError::Room { needed, found }) }
}

/// The records' bytes are there, and are those that were written.
fn check_records(file: &File, said: &Journal) -> Result<(), RecoverError> {
    let length = file.metadata().map_err(io_error("look at the segment"))?.len();
    let is_there =
        |entry: &&Stored| said.data_start.checked_add(entry.range().end).is_some_and(|end| end <= length);
    let (expected, found) = (said.entries.len(), said.entries.iter().take_while(is_there).count());
    if found < expected {
        return Err(RecoverError::Short { expected, found });
    }
    let mut piece = vec![0; PIECE];
    for entry in &said.entries {
        let found = checksum(file, said.data_start + entry.offset, entry.length, &mut piece)
            .map_err(io_error("read the segment"))?;
        let record = &entry.record;
        if found != record.crc32 {
            return Err(RecoverError::Checksum {
                tap: record.tap.clone(),
                step: record.step,
                call: record.call,
                expected: record.crc32,
                found,
            });
        }
    }
    Ok(())
}

fn checksum(file: &File, mut at: u64, mut length: u64, piece: &mut [u8]) -> io::Result<u32> {
    let mut crc = crc32fast::Hasher::new();
    while length > 0 {
        let n = length.min(piece.len() as u64);
        let piece = &mut piece[..n as usize];
        file.read_exact_at(piece, at)?;
        crc.update(piece);
        (at, length) = (at + n, length - n);
    }
    Ok(crc.finalize())
}

fn io_error(what: &'static str) -> impl Fn(io::Error) -> RecoverError {
    move |source| RecoverError::Io { what, source }
}
