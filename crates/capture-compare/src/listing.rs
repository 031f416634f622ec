//! Where a run is: the files of a directory that are a run's, and the one run that a path means.

use capture_core::digested::SUFFIX;
use capture_core::segment::{JOURNAL, PARTIAL, SEALED};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// Why a path is no run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It does not exist, or the system refuses it.
    #[error("{source}: {}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It does not exist, and beside it there are runs.
    #[error("no such run; there are {}: {}", runs.join(", "), path.display())]
    NoSuch {
        /// The path.
        path: PathBuf,
        /// The names of the runs in its parent directory.
        runs: Vec<String>,
    },
    /// A file.
    #[error("expected a run directory, or a directory holding one run, found a file: {}", .0.display())]
    File(PathBuf),
    /// A directory with no run in it.
    #[error("expected a run directory, or a directory holding one run, found no run: {}", .0.display())]
    NoRun(PathBuf),
    /// A directory that is no checkpoint.
    #[error("expected a safetensors file, or a directory of them, found none: {}", .0.display())]
    NoCheckpoint(PathBuf),
    /// A directory with several runs in it.
    #[error("expected one run, found {}: {}", runs.join(", "), path.display())]
    Several {
        /// The directory.
        path: PathBuf,
        /// The runs' names.
        runs: Vec<String>,
    },
}

/// What a directory holds of a run.
#[derive(Default)]
pub(crate) struct Listing {
    /// Base names, and whether the sealed one was seen.
    pub(crate) segments: BTreeMap<OsString, bool>,
    pub(crate) manifests: Vec<OsString>,
    /// Files of records without bytes.
    pub(crate) digests: Vec<OsString>,
}

impl Listing {
    fn is_run(&self) -> bool {
        !(self.segments.is_empty() && self.manifests.is_empty() && self.digests.is_empty())
    }
}

/// Lists a directory by names alone.
pub(crate) fn list(dir: &Path) -> io::Result<Listing> {
    let mut files = Listing::default();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let name_bytes = name.as_bytes();
        let base = |suffix: &str| name_bytes.strip_suffix(suffix.as_bytes());
        let sealed = base(SEALED);
        if let Some(base) = sealed.or(base(PARTIAL)).or(base(JOURNAL)) {
            *files.segments.entry(OsString::from_vec(base.to_vec())).or_default() |= sealed.is_some();
        } else if name_bytes.starts_with(b"rank") && name_bytes.ends_with(b".json") {
            files.manifests.push(name);
        } else if name_bytes.starts_with(b"rank") && name_bytes.ends_with(SUFFIX.as_bytes()) {
            files.digests.push(name);
        }
    }
    files.manifests.sort();
    files.digests.sort();
    Ok(files)
}

/// The run directory that `path` means: itself, or the only one in it.
///
/// # Errors
/// Where it means none.
pub fn locate(path: &Path) -> Result<PathBuf, OpenError> {
    let io = |source| OpenError::Io { path: path.to_owned(), source };
    let metadata = fs::metadata(path).map_err(|error| {
        // A parent that cannot be read adds nothing to the error.
        let beside = path.parent().and_then(|parent| runs_in(parent).ok()).filter(|runs| !runs.is_empty());
        match beside {
            Some(runs) if error.kind() == io::ErrorKind::NotFound => {
                OpenError::NoSuch { path: path.to_owned(), runs: names(&runs) }
            }
            _ => io(error),
        }
    })?;
    if !metadata.is_dir() {
        return Err(OpenError::File(path.to_owned()));
    }
    if list(path).map_err(io)?.is_run() {
        return Ok(path.to_owned());
    }
    let runs = runs_in(path).map_err(io)?;
    match runs.as_slice() {
        [] => Err(OpenError::NoRun(path.to_owned())),
        [one] => Ok(path.join(one)),
        several => Err(OpenError::Several { path: path.to_owned(), runs: names(several) }),
    }
}

/// The names of the runs in a directory; the empty path is the current one.
fn runs_in(dir: &Path) -> io::Result<Vec<OsString>> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    let mut runs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        // What cannot be listed is no run that could be opened.
        if entry.file_type().is_ok_and(|t| t.is_dir()) && list(&entry.path()).is_ok_and(|l| l.is_run()) {
            runs.push(entry.file_name());
        }
    }
    runs.sort();
    Ok(runs)
}

fn names(runs: &[OsString]) -> Vec<String> {
    runs.iter().map(|run| run.to_string_lossy().into_owned()).collect()
}
