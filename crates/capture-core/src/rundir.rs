//! The run directory, held open: files in it are made, renamed and deleted relative to its descriptor, so that whoever
//! moves or replaces a path cannot lead them elsewhere.

use crate::name::{MAX_RUN_NAME, is_run_name};
use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, fstatvfs, fsync, mkdirat, openat, renameat, statat, unlinkat},
    io::Errno,
};
use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

/// A run directory that exists and is open.
#[derive(Debug, Clone)]
pub struct RunDir {
    fd: Arc<OwnedFd>,
    path: PathBuf,
}

/// Space on the file system of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes that this user may still write.
    pub available: u64,
    /// Bytes of the file system.
    pub total: u64,
}

/// Why there is no run directory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunDirError {
    /// The name is no run name.
    #[error(
        "expected a run name of letters, digits, \".\", \"_\" and \"-\", not beginning with \".\", at most \
         {MAX_RUN_NAME} bytes, found {0:?}"
    )]
    Name(String),
    /// Something else bears the name, or the run's is a symbolic link.
    #[error("expected a directory, for a run no symbolic link to one, found something else: {}", .0.display())]
    NoDirectory(PathBuf),
    /// The system refuses.
    #[error("{source}: {}", path.display())]
    Io {
        /// Which path.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

impl RunDir {
    /// Makes `dir/run`, readable by its owner alone since captures hold what users typed, and what of `dir` is missing
    /// as the umask says. A run directory that exists is another rank's and as good.
    pub fn create(dir: &Path, run: &str) -> Result<Self, RunDirError> {
        if !is_run_name(run) {
            return Err(RunDirError::Name(run.to_owned()));
        }
        let path = dir.join(run);
        let io = |path: &Path, source| RunDirError::Io { path: path.to_owned(), source };
        if let Err(error) = fs::create_dir_all(dir) {
            // Of something else that bears the name the system says that it exists.
            let is_else = dir.exists() && !dir.is_dir();
            return Err(if is_else { RunDirError::NoDirectory(dir.to_owned()) } else { io(dir, error) });
        }
        let parent = File::open(dir).map_err(|e| io(dir, e))?;
        match mkdirat(&parent, run, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(e) => return Err(io(&path, e.into())),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&parent, run, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { fd: Arc::new(fd), path }),
            Err(Errno::LOOP | Errno::NOTDIR) => Err(RunDirError::NoDirectory(path)),
            Err(e) => Err(io(&path, e.into())),
        }
    }

    /// The directory at that path, which [`create`](Self::create) made.
    ///
    /// # Errors
    /// What the system says, also of a symbolic link.
    pub fn reopen(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { fd: Arc::new(fd), path: path.to_owned() })
    }

    /// The path it was made under.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether any file's name begins so. A directory that cannot be listed has none.
    #[must_use]
    pub fn holds(&self, prefix: &str) -> bool {
        let begins = |entry: io::Result<std::fs::DirEntry>| {
            entry.is_ok_and(|entry| entry.file_name().as_encoded_bytes().starts_with(prefix.as_bytes()))
        };
        std::fs::read_dir(&self.path).is_ok_and(|mut entries| entries.any(begins))
    }

    /// Free space.
    pub fn space(&self) -> io::Result<Space> {
        let stat = fstatvfs(self.fd.as_fd())?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Space { available: bytes(stat.f_bavail), total: bytes(stat.f_blocks) })
    }

    /// A new file for reading and writing; fails where anything of that name exists, a dangling link included.
    pub(crate) fn create_new(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Less what the umask takes away.
        let mode = Mode::from_raw_mode(0o666);
        Ok(openat(self.fd.as_fd(), name, flags, mode)?.into())
    }

    /// A file that exists, for reading and writing; neither through a link nor waiting for whoever holds a FIFO.
    pub(crate) fn open_existing(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(openat(self.fd.as_fd(), name, flags, Mode::empty())?.into())
    }

    /// Whether anything of that name exists.
    pub(crate) fn has(&self, name: &str) -> io::Result<bool> {
        match statat(self.fd.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Names of all files, sorted; those that are no UTF-8 are none of ours.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(self.fd.as_fd())? {
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        names.sort();
        Ok(names)
    }

    /// Has the disk know the names.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(fsync(self.fd.as_fd())?)
    }

    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(self.fd.as_fd(), from, self.fd.as_fd(), to)?)
    }

    /// Deletes a file that this process made.
    pub(crate) fn delete(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(self.fd.as_fd(), name, AtFlags::empty())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    #[test]
    fn run_names_are_one_component() {
        for good in ["run-1", "a", "vllm-x_2.3"] {
            assert!(is_run_name(good), "{good}");
        }
        for bad in ["", ".", "..", ".x", "a/b", "a b", "ü", &"x".repeat(201)] {
            assert!(!is_run_name(bad), "{bad}");
            assert!(matches!(RunDir::create(Path::new("/nowhere"), bad), Err(RunDirError::Name(_))));
        }
    }

    #[test]
    fn the_run_is_its_owners_and_may_exist() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(&dir.path().join("a/b"), "run-1").unwrap();
        assert_eq!(run.path(), dir.path().join("a/b/run-1"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(run.path()), 0o700);
        RunDir::create(&dir.path().join("a/b"), "run-1").unwrap();
        let space = run.space().unwrap();
        assert!(0 < space.available && space.available <= space.total);
    }

    #[test]
    fn what_is_no_directory_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("target")).unwrap();
        symlink(dir.path().join("target"), dir.path().join("link")).unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        for name in ["link", "file"] {
            let error = RunDir::create(dir.path(), name).unwrap_err();
            assert!(matches!(error, RunDirError::NoDirectory(_)), "{error}");
        }
        let error = RunDir::create(&dir.path().join("file"), "run").unwrap_err();
        assert!(matches!(error, RunDirError::NoDirectory(_)), "{error}");
        let error = RunDir::create(&dir.path().join("file/below"), "run").unwrap_err();
        assert!(matches!(error, RunDirError::Io { .. }), "{error}");
    }

    #[test]
    fn files_are_new_or_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::create(dir.path(), "run").unwrap();
        let ino = run.create_new("x").unwrap().metadata().unwrap().ino();
        symlink("/nowhere", run.path().join("link")).unwrap();
        for name in ["x", "link"] {
            assert_eq!(run.create_new(name).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        }
        run.rename("x", "y").unwrap();
        assert_eq!(fs::metadata(run.path().join("y")).unwrap().ino(), ino);
        run.delete("y").unwrap();
        assert_eq!(run.delete("y").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
