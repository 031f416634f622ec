//! A run as it lies on disk: all records of all processes, from sealed segments and from what is still being written
//! or was left by a killed process. What cannot be read is listed by file and reason, and the rest is read.

use crate::{
    data::{Data, Pieces, Unread},
    listing::{list, locate},
    segment::{self, Segment},
    source::{Source, file_error, open_regular},
};
use capture_core::{Digested, Dtype, Identity, Manifest, Record, Stored, digested};
use serde::{Deserialize, Serialize};
use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    ffi::OsStr,
    path::{Path, PathBuf},
};

mod catalogue;
mod checkpoint;

pub use crate::{
    listing::OpenError,
    source::{Access, FileError},
};
pub use catalogue::{Catalogue, Key};

/// A run directory, read.
#[derive(Debug)]
pub struct Run {
    /// The run directory.
    pub path: PathBuf,
    /// Who wrote it, by rank; unknown ranks last.
    pub processes: Vec<Process>,
    /// All records, by process and within it in the order of capture.
    pub entries: Vec<Entry>,
    /// Records of which only statistics or a hash were kept, in the same order.
    pub digests: Vec<Kept>,
    /// What could not be read.
    pub errors: Vec<FileError>,
    sources: Vec<Source>,
    pieces: Pieces,
    away: catalogue::Away,
}

/// A process that wrote into the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Process {
    /// Run, rank, world, mesh and process.
    pub identity: Identity,
    /// Its manifest, where there is one that can be read.
    pub manifest: Option<Manifest>,
}

/// A record and where it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// What is known of it.
    pub record: Record,
    /// How its elements are stored.
    pub dtype: Dtype,
    /// Stored shape.
    pub shape: Vec<u64>,
    /// Index into [`Run::processes`].
    pub process: usize,
    source: usize,
    offset: u64,
    length: u64,
}

/// A record of which only statistics or a hash were kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// What is known of it, and what was kept.
    pub digested: Digested,
    /// Index into [`Run::processes`].
    pub process: usize,
}

impl Entry {
    /// Where its bytes begin in their file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Bytes of the record.
    #[must_use]
    pub fn n_bytes(&self) -> u64 {
        self.length
    }

    /// Stored elements: the product of the shape.
    #[must_use]
    pub fn numel(&self) -> u64 {
        self.shape.iter().product()
    }
}

impl Run {
    /// Opens a run directory, or a directory that holds exactly one. A run that is still being written is read as far
    /// as it is written now.
    pub fn open(path: &Path, access: Access) -> Result<Self, OpenError> {
        let path = locate(path)?;
        let files = list(&path).map_err(|source| OpenError::Io { path: path.clone(), source })?;
        let mut reading = Reading::of(path, access);
        for (base, is_sealed) in &files.segments {
            reading.segment(base, *is_sealed);
        }
        for name in &files.digests {
            reading.digests(name);
        }
        for manifest in files.manifests {
            reading.manifest(&manifest);
        }
        Ok(reading.finish())
    }

    /// The bytes of a record, borrowed where the file is mapped. They may begin at any address.
    pub fn bytes(&self, entry: &Entry) -> Result<Cow<'_, [u8]>, FileError> {
        let source = &self.sources[entry.source];
        if source.is_away() {
            return self.away.bytes((entry.source, entry.offset), source.path()).map(Cow::Borrowed);
        }
        source.bytes(entry.offset, entry.length).map_err(|e| file_error(source.path(), &e))
    }

    /// The same, read where they are looked at if the file is not mapped.
    pub(crate) fn data(&self, entry: &Entry) -> Result<Data<'_>, FileError> {
        let source = &self.sources[entry.source];
        if source.is_mapped() || source.is_away() {
            return self.bytes(entry).map(Data::Held);
        }
        let record = (entry.offset, entry.length);
        Unread::new(&self.pieces, (entry.source, source), record).map(Data::Unread)
    }

    /// What failed while records were looked at, if it was a file of the processes that wrote these: their other taps
    /// may have had a part in what became of them.
    pub(crate) fn failure(&self, entries: &[usize]) -> Option<FileError> {
        let process = |number: usize| self.entries.iter().find(|e| e.source == number).map(|e| e.process);
        self.pieces.failed().into_iter().find_map(|(number, error)| {
            let of = process(number)?;
            entries.iter().any(|e| self.entries[*e].process == of).then_some(error)
        })
    }

    /// Fills `buf` with a record's bytes from its byte `offset` on.
    pub fn read_at(&self, entry: &Entry, offset: u64, buf: &mut [u8]) -> Result<(), FileError> {
        let source = &self.sources[entry.source];
        let end = offset.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > entry.length) {
            let reason = format!("bytes {offset} and {} more of a record of {}", buf.len(), entry.length);
            return Err(file_error(source.path(), &reason));
        }
        source.read_at(entry.offset + offset, buf).map_err(|e| file_error(source.path(), &e))
    }

    /// Hands over a record's bytes in pieces of `n_bytes`, the last one shorter.
    pub fn for_each_chunk(
        &self,
        entry: &Entry,
        n_bytes: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Result<(), FileError> {
        let source = &self.sources[entry.source];
        let mut offset = 0;
        while offset < entry.length {
            let n = (entry.length - offset).min(n_bytes.max(1) as u64);
            let bytes = source.bytes(entry.offset + offset, n);
            take(&bytes.map_err(|e| file_error(source.path(), &e))?);
            offset += n;
        }
        Ok(())
    }

    /// The CRC-32 of a record's bytes as they are now, to be held against that of its record.
    pub fn checksum(&self, entry: &Entry) -> Result<u32, FileError> {
        let mut crc = crc32fast::Hasher::new();
        self.for_each_chunk(entry, 1 << 20, |bytes| crc.update(bytes))?;
        Ok(crc.finalize())
    }

    /// The file a record is in, as it was called when the run was opened.
    #[must_use]
    pub fn file(&self, entry: &Entry) -> &Path {
        self.sources[entry.source].path()
    }
}

/// A run while its files are read.
struct Reading {
    dir: PathBuf,
    access: Access,
    processes: Vec<Process>,
    by_id: HashMap<String, usize>,
    entries: Vec<Entry>,
    digests: Vec<Kept>,
    errors: Vec<FileError>,
    sources: Vec<Source>,
}

impl Reading {
    fn of(dir: PathBuf, access: Access) -> Self {
        Self {
            dir,
            access,
            processes: Vec::new(),
            by_id: HashMap::new(),
            entries: Vec::new(),
            digests: Vec::new(),
            errors: Vec::new(),
            sources: Vec::new(),
        }
    }

    fn segment(&mut self, base: &OsStr, is_sealed: bool) {
        let Some(segment) = segment::read(&self.dir, base, is_sealed, self.access, &mut self.errors) else {
            return;
        };
        let Segment { identity, source, data_start, entries } = segment;
        let Some(process) = self.process(identity, source.path()) else { return };
        let source_index = self.sources.len();
        self.sources.push(source);
        self.entries.extend(entries.into_iter().map(|Stored { record, dtype, shape, offset, length }| {
            Entry {
                record,
                dtype,
                shape,
                process,
                source: source_index,
                // Both were checked against the file's length.
                offset: data_start + offset,
                length,
            }
        }));
    }

    /// Records without bytes. What makes no sense of them is listed, one line for the file.
    fn digests(&mut self, name: &OsStr) {
        let path = self.dir.join(name);
        let read = || {
            let file = open_regular(&path).map_err(|e| e.to_string())?;
            let length = file.metadata().map_err(|e| e.to_string())?.len();
            let source = Source::new(&file, path.clone(), None, self.access).map_err(|e| e.to_string())?;
            let bytes = source.bytes(0, length).map_err(|e| e.to_string())?;
            digested::decode(&bytes).map_err(|e| e.to_string())
        };
        let (identity, records, broken) = match read() {
            Ok(Some(read)) => read,
            // Its process has just begun the file, or died then: nothing is lost.
            Ok(None) => return,
            Err(reason) => return self.errors.push(FileError { file: path, reason }),
        };
        if let Some(first) = broken.first() {
            let more =
                if broken.len() > 1 { format!("; {} more lines", broken.len() - 1) } else { String::new() };
            self.errors.push(file_error(&path, &format!("{first}{more}")));
        }
        let Some(process) = self.process(identity, &path) else { return };
        self.digests.extend(records.into_iter().map(|digested| Kept { digested, process }));
    }

    fn manifest(&mut self, name: &OsStr) {
        let path = self.dir.join(name);
        let read = segment::read_whole(&path).map_err(|e| e.to_string());
        let parsed = read.and_then(|json| Manifest::parse(&json).map_err(|e| e.to_string()));
        match parsed {
            Ok(manifest) => {
                if let Some(process) = self.process(manifest.identity(), &path) {
                    self.processes[process].manifest = Some(manifest);
                }
            }
            Err(reason) => self.errors.push(FileError { file: path, reason }),
        }
    }

    /// The process of that identity; `None` if its id is already another's.
    fn process(&mut self, identity: Identity, file: &Path) -> Option<usize> {
        let known = *self.by_id.entry(identity.process.clone()).or_insert(self.processes.len());
        match self.processes.get(known) {
            None => self.processes.push(Process { identity, manifest: None }),
            Some(process) if process.identity == identity => {}
            Some(process) => {
                let stem = process.identity.stem();
                let reason =
                    format!("expected the run, rank and mesh of {stem:?}'s other files, found others");
                self.errors.push(file_error(file, &reason));
                return None;
            }
        }
        Some(known)
    }

    fn finish(mut self) -> Run {
        let mut order: Vec<usize> = (0..self.processes.len()).collect();
        order.sort_by_key(|i| {
            let Identity { rank, process, .. } = &self.processes[*i].identity;
            (rank.is_none(), *rank, process.clone())
        });
        let mut place = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            place[*old] = new;
        }
        for entry in &mut self.entries {
            entry.process = place[entry.process];
        }
        for kept in &mut self.digests {
            kept.process = place[kept.process];
        }
        let mut processes: Vec<_> = std::mem::take(&mut self.processes).into_iter().zip(place).collect();
        processes.sort_by_key(|(_, place)| *place);

        // Sorting keeps the order of segments where hostile files repeat a seq.
        self.entries.sort_by_key(|e| (e.process, e.record.seq));
        let twice = twice(&self.entries);
        for i in &twice {
            let Entry { record, source, .. } = &self.entries[*i];
            let reason = format!(
                "tap {:?}, step {}, call {} stands twice for this process",
                record.tap, record.step, record.call
            );
            self.errors.push(file_error(self.sources[*source].path(), &reason));
        }
        let mut index = 0..;
        self.entries.retain(|_| !index.next().is_some_and(|i| twice.contains(&i)));
        self.keep_one_of_each();
        let processes = processes.into_iter().map(|(process, _)| process).collect();
        let Self { dir: path, entries, digests, errors, sources, .. } = self;
        let (pieces, away) = Default::default();
        Run { path, processes, entries, digests, errors, sources, pieces, away }
    }

    /// Leaves out digests of what was captured in full, or stands there before, by the same process.
    fn keep_one_of_each(&mut self) {
        self.digests.sort_by_key(|kept| (kept.process, kept.digested.record.seq));
        let key = |process: usize, record: &Record| (process, record.step, record.call, record.tap.clone());
        let mut seen: HashSet<_> = self.entries.iter().map(|e| key(e.process, &e.record)).collect();
        let before = self.digests.len();
        self.digests.retain(|kept| seen.insert(key(kept.process, &kept.digested.record)));
        let twice = before - self.digests.len();
        if twice > 0 {
            let reason = format!("{twice} records of mode stats or hash stand twice for their process");
            self.errors.push(file_error(&self.dir, &reason));
        }
    }
}

/// The entries whose tap, step and call their process already has.
fn twice(entries: &[Entry]) -> HashSet<usize> {
    let mut seen = HashSet::with_capacity(entries.len());
    let key = |e: &'_ Entry| (e.process, e.record.step, e.record.call);
    entries
        .iter()
        .enumerate()
        .filter(|(_, e)| !seen.insert((key(e), e.record.tap.as_str())))
        .map(|(i, _)| i)
        .collect()
}
