//! Memory: of devices, pinned, managed, registered; and whose an address is.

use crate::capture;
use crate::code::{Code, INVALID_VALUE};
use crate::context::{self, Handle, REGISTRY, sticky};
use crate::host::{self, Kind};
use crate::memory;
use crate::settings::lock;
use crate::submit;
use std::ffi::{c_int, c_uint, c_void};

/// Kinds of memory, as pointer attributes name them.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

/// One attribute of an address. The driver answers for any address; of one that it does not know it says nothing.
///
/// # Safety
/// `value` has room for the attribute.
unsafe fn attribute(value: *mut c_void, which: c_int, at: usize) -> Result<(), Code> {
    let owner = memory::owner(at);
    let kind = host::kind_of(at, 1);
    // SAFETY: the caller's condition.
    unsafe {
        match which {
            1 => {
                let device = owner.map(|owner| owner.0);
                let registry = lock(&REGISTRY);
                let found = registry.contexts.iter().find(|context| Some(*context.1) == device);
                value.cast::<Handle>().write(found.map_or(0, |context| *context.0));
            }
            2 => value.cast::<c_uint>().write(match (owner, kind) {
                (Some(_), _) | (_, Some(Kind::Managed)) => DEVICE,
                (None, Some(Kind::Pinned)) => HOST,
                (None, None) => 0,
            }),
            8 => value.cast::<c_uint>().write(c_uint::from(kind == Some(Kind::Managed))),
            9 => value
                .cast::<c_int>()
                .write(owner.map_or(if kind.is_some() { 0 } else { -2 }, |owner| owner.0)),
            11 => value.cast::<usize>().write(owner.map_or(0, |owner| owner.1)),
            12 => value.cast::<usize>().write(owner.map_or(0, |owner| owner.2)),
            _ => return Err(INVALID_VALUE),
        }
    }
    Ok(())
}

entry_points! {
    fn cuMemAlloc_v2(at: *mut usize, n_bytes: usize) {
        capture::forbid()?;
        *at = memory::allocate(context::current_device()?, n_bytes)?;
        sticky()
    }

    fn cuMemFree_v2(at: usize) {
        capture::forbid()?;
        submit::synchronize_context()?;
        memory::free(at)
    }

    fn cuMemAllocManaged(at: *mut usize, n_bytes: usize, _flags: c_uint) {
        context::current()?;
        *at = host::allocate(n_bytes, Kind::Managed)?;
        sticky()
    }

    fn cuMemHostAlloc(at: *mut usize, n_bytes: usize, _flags: c_uint) {
        capture::forbid()?;
        context::current()?;
        *at = host::allocate(n_bytes, Kind::Pinned)?;
        sticky()
    }

    fn cuMemFreeHost(at: usize) {
        capture::forbid()?;
        submit::synchronize_context()?;
        host::free(at)
    }

    fn cuMemHostRegister_v2(at: usize, n_bytes: usize, _flags: c_uint) {
        capture::forbid()?;
        context::current()?;
        host::register(at, n_bytes, Kind::Pinned)?;
        sticky()
    }

    fn cuMemHostUnregister(at: usize) {
        capture::forbid()?;
        context::current()?;
        host::unregister(at).map(drop)
    }

    fn cuMemHostGetDevicePointer_v2(address: *mut usize, at: usize, _flags: c_uint) {
        context::current()?;
        if host::kind_of(at, 1).is_none() {
            return Err(INVALID_VALUE);
        }
        *address = at;
        sticky()
    }

    fn cuPointerGetAttribute(value: *mut c_void, which: c_int, at: usize) {
        if memory::owner(at).is_none() && host::kind_of(at, 1).is_none() {
            return Err(INVALID_VALUE);
        }
        attribute(value, which, at)
    }

    fn cuPointerGetAttributes(n: c_uint, which: *mut c_int, values: *mut *mut c_void, at: usize) {
        for i in 0..n as usize {
            attribute(*values.add(i), *which.add(i), at)?;
        }
        Ok(())
    }
}
