//! The host's memory that the driver knows: allocated by it, registered with it, or managed.

use crate::code::{Code, HOST_MEMORY_ALREADY_REGISTERED, HOST_MEMORY_NOT_REGISTERED, OUT_OF_MEMORY};
use crate::settings::lock;
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Pinned,
    Managed,
}

/// By where it starts: its size and kind.
static KNOWN: LazyLock<Mutex<BTreeMap<usize, (usize, Kind)>>> = LazyLock::new(Mutex::default);

/// Whose memory all of that is.
pub(crate) fn kind_of(at: usize, n_bytes: usize) -> Option<Kind> {
    let known = lock(&KNOWN);
    let (start, (size, kind)) = known.range(..=at).next_back()?;
    (at + n_bytes <= start + size && at < start + size).then_some(*kind)
}

pub(crate) fn register(at: usize, n_bytes: usize, kind: Kind) -> Result<(), Code> {
    let mut known = lock(&KNOWN);
    let before = known.range(..at + n_bytes).next_back();
    if before.is_some_and(|(start, (size, _))| start + size > at) {
        return Err(HOST_MEMORY_ALREADY_REGISTERED);
    }
    known.insert(at, (n_bytes, kind));
    Ok(())
}

/// Forgets it; its size.
pub(crate) fn unregister(at: usize) -> Result<usize, Code> {
    lock(&KNOWN).remove(&at).map(|(size, _)| size).ok_or(HOST_MEMORY_NOT_REGISTERED)
}

/// Memory of the host that the driver allocates, poisoned.
pub(crate) fn allocate(n_bytes: usize, kind: Kind) -> Result<usize, Code> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a fresh mapping wherever the kernel likes.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), n_bytes.max(1), protection, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(OUT_OF_MEMORY);
    }
    // SAFETY: the mapping just made.
    unsafe { std::ptr::write_bytes(at.cast::<u8>(), 0xCD, n_bytes) };
    register(at as usize, n_bytes, kind)?;
    Ok(at as usize)
}

pub(crate) fn free(at: usize) -> Result<(), Code> {
    let n_bytes = unregister(at)?;
    // SAFETY: mapped by `allocate`, and nobody's any more.
    unsafe { libc::munmap(at as *mut _, n_bytes.max(1)) };
    Ok(())
}
