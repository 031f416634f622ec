//! The segment that is being written: its two files, its header as it grows, and the record at its end.

use crate::{
    header_text::HeaderText,
    journal::{self, Journal, Opening},
    record::Identity,
    rundir::RunDir,
    stored::{Stored, StoredError},
    tags::Tags,
    writeback::Writeback,
};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    time::{Duration, Instant},
};

/// How the names of a sealed segment's file end.
pub const SEALED: &str = ".safetensors";
/// Those of a segment that is being written, or was when its process was killed.
pub const PARTIAL: &str = ".safetensors.partial";
/// Those of its journal.
pub const JOURNAL: &str = ".journal";

/// When a segment is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of data; a larger record has a segment for itself.
    pub data: u64,
    /// Age, from its first record on.
    pub age: Duration,
    /// Bytes of the header's room in a process's first segment; it doubles with each that it was too small for.
    pub first_room: u64,
    /// Where the doubling ends.
    pub last_room: u64,
}

impl Default for Limits {
    /// Those of docs/format.md.
    fn default() -> Self {
        Self { data: 256 << 20, age: Duration::from_secs(2), first_room: 64 << 10, last_room: 4 << 20 }
    }
}

/// Why a record, or a segment, is not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The system refuses.
    #[error("{what}: {source}: {}", path.display())]
    Io {
        /// What was being done.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Dtype, shape and bytes, or what else is said of the record, do not fit each other.
    #[error("tap {tap:?}: {source}")]
    Record {
        /// Tap name.
        tap: String,
        /// What cannot be.
        source: StoredError,
    },
    /// The tap's call in that step is in this segment already.
    #[error("tap {tap:?}, step {step}, call {call} is there already")]
    Twice {
        /// Tap name.
        tap: String,
        /// Step of the run.
        step: u64,
        /// Call within the step.
        call: u64,
    },
    /// What is said of the record is longer than any header's room.
    #[error("tap {tap:?}: expected a header of at most {limit} bytes, found one of {needed}")]
    Entry {
        /// Tap name.
        tap: String,
        /// The largest room.
        limit: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// More or fewer bytes than the record was begun with.
    #[error("expected {expected} bytes of the record, found {found}")]
    Length {
        /// Bytes it was begun with.
        expected: u64,
        /// Bytes given.
        found: u64,
    },
    /// No record is begun, or it was given up after an error.
    #[error("no record is begun")]
    NoRecord,
}

impl WriteError {
    /// Whether it is about the record alone, so that the next one may be written.
    #[must_use]
    pub fn is_of_one_record(&self) -> bool {
        matches!(self, Self::Record { .. } | Self::Twice { .. } | Self::Entry { .. })
    }
}

/// The segment being written.
#[derive(Debug)]
pub(crate) struct Open {
    dir: RunDir,
    names: Names,
    file: File,
    journal: File,
    header: HeaderText,
    /// The file's byte at which data begins.
    data_start: u64,
    /// Bytes of data of whole records.
    data_end: u64,
    /// Bytes of whole journal lines.
    journal_end: u64,
    /// When its first record was begun.
    since: Option<Instant>,
    record: Option<Pending>,
    writeback: Writeback,
}

/// The record being written.
#[derive(Debug)]
struct Pending {
    entry: Stored,
    crc: crc32fast::Hasher,
    written: u64,
}

/// What a segment's files are called.
#[derive(Debug)]
pub(crate) struct Names {
    pub(crate) partial: String,
    pub(crate) journal: String,
    pub(crate) sealed: String,
}

impl Names {
    /// Those of that stem and number.
    pub(crate) fn new(base: &str) -> Self {
        let with = |suffix: &str| format!("{base}{suffix}");
        Self { partial: with(PARTIAL), journal: with(JOURNAL), sealed: with(SEALED) }
    }
}

impl Open {
    /// The next segment's files. Where they cannot be made whole nothing stays of them.
    pub(crate) fn create(
        dir: &RunDir,
        identity: &Identity,
        next: &mut u64,
        room: u64,
    ) -> Result<Self, WriteError> {
        let segment = *next;
        *next += 1;
        let names = Names::new(&format!("{}.{segment:06}", identity.stem()));
        let dir = dir.clone();
        // The journal first, since a reader takes a partial without one for a loss.
        let opening = journal::encode(&Opening { tags: Tags::new(identity, segment), data_start: room });
        let journal = create_with(&dir, &names.journal, opening.as_bytes())?;
        let zeros = vec![0; usize::try_from(room).unwrap_or(usize::MAX)];
        let file = create_with(&dir, &names.partial, &zeros).inspect_err(|_| {
            let _ = dir.delete(&names.journal);
        })?;
        // Tells `recover` that the segment is being written, until this process ends. Where there are no locks, it
        // refuses.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let header = HeaderText::new(identity, segment, room);
        Ok(Self::new(dir, names, [file, journal], header, room, opening.len() as u64))
    }

    /// The files `[partial, journal]` that a process left, with the records of its journal, of which each is there and
    /// fits the header.
    pub(crate) fn resume(dir: &RunDir, names: Names, files: [File; 2], said: &Journal) -> Self {
        let mut header = HeaderText::new(&said.identity, said.segment, said.data_start);
        said.entries.iter().for_each(|entry| header.push(entry));
        let data_end = said.entries.last().map_or(0, |last| last.range().end);
        Self { data_end, ..Self::new(dir.clone(), names, files, header, said.data_start, 0) }
    }

    fn new(
        dir: RunDir,
        names: Names,
        [file, journal]: [File; 2],
        header: HeaderText,
        data_start: u64,
        journal_end: u64,
    ) -> Self {
        Self {
            dir,
            names,
            file,
            journal,
            header,
            data_start,
            data_end: 0,
            journal_end,
            since: None,
            record: None,
            writeback: Writeback::default(),
        }
    }

    /// Whether that record must go into another segment.
    pub(crate) fn is_full(&self, entry: &Stored, limits: Limits) -> bool {
        let end = self.data_end.saturating_add(entry.length);
        let too_much = end > limits.data && self.data_end > 0;
        let due = self.since.is_some_and(|since| since.elapsed() >= limits.age);
        // An offset that overflows belongs into a segment that begins anew.
        too_much || due || entry.check().is_err() || !self.has_room(entry)
    }

    /// Whether the header's room takes one more entry.
    pub(crate) fn has_room(&self, entry: &Stored) -> bool {
        self.header.fits(entry)
    }

    /// Where the next record's bytes go, counted from the beginning of the data.
    pub(crate) fn data_end(&self) -> u64 {
        self.data_end
    }

    /// When its first record was begun.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// Whether that tap, step and call is here already.
    pub(crate) fn has(&self, entry: &Stored) -> bool {
        self.header.has(entry)
    }

    /// Begins a record that is not [full](Self::is_full)'s and that it does not [have](Self::has).
    pub(crate) fn begin(&mut self, entry: Stored) {
        self.since.get_or_insert_with(Instant::now);
        self.record = Some(Pending { entry, crc: crc32fast::Hasher::new(), written: 0 });
    }

    /// Appends to the record. On an error it is abandoned.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let pending = self.record.as_mut().ok_or(WriteError::NoRecord)?;
        let (expected, found) = (pending.entry.length, pending.written.saturating_add(bytes.len() as u64));
        let at = self.data_start + pending.entry.offset + pending.written;
        let appended = if found > expected {
            Err(WriteError::Length { expected, found })
        } else {
            let written = write_summed(&self.file, bytes, at, &mut pending.crc);
            written.map_err(|e| io_error("write a record", &self.dir, &self.names.partial, e))
        };
        if appended.is_err() {
            // The first error is the one that says why.
            let _ = self.abandon();
            return appended;
        }
        pending.written = found;
        self.writeback.written(&self.file, at + bytes.len() as u64);
        Ok(())
    }

    /// Ends the record with its journal line, and says how many bytes it has. On an error it is abandoned.
    pub(crate) fn finish(&mut self) -> Result<u64, WriteError> {
        let Pending { mut entry, crc, written } = self.record.take().ok_or(WriteError::NoRecord)?;
        entry.record.crc32 = crc.finalize();
        let line = journal::encode(&entry);
        let finished = if written < entry.length {
            Err(WriteError::Length { expected: entry.length, found: written })
        } else {
            let written = self.journal.write_all_at(line.as_bytes(), self.journal_end);
            written.map_err(|e| io_error("write the journal", &self.dir, &self.names.journal, e))
        };
        if let Err(error) = finished {
            let _ = self.cut_back();
            return Err(error);
        }
        self.journal_end += line.len() as u64;
        self.data_end = entry.range().end;
        self.header.push(&entry);
        Ok(entry.length)
    }

    /// Gives up the record that was begun, if one was.
    pub(crate) fn abandon(&mut self) -> Result<(), WriteError> {
        if self.record.take().is_some() { self.cut_back() } else { Ok(()) }
    }

    /// Seals the segment, or deletes it where no record is whole. Says whether it was sealed.
    pub(crate) fn seal(self) -> Result<bool, WriteError> {
        let (dir, names) = (&self.dir, &self.names);
        if self.header.is_empty() {
            for name in [&names.partial, &names.journal] {
                dir.delete(name).map_err(|e| io_error("delete an empty segment", dir, name, e))?;
            }
            return Ok(false);
        }
        let partial = |what| move |e| io_error(what, dir, &names.partial, e);
        // Cuts off a record that was not finished, and what could not be cut off when it was abandoned.
        self.file.set_len(self.data_start + self.data_end).map_err(partial("cut a segment"))?;
        self.file.write_all_at(&self.header.bytes(), 0).map_err(partial("write a header"))?;
        self.file.sync_data().map_err(partial("sync a segment"))?;
        dir.rename(&names.partial, &names.sealed).map_err(partial("rename a segment"))?;
        // It is sealed; a journal that stays is stale, and readers know.
        let _ = dir.delete(&names.journal);
        Ok(true)
    }

    /// Cuts both files back to the last whole record. A journal line that was torn would hide those after it.
    fn cut_back(&mut self) -> Result<(), WriteError> {
        let data = self.file.set_len(self.data_start + self.data_end);
        let journal = self.journal.set_len(self.journal_end);
        data.map_err(|e| io_error("cut a segment", &self.dir, &self.names.partial, e))?;
        journal.map_err(|e| io_error("cut the journal", &self.dir, &self.names.journal, e))
    }
}

/// A new file with these bytes, or none.
fn create_with(dir: &RunDir, name: &str, bytes: &[u8]) -> Result<File, WriteError> {
    let file = dir.create_new(name).map_err(|e| io_error("create", dir, name, e))?;
    file.write_all_at(bytes, 0).map_err(|e| {
        let _ = dir.delete(name);
        io_error("begin a segment", dir, name, e)
    })?;
    Ok(file)
}

/// Writes the bytes and adds them to the checksum, in chunks that are still in the core's cache when they are read for
/// the second time.
fn write_summed(file: &File, bytes: &[u8], at: u64, crc: &mut crc32fast::Hasher) -> io::Result<()> {
    const CHUNK: usize = 1 << 20;
    let mut at = at;
    for chunk in bytes.chunks(CHUNK) {
        crc.update(chunk);
        file.write_all_at(chunk, at)?;
        at += chunk.len() as u64;
    }
    Ok(())
}

fn io_error(what: &'static str, dir: &RunDir, name: &str, source: io::Error) -> WriteError {
    WriteError::Io { what, path: dir.path().join(name), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{header, record::Record, stored::tests::stored, tags::tests::identity};
    use safetensors::Dtype;
    use std::fs;

    /// The journal's disk is full in the middle of a line: the record it would have told of is gone, and the torn line
    /// hides none that comes later.
    #[test]
    fn a_torn_journal_line_hides_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let dir = RunDir::create(temp.path(), "r").unwrap();
        let mut open = Open::create(&dir, &identity(), &mut 0, 1024).unwrap();
        let write = |open: &mut Open, tap: &str, bytes: &[u8]| {
            let n = bytes.len() as u64;
            let entry = Stored { offset: open.data_end(), ..stored(Dtype::U8, &[n], n) };
            open.begin(Stored { record: Record { tap: tap.into(), ..entry.record }, ..entry });
            open.append(bytes)?;
            open.finish()
        };
        assert_eq!(write(&mut open, "a", &[1, 2]).unwrap(), 2);

        let full = File::options().read(true).write(true).open("/dev/full").unwrap();
        let journal = std::mem::replace(&mut open.journal, full);
        let error = write(&mut open, "b", &[3, 4, 5]).unwrap_err();
        assert!(matches!(error, WriteError::Io { what: "write the journal", .. }), "{error}");
        assert_eq!(open.file.metadata().unwrap().len(), 1024 + 2);
        journal.write_all_at(&[b'x'; 1000], open.journal_end).unwrap();
        open.journal = journal;

        write(&mut open, "c", &[6]).unwrap();
        let path = |name: &str| dir.path().join(name);
        let said = journal::decode(&fs::read(path(&open.names.journal)).unwrap()).unwrap().unwrap();
        let taps = |entries: &[Stored]| entries.iter().map(|e| e.record.tap.clone()).collect::<Vec<_>>();
        assert_eq!((taps(&said.entries), said.broken), (vec!["a".into(), "c".into()], None));

        let sealed = path(&open.names.sealed);
        assert!(open.seal().unwrap());
        let bytes = fs::read(sealed).unwrap();
        let header = header::parse(&bytes[8..1024], bytes.len() as u64).unwrap();
        assert_eq!((taps(&header.entries), &bytes[1024..]), (vec!["a".into(), "c".into()], &[1, 2, 6][..]));
    }
}
