//! One file of a run, opened so that nothing in its place can block or mislead, and read with or without mapping it.

#![expect(unsafe_code, reason = "mapping a file")]

use memmap2::Mmap;
use std::{
    borrow::Cow,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// How the bytes of a run are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Files are mapped: fast, but a file that another program truncates meanwhile ends this one with SIGBUS, and
    /// so may a network file system.
    Mapped,
    /// Files are read: each access copies.
    Unmapped,
}

/// A file, or a part of it, that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{reason}: {}", file.display())]
pub struct FileError {
    /// Which file.
    #[serde(serialize_with = "path_as_text")]
    pub file: PathBuf,
    /// Why, in words.
    pub reason: String,
}

/// For `#[serde(serialize_with)]`: a path as JSON can hold it. Bytes that are no UTF-8, which serde refuses, are replaced.
pub fn path_as_text<S: serde::Serializer>(path: &impl AsRef<Path>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.as_ref().display())
}

pub(crate) fn file_error(file: &Path, reason: &dyn ToString) -> FileError {
    FileError { file: file.to_owned(), reason: reason.to_string() }
}

/// A file whose length was checked, kept without a descriptor, since a run may have thousands.
#[derive(Debug)]
pub(crate) struct Source {
    path: PathBuf,
    /// The name it bears once it is sealed, where it was not when it was opened.
    sealed_as: Option<PathBuf>,
    /// Where it lies on this machine; `None` where it does not.
    device_and_inode: Option<(u64, u64)>,
    map: Option<Mmap>,
}

/// Opens a regular file for reading. A symlink is not followed, a FIFO not waited for, a device not touched.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let regular = |kind: fs::FileType| {
        let what = match kind {
            k if k.is_file() => return Ok(()),
            k if k.is_dir() => "a directory",
            k if k.is_symlink() => "a symbolic link",
            _ => "no regular file",
        };
        Err(io::Error::other(format!("expected a regular file, found {what}")))
    };
    regular(fs::symlink_metadata(path)?.file_type())?;
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // Again, as another file may have taken its place.
    regular(file.metadata()?.file_type())?;
    Ok(file)
}

impl Source {
    pub(crate) fn new(
        file: &File,
        path: PathBuf,
        sealed_as: Option<PathBuf>,
        access: Access,
    ) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let map = match access {
            Access::Unmapped => None,
            // SAFETY: the file is only read, and its bytes are used as plain numbers, so that one who changes them
            // meanwhile changes what is computed and no more. Who truncates it ends the process: documented at
            // `Access`. Where it cannot be mapped (too many maps, file systems without), it is read.
            Access::Mapped => unsafe { Mmap::map(file) }.ok(),
        };
        let device_and_inode = Some((metadata.dev(), metadata.ino()));
        Ok(Self { path, sealed_as, device_and_inode, map })
    }

    /// A file of another machine, or one that is gone.
    pub(crate) fn away(path: PathBuf, sealed_as: Option<PathBuf>) -> Self {
        Self { path, sealed_as, device_and_inode: None, map: None }
    }

    /// Opens a file of this machine by the names it had when another process listed it.
    pub(crate) fn again(path: &Path, sealed_as: Option<&Path>, access: Access) -> io::Result<Self> {
        let file = match (open_regular(path), sealed_as) {
            (Err(e), Some(sealed)) if e.kind() == ErrorKind::NotFound => open_regular(sealed)?,
            (opened, _) => opened?,
        };
        Self::new(&file, path.to_owned(), sealed_as.map(Path::to_owned), access)
    }

    pub(crate) fn sealed_as(&self) -> Option<&Path> {
        self.sealed_as.as_deref()
    }

    pub(crate) fn is_mapped(&self) -> bool {
        self.map.is_some()
    }

    pub(crate) fn is_away(&self) -> bool {
        self.device_and_inode.is_none()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes at `offset`, borrowed from the map or read.
    pub(crate) fn bytes(&self, offset: u64, length: u64) -> io::Result<Cow<'_, [u8]>> {
        let too_long = |_| io::Error::other(format!("{length} bytes do not fit this machine's memory"));
        let length = usize::try_from(length).map_err(too_long)?;
        if let Some(map) = &self.map {
            return mapped(map, offset, length).map(Cow::Borrowed);
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(length).map_err(|_| ErrorKind::OutOfMemory)?;
        bytes.resize(length, 0);
        self.read_at(offset, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    /// Fills `buf` with the bytes at `offset`.
    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if let Some(map) = &self.map {
            buf.copy_from_slice(mapped(map, offset, buf.len())?);
            return Ok(());
        }
        self.reopen()?.read_exact_at(buf, offset).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => io::Error::other("it was truncated since it was opened"),
            _ => e,
        })
    }

    fn reopen(&self) -> io::Result<File> {
        let file = match (open_regular(&self.path), &self.sealed_as) {
            (Err(e), Some(sealed)) if e.kind() == ErrorKind::NotFound => open_regular(sealed)?,
            (opened, _) => opened?,
        };
        let metadata = file.metadata()?;
        if Some((metadata.dev(), metadata.ino())) != self.device_and_inode {
            return Err(io::Error::other("another file took its place since it was opened"));
        }
        Ok(file)
    }
}

fn mapped(map: &Mmap, offset: u64, length: usize) -> io::Result<&[u8]> {
    let start = usize::try_from(offset).ok();
    let range = start.and_then(|start| Some(start..start.checked_add(length)?));
    range.and_then(|r| map.get(r)).ok_or_else(|| io::Error::other("bytes past the end of the map"))
}
