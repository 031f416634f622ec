//! The ring's memory: one anonymous mapping, warmed by the writer so that producers do not take page faults.
#![expect(unsafe_code, reason = "maps memory")]

use std::io;

/// A private mapping of whole pages that a child of fork does not inherit.
pub(crate) struct Memory {
    start: *mut u8,
    n_bytes: usize,
}

// SAFETY: a mapping belongs to the process, not to a thread; who may touch which part of it is the ring's affair.
unsafe impl Send for Memory {}
// SAFETY: as above; `Memory` itself only hands out addresses.
unsafe impl Sync for Memory {}

impl Memory {
    pub(crate) fn map(n_bytes: usize) -> io::Result<Self> {
        let (protection, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping wherever the kernel likes.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), n_bytes, protection, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range just mapped. A child of fork makes a ring of its own: copying this one would make the
        // parent's next write to each page a fault. Both pieces of advice may be refused without harm.
        unsafe {
            libc::madvise(start, n_bytes, libc::MADV_DONTFORK);
            libc::madvise(start, n_bytes, libc::MADV_HUGEPAGE);
        }
        Ok(Self { start: start.cast(), n_bytes })
    }

    pub(crate) fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// The address of byte `at`.
    pub(crate) fn at(&self, at: usize) -> *mut u8 {
        debug_assert!(at < self.n_bytes);
        self.start.wrapping_add(at)
    }

    /// Makes the kernel provide every page now. Contents are kept, so producers may write meanwhile. In pieces, as the
    /// address space is locked against `mmap` in other threads during each, and for as long as `goes_on` says so.
    pub(crate) fn warm(&self, mut goes_on: impl FnMut() -> bool) {
        const MADV_POPULATE_WRITE: libc::c_int = 23;
        const PIECE: usize = 8 << 20;
        for at in (0..self.n_bytes).step_by(PIECE) {
            if !goes_on() {
                return;
            }
            let n = PIECE.min(self.n_bytes - at);
            // SAFETY: part of our mapping. Kernels before 5.14 refuse, and pages come at the first touch as usual.
            if unsafe { libc::madvise(self.at(at).cast(), n, MADV_POPULATE_WRITE) } != 0 {
                return;
            }
        }
    }

    /// Gives every page back to the kernel; the addresses stay. What the memory held is lost.
    pub(crate) fn cool(&self) {
        // SAFETY: our own mapping, which the caller says nobody uses.
        unsafe { libc::madvise(self.start.cast(), self.n_bytes, libc::MADV_DONTNEED) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length; whoever holds an address into it holds the ring, too.
        unsafe { libc::munmap(self.start.cast(), self.n_bytes) };
    }
}
