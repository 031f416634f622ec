//! The devices' memory. At the address that the host sees nothing may be read or written: whoever does dies of it, as it should
//! be. The bytes lie elsewhere, poisoned when they are allocated and when they are freed, each allocation between pages that
//! nobody may touch. What was freed last is given out first, as a caching allocator does.

use crate::code::{Code, ILLEGAL_ADDRESS, INVALID_VALUE, OUT_OF_MEMORY};
use crate::host;
use crate::settings::lock;
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex};

const SPAN: usize = 64 << 30;
const PAGE: usize = 4096;
const FRESH: u8 = 0xCD;
const FREED: u8 = 0xDD;

#[derive(Clone, Copy)]
struct Block {
    n_bytes: usize,
    device: i32,
}

struct Memory {
    /// What the host sees, and where the bytes lie.
    seen: usize,
    bytes: usize,
    next: usize,
    live: BTreeMap<usize, Block>,
    /// Freed, the last at the end: address and pages.
    free: Vec<(usize, usize)>,
    reuses: bool,
    /// Bytes left, by device.
    left: BTreeMap<i32, usize>,
}

static MEMORY: LazyLock<Mutex<Memory>> = LazyLock::new(|| {
    Mutex::new(Memory {
        seen: reserve(),
        bytes: reserve(),
        next: PAGE,
        live: BTreeMap::new(),
        free: Vec::new(),
        reuses: true,
        left: BTreeMap::new(),
    })
});

/// Addresses that nobody may touch.
fn reserve() -> usize {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping wherever the kernel likes.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), SPAN, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED, "no addresses for the simulated devices");
    at as usize
}

fn pages(n_bytes: usize) -> usize {
    n_bytes.max(1).next_multiple_of(PAGE)
}

impl Memory {
    fn protect(&self, at: usize, n_bytes: usize, protection: libc::c_int) {
        // SAFETY: part of our own mapping, of allocations that begin or end now.
        unsafe { libc::mprotect((at - self.seen + self.bytes) as *mut _, n_bytes, protection) };
    }

    fn fill(&self, at: usize, n_bytes: usize, with: u8) {
        // SAFETY: as above, writable.
        unsafe { std::ptr::write_bytes((at - self.seen + self.bytes) as *mut u8, with, n_bytes) };
    }

    fn find(&self, at: usize) -> Option<(usize, Block)> {
        let (start, block) = self.live.range(..=at).next_back()?;
        (at < start + block.n_bytes.max(1)).then_some((*start, *block))
    }
}

pub(crate) fn allocate(device: i32, n_bytes: usize) -> Result<usize, Code> {
    let memory = &mut *lock(&MEMORY);
    let size = pages(n_bytes);
    let left = memory.left.entry(device).or_insert(32 << 30);
    *left = left.checked_sub(size).ok_or(OUT_OF_MEMORY)?;
    let reused = if memory.reuses { memory.free.iter().rposition(|(_, room)| *room == size) } else { None };
    let at = match reused {
        Some(index) => memory.free.remove(index).0,
        None => {
            let at = memory.seen + memory.next;
            memory.next += size + PAGE;
            if memory.next > SPAN {
                return Err(OUT_OF_MEMORY);
            }
            at
        }
    };
    memory.protect(at, size, libc::PROT_READ | libc::PROT_WRITE);
    memory.fill(at, size, FRESH);
    memory.live.insert(at, Block { n_bytes, device });
    Ok(at)
}

pub(crate) fn free(at: usize) -> Result<(), Code> {
    let memory = &mut *lock(&MEMORY);
    let block = memory.live.remove(&at).ok_or(INVALID_VALUE)?;
    let size = pages(block.n_bytes);
    memory.fill(at, size, FREED);
    memory.protect(at, size, libc::PROT_NONE);
    memory.free.push((at, size));
    *memory.left.entry(block.device).or_default() += size;
    Ok(())
}

/// Where the bytes of device memory lie, all `n_bytes` of one allocation.
pub(crate) fn bytes_at(at: usize, n_bytes: usize) -> Result<*mut u8, Code> {
    let memory = lock(&MEMORY);
    let (start, block) = memory.find(at).ok_or(ILLEGAL_ADDRESS)?;
    if at + n_bytes > start + block.n_bytes {
        return Err(ILLEGAL_ADDRESS);
    }
    Ok((at - memory.seen + memory.bytes) as *mut u8)
}

/// Where a kernel on that device finds what it knows by this address: the device's memory where its bytes lie, memory of the
/// host that the driver knows where it is. What lies behind an allocation's end nobody may touch there either.
pub(crate) fn for_kernels(at: usize, device: i32) -> Option<usize> {
    let memory = lock(&MEMORY);
    if !(memory.seen..memory.seen + SPAN).contains(&at) {
        return host::kind_of(at, 1).map(|_| at);
    }
    let (_, block) = memory.find(at)?;
    (block.device == device).then_some(at - memory.seen + memory.bytes)
}

/// The device, start and size of the allocation that an address lies in.
pub(crate) fn owner(at: usize) -> Option<(i32, usize, usize)> {
    let memory = lock(&MEMORY);
    memory.find(at).map(|(start, block)| (block.device, start, block.n_bytes))
}

pub(crate) fn set_left(device: i32, n_bytes: usize) {
    lock(&MEMORY).left.insert(device, n_bytes);
}

pub(crate) fn set_reuse(reuses: bool) {
    lock(&MEMORY).reuses = reuses;
}
