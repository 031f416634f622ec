//! Writing segments as a stream, in constant memory.
//!
//! The header's room is written in front, so that a full disk cannot keep a segment from being sealed; data follows it
//! record by record, each with a line in the journal once it is whole. Sealing fills the room with the header, syncs,
//! renames and deletes the journal. After an error the segment ends at its last whole record, and can be sealed.

use crate::{
    header_text::HeaderText,
    journal::{self, Opening},
    record::{Identity, Record},
    rundir::RunDir,
    stored::{Stored, StoredError},
    tags::Tags,
    writeback::Writeback,
};
use safetensors::Dtype;
use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    time::{Duration, Instant},
};

/// When a segment is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of data; a larger record has a segment for itself.
    pub data: u64,
    /// Age, from its first record on.
    pub age: Duration,
    /// Bytes of the header's room in a process's first segment; it doubles with each.
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

/// Writes one process's segments into a run.
#[derive(Debug)]
pub struct SegmentWriter {
    dir: RunDir,
    identity: Identity,
    limits: Limits,
    /// Number of the next segment.
    next: u64,
    open: Option<Open>,
    bytes_written: u64,
    sealed: u64,
}

/// The segment being written.
#[derive(Debug)]
struct Open {
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

#[derive(Debug)]
struct Names {
    partial: String,
    journal: String,
    sealed: String,
}

impl SegmentWriter {
    /// A writer that has not begun. The directory is that of the identity's run.
    #[must_use]
    pub fn new(dir: RunDir, identity: Identity) -> Self {
        Self::with_limits(dir, identity, Limits::default())
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(dir: RunDir, identity: Identity, limits: Limits) -> Self {
        Self { dir, identity, limits, next: 0, open: None, bytes_written: 0, sealed: 0 }
    }

    /// Starts a record of `n_bytes`; `record.crc32` is filled in at its end. Seals the open segment first where it is
    /// full or due. A record that was begun and not finished is abandoned.
    pub fn begin(
        &mut self,
        record: &Record,
        dtype: Dtype,
        shape: &[u64],
        n_bytes: u64,
    ) -> Result<(), WriteError> {
        self.abandon()?;
        let mut entry =
            Stored { record: record.clone(), dtype, shape: shape.to_vec(), offset: 0, length: n_bytes };
        entry.check().map_err(|source| WriteError::Record { tap: record.tap.clone(), source })?;
        if let Some(open) = &self.open {
            entry.offset = open.data_end;
            if open.header.has(&entry) {
                return Err(WriteError::Twice {
                    tap: record.tap.clone(),
                    step: record.step,
                    call: record.call,
                });
            }
            if open.is_full(&entry, self.limits) {
                self.seal()?;
                entry.offset = 0;
            }
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let room = self.room_for(&entry)?;
                self.open.insert(Open::create(&self.dir, &self.identity, &mut self.next, room)?)
            }
        };
        open.since.get_or_insert_with(Instant::now);
        open.record = Some(Pending { entry, crc: crc32fast::Hasher::new(), written: 0 });
        Ok(())
    }

    /// Appends bytes to the record. On an error the record is abandoned.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        let open = self.open.as_mut().ok_or(WriteError::NoRecord)?;
        let pending = open.record.as_mut().ok_or(WriteError::NoRecord)?;
        let (expected, found) = (pending.entry.length, pending.written.saturating_add(bytes.len() as u64));
        let appended = if found > expected {
            Err(WriteError::Length { expected, found })
        } else {
            let at = open.data_start + pending.entry.offset + pending.written;
            open.file
                .write_all_at(bytes, at)
                .map_err(|e| io_error("write a record", &self.dir, &open.names.partial, e))
        };
        if appended.is_err() {
            // The first error is the one that says why.
            let _ = self.abandon();
            return appended;
        }
        pending.crc.update(bytes);
        pending.written = found;
        open.writeback.written(&open.file, open.data_start + pending.entry.offset + found);
        Ok(())
    }

    /// Ends the record: once this returns it is readable, whatever becomes of the process. On an error the record is
    /// abandoned.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        let open = self.open.as_mut().ok_or(WriteError::NoRecord)?;
        let Pending { mut entry, crc, written } = open.record.take().ok_or(WriteError::NoRecord)?;
        entry.record.crc32 = crc.finalize();
        let finished = if written < entry.length {
            Err(WriteError::Length { expected: entry.length, found: written })
        } else {
            let line = journal::encode(&entry);
            let written = open.journal.write_all_at(line.as_bytes(), open.journal_end);
            written
                .map(|()| open.journal_end += line.len() as u64)
                .map_err(|e| io_error("write the journal", &self.dir, &open.names.journal, e))
        };
        if finished.is_err() {
            let _ = open.cut_back(&self.dir);
            return finished;
        }
        open.data_end = entry.range().end;
        open.header.push(&entry);
        self.bytes_written += entry.length;
        Ok(())
    }

    /// Gives up the record that was begun: the segment ends where it began. Nothing happens where none was.
    pub fn abandon(&mut self) -> Result<(), WriteError> {
        let Some(open) = &mut self.open else { return Ok(()) };
        if open.record.take().is_some() { open.cut_back(&self.dir) } else { Ok(()) }
    }

    /// When the open segment is due to be sealed; `None` where it has no record.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.open.as_ref()?.since? + self.limits.age)
    }

    /// Seals the open segment: a record that was begun and not finished is abandoned. Nothing happens where none is
    /// open. On an error what was written stays, readable through its journal, and the next record begins another
    /// segment.
    pub fn seal(&mut self) -> Result<(), WriteError> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let (dir, names) = (&self.dir, &open.names);
        if open.header.is_empty() {
            for name in [&names.partial, &names.journal] {
                dir.delete(name).map_err(|e| io_error("delete an empty segment", dir, name, e))?;
            }
            return Ok(());
        }
        let partial = |what| move |e| io_error(what, dir, &names.partial, e);
        // Where abandoning a record failed to cut the file, its end is cut now.
        open.file.set_len(open.data_start + open.data_end).map_err(partial("cut a segment"))?;
        open.file.write_all_at(&open.header.bytes(), 0).map_err(partial("write a header"))?;
        open.file.sync_data().map_err(partial("sync a segment"))?;
        dir.rename(&names.partial, &names.sealed).map_err(partial("rename a segment"))?;
        self.sealed += 1;
        // The segment is sealed; a journal that stays is stale, and readers know.
        let _ = dir.delete(&names.journal);
        Ok(())
    }

    /// Bytes of all whole records.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Segments that were sealed.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.sealed
    }

    /// The next segment's room: doubled with each, and further where this record needs it.
    fn room_for(&self, entry: &Stored) -> Result<u64, WriteError> {
        let needed = HeaderText::new(&self.identity, self.next, 0).length_with(entry);
        let Limits { first_room, last_room: limit, .. } = self.limits;
        let doublings = u32::try_from(self.next).unwrap_or(u32::MAX);
        let mut room = 2u64.checked_pow(doublings).map_or(limit, |n| first_room.saturating_mul(n)).min(limit);
        while room < needed && room < limit {
            room = room.saturating_mul(2).min(limit);
        }
        if room < needed {
            return Err(WriteError::Entry { tap: entry.record.tap.clone(), limit, needed });
        }
        Ok(room)
    }
}

impl Open {
    /// The next segment's files. Where they cannot be made whole nothing stays of them.
    fn create(dir: &RunDir, identity: &Identity, next: &mut u64, room: u64) -> Result<Self, WriteError> {
        let segment = *next;
        *next += 1;
        let base = format!("{}.{segment:06}", identity.stem());
        let names = Names {
            partial: format!("{base}.safetensors.partial"),
            journal: format!("{base}.journal"),
            sealed: format!("{base}.safetensors"),
        };
        // The journal first, since a reader takes a partial without one for a loss.
        let opening = journal::encode(&Opening { tags: Tags::new(identity, segment), data_start: room });
        let journal = create_with(dir, &names.journal, opening.as_bytes())?;
        let zeros = vec![0; usize::try_from(room).unwrap_or(usize::MAX)];
        let file = create_with(dir, &names.partial, &zeros).inspect_err(|_| {
            let _ = dir.delete(&names.journal);
        })?;
        Ok(Self {
            names,
            file,
            journal,
            header: HeaderText::new(identity, segment, room),
            data_start: room,
            data_end: 0,
            journal_end: opening.len() as u64,
            since: None,
            record: None,
            writeback: Writeback::default(),
        })
    }

    /// Whether that record must go into another segment.
    fn is_full(&self, entry: &Stored, limits: Limits) -> bool {
        let end = self.data_end.saturating_add(entry.length);
        let too_much = end > limits.data && self.data_end > 0;
        let due = self.since.is_some_and(|since| since.elapsed() >= limits.age);
        // An offset that overflows belongs into a segment that begins anew.
        too_much || due || entry.check().is_err() || !self.header.fits(entry)
    }

    /// Cuts both files back to the last whole record. A journal line that was torn would hide those after it.
    fn cut_back(&mut self, dir: &RunDir) -> Result<(), WriteError> {
        let data = self.file.set_len(self.data_start + self.data_end);
        let journal = self.journal.set_len(self.journal_end);
        data.map_err(|e| io_error("cut a segment", dir, &self.names.partial, e))?;
        journal.map_err(|e| io_error("cut the journal", dir, &self.names.journal, e))
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

fn io_error(what: &'static str, dir: &RunDir, name: &str, source: io::Error) -> WriteError {
    WriteError::Io { what, path: dir.path().join(name), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{header, stored::tests::stored, tags::tests::identity};
    use std::fs;

    /// The journal's disk is full in the middle of a line: the record it would have told of is gone, and the torn line
    /// hides none that comes later.
    #[test]
    fn a_torn_journal_line_hides_nothing() {
        let temp = tempfile::tempdir().unwrap();
        let dir = RunDir::create(temp.path(), "r").unwrap();
        let mut writer = SegmentWriter::new(dir.clone(), identity());
        let write = |writer: &mut SegmentWriter, tap: &str, bytes: &[u8]| {
            let n = bytes.len() as u64;
            writer.begin(
                &Record { tap: tap.into(), ..stored(Dtype::U8, &[n], n).record },
                Dtype::U8,
                &[n],
                n,
            )?;
            writer.append(bytes)?;
            writer.finish()
        };
        write(&mut writer, "a", &[1, 2]).unwrap();

        let full = File::options().read(true).write(true).open("/dev/full").unwrap();
        let open = writer.open.as_mut().unwrap();
        let journal = std::mem::replace(&mut open.journal, full);
        let error = write(&mut writer, "b", &[3, 4, 5]).unwrap_err();
        assert!(matches!(error, WriteError::Io { what: "write the journal", .. }), "{error}");
        let open = writer.open.as_mut().unwrap();
        assert_eq!(open.file.metadata().unwrap().len(), open.data_start + 2);
        journal.write_all_at(&[b'x'; 1000], open.journal_end).unwrap();
        open.journal = journal;

        write(&mut writer, "c", &[6]).unwrap();
        let path = |name: &str| dir.path().join(name);
        let open = writer.open.as_ref().unwrap();
        let said = journal::decode(&fs::read(path(&open.names.journal)).unwrap()).unwrap().unwrap();
        let taps = |entries: &[Stored]| entries.iter().map(|e| e.record.tap.clone()).collect::<Vec<_>>();
        assert_eq!((taps(&said.entries), said.broken), (vec!["a".into(), "c".into()], None));

        let sealed = path(&open.names.sealed);
        writer.seal().unwrap();
        let bytes = fs::read(sealed).unwrap();
        let header = header::parse(&bytes[8..65536], bytes.len() as u64).unwrap();
        assert_eq!((taps(&header.entries), &bytes[65536..]), (vec!["a".into(), "c".into()], &[1, 2, 6][..]));
    }
}
