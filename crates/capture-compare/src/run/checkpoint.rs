//! A checkpoint as a run: the tensors of its safetensors files under their own names, as if one process of one rank had
//! captured them in step 0.

use super::{Entry, OpenError, Process, Run};
use crate::{
    segment,
    source::{Access, FileError, Source, file_error, open_regular},
};
use capture_core::{Identity, Mesh, Record, header};
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    io::{self, Read},
    path::{Component, Path, PathBuf},
};

/// What a file holds, by name.
type Tensors = Vec<(String, TensorInfo)>;

/// Which of a directory's files are the checkpoint's, where it says so.
const INDEX: &str = "model.safetensors.index.json";

#[derive(Deserialize)]
struct Index {
    /// Files by tensor.
    weight_map: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Header {
    #[serde(rename = "__metadata__")]
    metadata: Option<HashMap<String, String>>,
    #[serde(flatten)]
    tensors: BTreeMap<String, TensorInfo>,
}

impl Run {
    /// Opens a checkpoint: a safetensors file, or a directory of them. Only headers are read; of a directory that has an
    /// index, the files that it names.
    ///
    /// # Errors
    /// There is no such file or directory, or no safetensors file in it. A file that cannot be read is one of
    /// [`Run::errors`].
    pub fn checkpoint(path: &Path, access: Access) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { path: path.to_owned(), source };
        let mut errors = Vec::new();
        let files = match fs::metadata(path).map_err(io)?.is_dir() {
            false => vec![path.to_owned()],
            true => match indexed(path, &mut errors) {
                Some(files) => files,
                None => listed(path).map_err(io)?,
            },
        };
        if files.is_empty() && errors.is_empty() {
            return Err(OpenError::NoCheckpoint(path.to_owned()));
        }
        let (mut tensors, mut sources) = (Vec::new(), Vec::new());
        for file in files {
            match read(&file, access) {
                Ok((source, data_start, found)) => {
                    tensors.extend(
                        found.into_iter().map(|(name, info)| (name, info, sources.len(), data_start)),
                    );
                    sources.push(source);
                }
                Err(reason) => errors.push(FileError { file, reason }),
            }
        }
        tensors.sort_by_cached_key(|(name, ..)| natural(name));
        let mut entries: Vec<Entry> = Vec::with_capacity(tensors.len());
        for (name, info, source, data_start) in tensors {
            if entries.last().is_some_and(|last| last.record.tap == name) {
                let reason = format!("tensor {name:?} is in another file of the checkpoint, too");
                errors.push(file_error(sources[source].path(), &reason));
                continue;
            }
            let (from, to) = info.data_offsets;
            entries.push(Entry {
                record: record(name, entries.len() as u64),
                dtype: info.dtype,
                shape: info.shape.iter().map(|d| *d as u64).collect(),
                process: 0,
                source,
                offset: data_start + from as u64,
                length: (to - from) as u64,
            });
        }
        let identity = Identity {
            run: "checkpoint".to_owned(),
            rank: Some(0),
            world: Some(1),
            mesh: Mesh::default(),
            process: "checkpoint".to_owned(),
        };
        let processes = vec![Process { identity, manifest: None }];
        let (pieces, away) = Default::default();
        Ok(Self {
            path: path.to_owned(),
            processes,
            entries,
            digests: Vec::new(),
            errors,
            sources,
            pieces,
            away,
        })
    }
}

fn record(tap: String, seq: u64) -> Record {
    Record {
        tap,
        step: 0,
        abs_step: 0,
        call: 0,
        seq,
        time_ns: 0,
        placement: None,
        rows: None,
        full_rows: None,
        strides: Vec::new(),
        device: String::new(),
        encoding: None,
        crc32: 0,
    }
}

/// Puts a checkpoint's tensors in the order of their names, with numbers by their value, and numbers them.
pub(super) fn number(entries: &mut [Entry]) {
    entries.sort_by_cached_key(|entry| natural(&entry.record.tap));
    for (seq, entry) in (0..).zip(entries) {
        entry.record.seq = seq;
    }
}

/// The files that the index names, where there is one. One that cannot be read is an error, and so is a name that leads
/// out of the directory.
fn indexed(dir: &Path, errors: &mut Vec<FileError>) -> Option<Vec<PathBuf>> {
    let path = dir.join(INDEX);
    path.symlink_metadata().ok()?;
    let json = path.canonicalize().and_then(|path| segment::read_whole(&path)).map_err(|e| e.to_string());
    let index = json.and_then(|json| serde_json::from_slice::<Index>(&json).map_err(|e| e.to_string()));
    let names: BTreeSet<String> = match index {
        Ok(index) => index.weight_map.into_values().collect(),
        Err(reason) => {
            errors.push(FileError { file: path, reason });
            return None;
        }
    };
    let mut files = Vec::new();
    for name in names {
        let mut parts = Path::new(&name).components();
        if matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            files.push(dir.join(name));
        } else {
            errors.push(file_error(&path, &format!("expected names of files beside it, found {name:?}")));
        }
    }
    Some(files)
}

/// The safetensors files of a directory.
fn listed(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// A file, where its data begins, and what is in it. Symbolic links are followed, since the caches of model hubs are
/// made of them.
fn read(path: &Path, access: Access) -> Result<(Source, u64, Tensors), String> {
    let text = |e: io::Error| e.to_string();
    let path = path.canonicalize().map_err(text)?;
    let mut file = open_regular(&path).map_err(text)?;
    let file_length = file.metadata().map_err(text)?.len();
    let mut first = [0; 8];
    file.read_exact(&mut first).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => header::HeaderError::Short(file_length).to_string(),
        _ => e.to_string(),
    })?;
    let length = header::json_length(first, file_length).map_err(|e| e.to_string())?;
    let mut json = Vec::new();
    (&file).take(length).read_to_end(&mut json).map_err(text)?;
    let json = std::str::from_utf8(&json).map_err(|e| e.to_string())?;
    let Header { metadata, tensors } = serde_json::from_str(json).map_err(|e| e.to_string())?;
    let mut tensors: Vec<(String, TensorInfo)> = tensors.into_iter().collect();
    // Of several that are wrong the same is named each time.
    tensors.sort_by_key(|(_, info)| info.data_offsets);
    let metadata = Metadata::new(metadata, tensors).map_err(|e| e.to_string())?;
    let data_start = 8 + length;
    let (expected, found) = (metadata.data_len() as u64, file_length - data_start);
    if expected != found {
        return Err(format!("expected {expected} bytes of tensors, found {found}"));
    }
    let tensors = metadata.tensors().into_iter().map(|(name, info)| (name, info.clone())).collect();
    Ok((Source::new(&file, path, None, access).map_err(text)?, data_start, tensors))
}

/// The name in pieces of digits and others, so that layer 10 comes after layer 9.
fn natural(name: &str) -> Vec<(Option<u64>, String)> {
    let mut pieces: Vec<(Option<u64>, String)> = Vec::new();
    for c in name.chars() {
        match pieces.last_mut() {
            Some((_, last)) if last.ends_with(|l: char| l.is_ascii_digit() == c.is_ascii_digit()) => {
                last.push(c);
            }
            _ => pieces.push((None, c.to_string())),
        }
    }
    // A number too large to be one is ordered as text.
    for (number, text) in &mut pieces {
        *number = text.parse().ok();
    }
    pieces
}
