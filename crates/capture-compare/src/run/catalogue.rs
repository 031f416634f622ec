//! A run without its bytes, for where its files are not: the ranks of several machines write into a directory of each,
//! and a comparison that is spread over them knows the whole run everywhere, but reads on each what lies there. Records of
//! other machines are handed over; those that turn out to be missing are remembered, so that they can be.

use super::{Entry, FileError, Kept, Process, Reading, Run, checkpoint};
use crate::data::Pieces;
use crate::source::{Access, Source, file_error};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Names a record of a run everywhere: its file, and its first byte there.
pub type Key = (usize, u64);

/// All of a run that its headers, journals and manifests say.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Catalogue {
    path: PathBuf,
    processes: Vec<Process>,
    entries: Vec<Entry>,
    digests: Vec<Kept>,
    errors: Vec<FileError>,
    files: Vec<CataloguedFile>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct CataloguedFile {
    path: PathBuf,
    sealed_as: Option<PathBuf>,
    /// Machines that have it: several where they share a file system.
    nodes: BTreeSet<usize>,
}

/// What was handed over of files that are not here, and what was asked for in vain.
#[derive(Debug, Default)]
pub(super) struct Away {
    held: HashMap<Key, Vec<u8>>,
    wanted: Mutex<BTreeSet<Key>>,
}

impl Away {
    pub(super) fn bytes(&self, key: Key, file: &Path) -> Result<&[u8], FileError> {
        if let Some(bytes) = self.held.get(&key) {
            return Ok(bytes);
        }
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        Err(file_error(file, &"it is on another machine"))
    }
}

impl Entry {
    /// Names it everywhere.
    #[must_use]
    pub fn key(&self) -> Key {
        (self.source, self.offset)
    }
}

impl Catalogue {
    /// A run as the machine of that number has it.
    #[must_use]
    pub fn of(run: &Run, node: usize) -> Self {
        let file = |source: &Source| CataloguedFile {
            path: source.path().to_owned(),
            sealed_as: source.sealed_as().map(Path::to_owned),
            nodes: BTreeSet::from([node]),
        };
        Self {
            path: run.path.clone(),
            processes: run.processes.clone(),
            entries: run.entries.clone(),
            digests: run.digests.clone(),
            errors: run.errors.clone(),
            files: run.sources.iter().map(file).collect(),
        }
    }

    /// One run of what several machines have of it; `None` where none has any. A process writes on one machine: whichever
    /// others see a file of that name share its file system.
    #[must_use]
    pub fn merged(all: Vec<Self>) -> Option<Self> {
        let mut reading = Reading::of(all.first()?.path.clone(), Access::Unmapped);
        let mut files: Vec<CataloguedFile> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        let mut kept_seqs = HashSet::new();
        for catalogue in all {
            let mut place = Vec::with_capacity(catalogue.files.len());
            for file in catalogue.files {
                if let Some(at) = known.get(base(&file.path)) {
                    files[*at].nodes.extend(file.nodes);
                    place.push(None);
                    continue;
                }
                known.insert(base(&file.path).to_owned(), files.len());
                place.push(Some(files.len()));
                reading.sources.push(Source::away(file.path.clone(), file.sealed_as.clone()));
                files.push(file);
            }
            let mut processes = Vec::with_capacity(catalogue.processes.len());
            for process in catalogue.processes {
                let at = reading.process(process.identity, &catalogue.path);
                if let (Some(at), Some(manifest)) = (at, process.manifest) {
                    reading.processes[at].manifest.get_or_insert(manifest);
                }
                processes.push(at);
            }
            for mut entry in catalogue.entries {
                if let (Some(Some(source)), Some(Some(process))) =
                    (place.get(entry.source), processes.get(entry.process))
                {
                    (entry.source, entry.process) = (*source, *process);
                    reading.entries.push(entry);
                }
            }
            for mut kept in catalogue.digests {
                let Some(Some(process)) = processes.get(kept.process) else { continue };
                kept.process = *process;
                // Machines that share a file system see the same.
                if kept_seqs.insert((*process, kept.digested.record.seq)) {
                    reading.digests.push(kept);
                }
            }
            for error in catalogue.errors {
                if !reading.errors.contains(&error) {
                    reading.errors.push(error);
                }
            }
        }
        let Run { path, processes, entries, digests, errors, .. } = reading.finish();
        Some(Self { path, processes, entries, digests, errors, files })
    }

    /// The run directory, on the first machine that has it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// One checkpoint of what several machines have of it, with its tensors in one order: each machine counted its own.
    #[must_use]
    pub fn merged_checkpoint(all: Vec<Self>) -> Option<Self> {
        let mut merged = Self::merged(all)?;
        checkpoint::number(&mut merged.entries);
        Some(merged)
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) fn entries_mut(&mut self) -> &mut Vec<Entry> {
        &mut self.entries
    }

    /// The machines that have a record.
    #[must_use]
    pub fn nodes(&self, key: Key) -> &BTreeSet<usize> {
        static NONE: BTreeSet<usize> = BTreeSet::new();
        self.files.get(key.0).map_or(&NONE, |file| &file.nodes)
    }

    /// The run as it is on a machine: what lies there is read, the rest only as far as it is handed over.
    #[must_use]
    pub fn open(&self, node: Option<usize>, access: Access, held: HashMap<Key, Vec<u8>>) -> Run {
        let source = |file: &CataloguedFile| {
            let is_here = node.is_some_and(|node| file.nodes.contains(&node));
            let here = is_here.then(|| Source::again(&file.path, file.sealed_as.as_deref(), access));
            // What cannot be opened any more is wanted, and fetched in vain: so it is said of the record.
            here.and_then(Result::ok)
                .unwrap_or_else(|| Source::away(file.path.clone(), file.sealed_as.clone()))
        };
        Run {
            path: self.path.clone(),
            processes: self.processes.clone(),
            entries: self.entries.clone(),
            digests: self.digests.clone(),
            errors: self.errors.clone(),
            sources: self.files.iter().map(source).collect(),
            pieces: Pieces::default(),
            away: Away { held, wanted: Mutex::default() },
        }
    }
}

impl Run {
    /// Takes in the bytes of a record of another machine.
    pub(crate) fn hold(&mut self, key: Key, bytes: Vec<u8>) {
        self.away.held.insert(key, bytes);
    }

    /// The records that were asked for since the last time, and are neither here nor handed over.
    #[must_use]
    pub fn take_wanted(&self) -> BTreeSet<Key> {
        std::mem::take(&mut self.away.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A segment's name without what tells whether it is sealed.
fn base(path: &Path) -> &str {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split(".safetensors").next().unwrap_or(name)
}
