//! The control page: the words every tap and step looks at, in memory that another process can map.
//!
//! The words live in a static, so that a tap makes one RIP-relative load. At import a memfd is mapped over the static:
//! the same addresses are then shared with whoever opens the descriptor through `/proc`. A child of fork gets a memfd
//! of its own, as the shared mapping would otherwise let it write its parent's page. Where the kernel refuses, the
//! static itself serves and the process can only be switched from inside.
//!
//! docs/control-page.md says what lies where, for readers in any language. Another process writes here as it likes:
//! whatever is read is checked, and the process keeps to itself what it has to rely on.
#![expect(unsafe_code, reason = "maps a memfd over a static")]

mod word;
mod block;
mod bell;
mod tap;
mod layout;
mod barrier;
mod other;

pub use barrier::barrier;
pub use bell::Bell;
pub use block::{Block, Text, TooLong, Torn};
pub use layout::{MAGIC, PAGE_BYTES, VERSION};
pub use other::{AskError, Holder, LINK, Locked, Other, OtherError};
pub use tap::LastTap;
pub use word::Word;

use bell::ON;
use layout::{Page, TRAIT_EXPEDITED};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

static PAGE: Page = Page::new();

/// The descriptor behind the page, -1 where the static serves.
static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// Whether taps have anything to do: a capture is on or a request waits. Relaxed: the word carries no data, a tap that
/// sees it a moment late is a tap that ran a moment earlier; what it then reads is behind a lock.
#[inline(always)]
#[must_use]
pub fn is_awake() -> bool {
    PAGE.switch().load(Relaxed) != 0
}

/// A forward pass begins; true where `heed` has to look whether something is asked for.
#[inline(always)]
#[must_use]
pub fn step() -> bool {
    PAGE.bell().step()
}

/// Forward passes of this process so far.
#[must_use]
pub fn steps() -> u64 {
    PAGE.bell().steps.load(Relaxed)
}

/// Whether the word the taps load says that a capture is on.
pub(crate) fn is_on() -> bool {
    PAGE.switch().load(Relaxed) & ON != 0
}

/// Sets the word the taps load, and has the next step look up: it finds out when it has to again.
pub(crate) fn set_on(on: bool) {
    let Bell { switch, due, .. } = PAGE.bell();
    if on {
        switch.fetch_or(ON, Relaxed);
    } else {
        switch.fetch_and(!ON, Relaxed);
    }
    due.store(0, Relaxed);
}

/// The words by which this process is called.
pub(crate) fn bell() -> Bell<'static, std::sync::atomic::AtomicU64> {
    PAGE.bell()
}

/// What a command asks.
pub(crate) fn request() -> Block<'static, std::sync::atomic::AtomicU64> {
    PAGE.request()
}

/// What this process says of itself. To be written under the state's lock.
pub(crate) fn answer() -> Block<'static, std::sync::atomic::AtomicU64> {
    PAGE.answer()
}

/// A wanted call of a tap: `words` are step, call, number and time. To be called under the state's lock.
pub(crate) fn publish_tap(tap: &str, words: [u64; 4]) {
    let mut room = [0; tap::MAX_LAST_TAP];
    if let Some(bytes) = tap::encode(tap, words, &mut room) {
        // The room is a slot's.
        let _ = PAGE.last_tap().write(bytes);
    }
}

/// The descriptor behind the page, where there is one.
#[must_use]
pub fn descriptor() -> Option<RawFd> {
    Some(DESCRIPTOR.load(Relaxed)).filter(|fd| *fd >= 0)
}

/// Closes the descriptor, so that no command finds this process: for one that is itself a command.
pub fn hide() {
    let fd = DESCRIPTOR.swap(-1, Relaxed);
    if fd >= 0 {
        // SAFETY: `map` opened it, nobody else closes it; the mapping stays.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
}

/// In a child of fork: a page of its own, with the switch off, `steps` forward passes and no request, or, where that is
/// refused, private memory; false then. The parent's page, which is still mapped here, counts on meanwhile.
pub(crate) fn renew_in_child(steps: u64) -> bool {
    if descriptor().is_none() {
        return true;
    }
    if map_with(0, steps).is_ok() {
        return true;
    }
    // SAFETY: the static's own range, as in `map`; anything is better than writing into the parent's page. If even this
    // fails there is no memory left and the process is about to end.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(
            (&raw const PAGE).cast_mut().cast(),
            PAGE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            flags,
            -1,
            0,
        );
    }
    let Bell { steps: count, due, .. } = PAGE.bell();
    count.store(steps, Relaxed);
    due.store(u64::MAX, Relaxed);
    DESCRIPTOR.store(-1, Relaxed);
    false
}

/// Maps a fresh memfd over the static, its words as they are: at import, before any tap runs.
///
/// # Errors
/// What the kernel said (seccomp, an old kernel, no memory). The static then serves, with its words as they were.
pub(crate) fn map() -> io::Result<()> {
    map_with(PAGE.switch().load(Relaxed) & ON, steps())
}

/// The same with these words, also in a child of fork, where no other thread exists.
fn map_with(switch: u64, steps: u64) -> io::Result<()> {
    let page = &raw const PAGE;
    // SAFETY: sysconf has no preconditions.
    let kernel_page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // Loaders before glibc 2.35 align a library to the kernel's page only, which is all that mmap asks for.
    if kernel_page <= 0 || !(page as usize).is_multiple_of(kernel_page as usize) {
        return Err(io::Error::other(format!("the control page at {page:p} is not aligned")));
    }
    let fd = sealed_memfd(Page::first_words(switch, steps))?;
    // SAFETY: address and length are exactly the static's, which holds nothing but these atomics and is aligned to the
    // kernel's page; every word there has been written to the memfd, so other threads see the same values before and
    // after. Atomics may change under us: that is what they are for.
    let mapped = unsafe {
        libc::mmap(
            page.cast_mut().cast(),
            PAGE_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED,
            fd.as_raw_fd(),
            0,
        )
    };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    PAGE.magic().store(MAGIC, Relaxed);
    if barrier::register() {
        PAGE.traits().store(TRAIT_EXPEDITED, Relaxed);
    }
    let old = DESCRIPTOR.swap(fd.into_raw_fd(), Relaxed);
    if old >= 0 {
        // SAFETY: the parent's page, which this child of fork inherited and no longer maps; we opened it, nobody else
        // closes it.
        drop(unsafe { OwnedFd::from_raw_fd(old) });
    }
    Ok(())
}

/// A memfd of the page's size with these words in it, that nobody can truncate under a reader. Everything here is a
/// system call, as a child of fork may make it.
fn sealed_memfd(mut words: [u64; 6]) -> io::Result<OwnedFd> {
    const MFD_NOEXEC_SEAL: libc::c_uint = 0x0008;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a valid C string; kernels that do not know MFD_NOEXEC_SEAL answer EINVAL.
    let mut raw = unsafe { libc::memfd_create(c"tpcapture".as_ptr(), flags | MFD_NOEXEC_SEAL) };
    if raw < 0 {
        // SAFETY: as above.
        raw = unsafe { libc::memfd_create(c"tpcapture".as_ptr(), flags) };
    }
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: memfd_create just returned it.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    // Last of all, once it is mapped: then the page is whole.
    words[0] = 0;
    let words = words.map(u64::to_le_bytes);
    let words = words.as_flattened();
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: plain system calls on a descriptor we own, with buffers that live through them.
    let done = unsafe {
        libc::ftruncate(raw, PAGE_BYTES as libc::off_t) == 0
            && libc::fchmod(raw, 0o600) == 0
            && libc::pwrite(raw, words.as_ptr().cast(), words.len(), 0) == words.len() as isize
            && libc::fcntl(raw, libc::F_ADD_SEALS, seals) == 0
    };
    if done { Ok(fd) } else { Err(io::Error::last_os_error()) }
}
