//! The page of another process, for a command that looks at it and switches it.

use super::bell::ON;
use super::block::{TooLong, Torn};
use super::layout::{MAGIC, PAGE_BYTES, Page, TRAIT_EXPEDITED, VERSION};
use super::tap::{self, LastTap};
use crate::answer::Answer;
use crate::request::Request;
use rustix::fs::{FlockOperation, Mode, OFlags, SealFlags, fcntl_get_seals, flock, fstat, open};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a descriptor of a page links to in `/proc/PID/fd`.
pub const LINK: &str = "/memfd:tpcapture (deleted)";

/// A page, mapped. It stays what it is when its process ends.
#[derive(Debug)]
pub struct Other {
    page: NonNull<Page>,
    file: OwnedFd,
}

// SAFETY: the page is atomics, and the mapping lives as long as this.
unsafe impl Send for Other {}
// SAFETY: as above.
unsafe impl Sync for Other {}

/// Why a descriptor is no page that can be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtherError {
    /// The system refuses: another user's process, one that cannot be inspected, one that has ended.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Not a page, whatever its name.
    #[error("no control page: expected {expected}, found {found}")]
    NoPage {
        /// What a page has.
        expected: &'static str,
        /// What is there.
        found: String,
    },
    /// A page of a version that this one does not speak.
    #[error("control page of version {found}, expected {VERSION}: use the tpcapture that the process has")]
    Version {
        /// Its version.
        found: u32,
    },
}

/// Who holds a page's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holder {
    /// Process id, in its own namespace; 0 where it has not said so yet.
    pub pid: u32,
    /// User id, likewise.
    pub uid: u32,
    /// Since when, nanoseconds since 1970.
    pub since_ns: u64,
}

impl Other {
    /// Opens and maps the page behind a descriptor, `/proc/PID/fd/N`.
    ///
    /// # Errors
    /// Where it cannot be opened or is no page. One that could be cut short under a reader is none.
    pub fn open(path: &Path) -> Result<Self, OtherError> {
        let file = open(path, OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
            .map_err(io::Error::from)?;
        let no_page = |expected, found: String| OtherError::NoPage { expected, found };
        let size = fstat(&file).map_err(io::Error::from)?.st_size;
        if size != PAGE_BYTES as i64 {
            return Err(no_page("65536 bytes", size.to_string()));
        }
        // A file that knows no seals answers EINVAL.
        let seals = fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(no_page("seals against shrinking and growing", format!("{seals:?}")));
        }
        // SAFETY: a new mapping of a file that keeps its size, so that every address of it stays valid.
        let mapped = unsafe {
            let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            libc::mmap(std::ptr::null_mut(), PAGE_BYTES, access, flags, file.as_raw_fd(), 0)
        };
        let page = NonNull::new(mapped.cast()).filter(|_| mapped != libc::MAP_FAILED);
        let other = Self { page: page.ok_or_else(io::Error::last_os_error)?, file };
        let magic = other.page().magic().load(Relaxed);
        if magic != MAGIC {
            return Err(no_page("TPCAPTUR", format!("{:?}", String::from_utf8_lossy(&magic.to_le_bytes()))));
        }
        let found = other.page().identity().load(Relaxed) as u32;
        if found != VERSION {
            return Err(OtherError::Version { found });
        }
        Ok(other)
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped as long as this lives, of the page's size and at least as aligned as the atomics in it; any
        // bytes are a page.
        unsafe { self.page.as_ref() }
    }

    /// The process id that the page was made for, in the process's own namespace.
    #[must_use]
    pub fn pid(&self) -> u32 {
        (self.page().identity().load(Relaxed) >> 32) as u32
    }

    /// Whether a capture is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.page().switch().load(Relaxed) & ON != 0
    }

    /// Whether a request waits that the process has not taken notice of.
    #[must_use]
    pub fn is_knocked(&self) -> bool {
        self.page().bell().is_knocked()
    }

    /// Forward passes of the process.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.page().bell().steps.load(Relaxed)
    }

    /// Whether the quick kind of [`barrier`](super::barrier) reaches the process.
    #[must_use]
    pub fn is_expedited(&self) -> bool {
        self.page().traits().load(Relaxed) & TRAIT_EXPEDITED != 0
    }

    /// What the process said last; `None` where it has said nothing yet.
    ///
    /// # Errors
    /// Where what is there is no answer.
    pub fn answer(&self) -> Result<Option<Answer>, Torn> {
        let text = self.page().answer().read()?;
        text.map(|text| Answer::parse(&text.bytes).map_err(|_| Torn)).transpose()
    }

    /// The last call of a tap that a capture wanted; `None` where there was none.
    ///
    /// # Errors
    /// Where what is there is none.
    pub fn last_tap(&self) -> Result<Option<LastTap>, Torn> {
        let text = self.page().last_tap().read()?;
        text.map(|text| tap::decode(&text.bytes).ok_or(Torn)).transpose()
    }

    /// The generation of the last request, whoever wrote it.
    #[must_use]
    pub fn requested(&self) -> u64 {
        self.page().request().generation()
    }

    /// Excludes all other commands, as long as the guard lives.
    ///
    /// # Errors
    /// Who holds it, where somebody does.
    pub fn try_lock(&self) -> Result<Locked<'_>, Holder> {
        flock(&self.file, FlockOperation::NonBlockingLockExclusive).map_err(|_| self.holder())?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        let who = u64::from(std::process::id()) | u64::from(user_id()) << 32;
        self.set_holder([who, since]);
        Ok(Locked(self))
    }

    fn holder(&self) -> Holder {
        let [who, since] = self.page().holder().map(|word| word.load(Relaxed));
        Holder { pid: who as u32, uid: (who >> 32) as u32, since_ns: since }
    }

    fn set_holder(&self, words: [u64; 2]) {
        for (word, value) in self.page().holder().into_iter().zip(words) {
            word.store(value, Relaxed);
        }
    }
}

fn user_id() -> u32 {
    // SAFETY: cannot fail.
    unsafe { libc::geteuid() }
}

impl Drop for Other {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nothing refers to any more.
        unsafe { libc::munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
    }
}

/// Why a request is not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// It is longer than the page's room: the selection is.
    #[error("the request does not fit the control page: {0}")]
    TooLong(#[from] TooLong),
    /// Its directory is no Unicode.
    #[error("the request cannot be written: {0}")]
    Json(#[from] serde_json::Error),
}

/// A page that no other command may write.
#[derive(Debug)]
pub struct Locked<'a>(&'a Other);

impl Locked<'_> {
    /// Writes the request and calls the process: it takes the request at its next tap or step, whichever is first; one
    /// that begins at a later step, at its next tap or at that step. Returns the request's generation, which the
    /// [`Answer`] then names.
    ///
    /// # Errors
    /// Where the request cannot be written. Nothing has changed then.
    pub fn ask(&self, request: &Request) -> Result<u64, AskError> {
        let json = request.to_json()?;
        let generation = self.0.page().request().write(&json)?;
        self.0.page().bell().knock(request.first.unwrap_or(0));
        Ok(generation)
    }
}

impl std::ops::Deref for Locked<'_> {
    type Target = Other;

    fn deref(&self) -> &Other {
        self.0
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.set_holder([0, 0]);
        // Closing the page's descriptor would do it as well.
        let _ = flock(&self.0.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Op;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, memfd_create};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::path::PathBuf;

    /// A file in memory with these first bytes, and the path by which another process opens it.
    fn memory(bytes: &[u8], size: u64, seals: SealFlags) -> (File, PathBuf) {
        let file: File = memfd_create("page", MemfdFlags::ALLOW_SEALING).unwrap().into();
        file.set_len(size).unwrap();
        file.write_all_at(bytes, 0).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        (file, path.into())
    }

    fn seals() -> SealFlags {
        SealFlags::SHRINK | SealFlags::GROW
    }

    /// Version 2, pid 4242, switched on, 7 steps.
    fn page() -> (File, Other) {
        let words =
            [u64::from_le_bytes(*b"TPCAPTUR"), 2 | 4242 << 32, 1, 7, u64::MAX, 1].map(u64::to_le_bytes);
        let (file, path) = memory(words.as_flattened(), 65536, seals());
        let other = Other::open(&path).unwrap();
        (file, other)
    }

    #[track_caller]
    fn check_refusal(bytes: &[u8], size: u64, seals: SealFlags, words: &str) {
        let (_file, path) = memory(bytes, size, seals);
        assert_eq!(Other::open(&path).unwrap_err().to_string(), words);
    }

    #[test]
    fn what_is_no_page_is_refused() {
        check_refusal(b"TPCAPTUR\x02", 4096, seals(), "no control page: expected 65536 bytes, found 4096");
        let unsealed =
            "no control page: expected seals against shrinking and growing, found SealFlags(SHRINK)";
        check_refusal(b"TPCAPTUR\x02", 65536, SealFlags::SHRINK, unsealed);
        let magic = "no control page: expected TPCAPTUR, found \"tpcaptur\"";
        check_refusal(b"tpcaptur\x02", 65536, seals(), magic);
        let version = "control page of version 3, expected 2: use the tpcapture that the process has";
        check_refusal(b"TPCAPTUR\x03", 65536, seals(), version);
        let gone = Other::open(Path::new("/proc/self/fd/987654"));
        assert!(matches!(gone, Err(OtherError::Io(error)) if error.kind() == io::ErrorKind::NotFound));
    }

    #[test]
    fn the_words_are_read() {
        let (file, other) = page();
        assert_eq!((other.pid(), other.is_on(), other.is_knocked(), other.steps()), (4242, true, false, 7));
        assert!(other.is_expedited());
        assert_eq!((other.answer(), other.last_tap(), other.requested()), (Ok(None), Ok(None), 0));
        // The answer's block, as docs/control-page.md has it: current, slot 1, and rubbish in it.
        file.write_all_at(&1u64.to_le_bytes(), 0xc0).unwrap();
        file.write_all_at(&1u64.to_le_bytes(), 0xb000).unwrap();
        assert_eq!(other.answer(), Err(Torn));
    }

    #[test]
    fn a_request_is_written_and_knocked_for() {
        let (file, other) = page();
        let locked = other.try_lock().unwrap();
        let mut request =
            Request { op: Op::On, id: 5, run: "r".into(), first: Some(19), ..Request::default() };
        assert_eq!(locked.ask(&request).unwrap(), 1);
        assert_eq!((other.is_knocked(), other.requested()), (true, 1));
        let mut words = [0; 40];
        file.read_exact_at(&mut words, 0).unwrap();
        assert_eq!((words[16], words[32..40] == 19u64.to_le_bytes()), (3, true), "switch and due");
        let mut slot = vec![0; 0x3000];
        file.read_exact_at(&mut slot, 0x5000).unwrap();
        let length = u32::from_le_bytes(slot[8..12].try_into().unwrap()) as usize;
        assert_eq!(Request::parse(&slot[16..16 + length]).unwrap(), request);
        request.first = None;
        assert_eq!(locked.ask(&request).unwrap(), 2);
        file.read_exact_at(&mut words, 0).unwrap();
        assert_eq!(words[32..40], [0; 8], "due at once");
        request.select = "x".repeat(0x3000 - 16);
        let error = locked.ask(&request).unwrap_err().to_string();
        assert!(
            error.starts_with("the request does not fit the control page: expected at most 12272 bytes"),
            "{error}"
        );
        assert_eq!(other.requested(), 2);
    }

    #[test]
    fn the_second_is_told_who_holds_the_lock() {
        let (file, other) = page();
        let again = Other::open(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).unwrap();
        let locked = other.try_lock().unwrap();
        let holder = again.try_lock().unwrap_err();
        assert_eq!((holder.pid, holder.uid), (std::process::id(), user_id()));
        assert!(holder.since_ns > 1_700_000_000_000_000_000);
        drop(locked);
        assert!(again.try_lock().is_ok());
    }
}
