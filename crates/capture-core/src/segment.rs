//! Writing segments as a stream, in constant memory.
//!
//! The header's room is written in front, so that a full disk cannot keep a segment from being sealed; data follows it
//! record by record, each with a line in the journal once it is whole. Sealing fills the room with the header, syncs,
//! renames and deletes the journal. After an error the segment ends at its last whole record, and can be sealed.

use crate::{
    header_text::HeaderText,
    open_segment::Open,
    record::{Identity, Record},
    rundir::RunDir,
    stored::Stored,
};
use safetensors::Dtype;
use std::time::Instant;

pub use crate::open_segment::{JOURNAL, Limits, PARTIAL, SEALED, WriteError};

/// Writes one process's segments into a run.
#[derive(Debug)]
pub struct SegmentWriter {
    dir: RunDir,
    identity: Identity,
    limits: Limits,
    /// Number of the next segment.
    next: u64,
    /// How many segments their headers filled.
    n_crowded: u32,
    open: Option<Open>,
    bytes_written: u64,
    /// Bytes of all headers' rooms.
    rooms: u64,
    sealed: u64,
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
        Self {
            dir,
            identity,
            limits,
            next: 0,
            n_crowded: 0,
            open: None,
            bytes_written: 0,
            rooms: 0,
            sealed: 0,
        }
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
            entry.offset = open.data_end();
            if open.has(&entry) {
                return Err(WriteError::Twice {
                    tap: record.tap.clone(),
                    step: record.step,
                    call: record.call,
                });
            }
            if open.is_full(&entry, self.limits) {
                self.n_crowded = self.n_crowded.saturating_add(u32::from(!open.has_room(&entry)));
                self.seal()?;
                entry.offset = 0;
            }
        }
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let room = self.room_for(&entry)?;
                let open = Open::create(&self.dir, &self.identity, &mut self.next, room)?;
                self.rooms += room;
                self.open.insert(open)
            }
        };
        open.begin(entry);
        Ok(())
    }

    /// Appends bytes to the record. On an error the record is abandoned.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), WriteError> {
        self.open.as_mut().ok_or(WriteError::NoRecord)?.append(bytes)
    }

    /// Ends the record: once this returns it is readable, whatever becomes of the process. On an error the record is
    /// abandoned.
    pub fn finish(&mut self) -> Result<(), WriteError> {
        self.bytes_written += self.open.as_mut().ok_or(WriteError::NoRecord)?.finish()?;
        Ok(())
    }

    /// Gives up the record that was begun: the segment ends where it began. Nothing happens where none was.
    pub fn abandon(&mut self) -> Result<(), WriteError> {
        self.open.as_mut().map_or(Ok(()), Open::abandon)
    }

    /// When the open segment is due to be sealed; `None` where it has no record.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        Some(self.open.as_ref()?.since()? + self.limits.age)
    }

    /// Seals the open segment: a record that was begun and not finished is abandoned. Nothing happens where none is
    /// open. On an error what was written stays, readable through its journal, and the next record begins another
    /// segment.
    pub fn seal(&mut self) -> Result<(), WriteError> {
        if let Some(open) = self.open.take() {
            self.sealed += u64::from(open.seal()?);
        }
        Ok(())
    }

    /// Bytes of all whole records.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.bytes_written
    }

    /// Bytes that headers take, or have reserved, beside those of the records.
    #[must_use]
    pub fn header_bytes(&self) -> u64 {
        self.rooms
    }

    /// Segments that were begun: their numbers are below.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.next
    }

    /// Segments that were sealed.
    #[must_use]
    pub fn segments(&self) -> u64 {
        self.sealed
    }

    /// The next segment's room: doubled with each that was too small, and further where this record needs it. Not with
    /// every segment, as a capture that writes little seals one every few seconds, and their rooms would be most of it.
    fn room_for(&self, entry: &Stored) -> Result<u64, WriteError> {
        let needed = HeaderText::new(&self.identity, self.next, 0).length_with(entry);
        let Limits { first_room, last_room: limit, .. } = self.limits;
        let mut room =
            2u64.checked_pow(self.n_crowded).map_or(limit, |n| first_room.saturating_mul(n)).min(limit);
        while room < needed && room < limit {
            room = room.saturating_mul(2).min(limit);
        }
        if room < needed {
            return Err(WriteError::Entry { tap: entry.record.tap.clone(), limit, needed });
        }
        Ok(room)
    }
}
