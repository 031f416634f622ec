//! Copies. To the host they land torn, the tail first; pinned memory is read when the stream comes to it and not before.

use crate::capture;
use crate::code::{Code, Done, ILLEGAL_ADDRESS, INVALID_VALUE};
use crate::context::{self, Handle, sticky};
use crate::host;
use crate::memory;
use crate::settings::{await_release, linger, lock};
use crate::submit::{self, submit, work};

/// The bytes of an address of a device or of the host, when a stream comes to it.
fn bytes_of(at: usize, n_bytes: usize) -> Result<*mut u8, Code> {
    match memory::owner(at) {
        Some(_) => memory::bytes_at(at, n_bytes),
        // Of the host only what the driver still knows.
        None => host::kind_of(at, n_bytes).map(|_| at as *mut u8).ok_or(ILLEGAL_ADDRESS),
    }
}

/// Copies the second half, takes its time, and copies the first.
fn torn(to: *mut u8, from: *const u8, n_bytes: usize) {
    let half = n_bytes / 2;
    // SAFETY: `bytes_of` found both to be whole; nobody but the test's subject writes there.
    unsafe {
        std::ptr::copy(from.add(half), to.add(half), n_bytes - half);
        linger();
        std::ptr::copy(from, to, half);
    }
}

fn copy(to: usize, from: usize, n_bytes: usize, stream: Handle) -> Done {
    let stream = context::stream_of_current(stream)?;
    // What is wrong already is an error of the call.
    for at in [to, from] {
        if memory::owner(at).is_some() {
            memory::bytes_at(at, n_bytes).map_err(|_| INVALID_VALUE)?;
        }
    }
    let is_pageable = |at| memory::owner(at).is_none() && host::kind_of(at, n_bytes).is_none();
    if is_pageable(from) {
        // SAFETY: memory of the caller's, copied before the call returns.
        let staged = unsafe { std::slice::from_raw_parts(from as *const u8, n_bytes) }.to_vec();
        return submit(
            &stream,
            work(move || {
                torn(bytes_of(to, n_bytes)?, staged.as_ptr(), n_bytes);
                Ok(())
            }),
        );
    }
    let waits = is_pageable(to);
    let put = work(move || {
        if memory::owner(to).is_none() {
            await_release();
        }
        let to = if waits { to as *mut u8 } else { bytes_of(to, n_bytes)? };
        torn(to, bytes_of(from, n_bytes)?, n_bytes);
        Ok(())
    });
    submit(&stream, put)?;
    if waits && lock(&stream.graph).is_none() {
        stream.mark().wait();
    }
    sticky()
}

fn set<T: Copy + Send + Sync + 'static>(at: usize, value: T, count: usize, stream: Handle) -> Done {
    let stream = context::stream_of_current(stream)?;
    submit(
        &stream,
        work(move || {
            let to = bytes_of(at, count * size_of::<T>())?.cast::<T>();
            for i in 0..count {
                // SAFETY: within what was found.
                unsafe { to.add(i).write_unaligned(value) };
            }
            Ok(())
        }),
    )
}

entry_points! {
    fn cuMemcpyAsync(to: usize, from: usize, n_bytes: usize, stream: Handle) {
        copy(to, from, n_bytes, stream)
    }

    fn cuMemcpyHtoDAsync_v2(to: usize, from: usize, n_bytes: usize, stream: Handle) {
        copy(to, from, n_bytes, stream)
    }

    fn cuMemcpyDtoHAsync_v2(to: usize, from: usize, n_bytes: usize, stream: Handle) {
        copy(to, from, n_bytes, stream)
    }

    fn cuMemcpyDtoDAsync_v2(to: usize, from: usize, n_bytes: usize, stream: Handle) {
        copy(to, from, n_bytes, stream)
    }

    fn cuMemcpyHtoD_v2(to: usize, from: usize, n_bytes: usize) {
        capture::forbid()?;
        context::current()?;
        std::ptr::copy_nonoverlapping(from as *const u8, memory::bytes_at(to, n_bytes).map_err(|_| INVALID_VALUE)?, n_bytes);
        sticky()
    }

    fn cuMemcpyDtoH_v2(to: usize, from: usize, n_bytes: usize) {
        capture::forbid()?;
        submit::synchronize_context()?;
        std::ptr::copy_nonoverlapping(memory::bytes_at(from, n_bytes).map_err(|_| INVALID_VALUE)?, to as *mut u8, n_bytes);
        sticky()
    }

    fn cuMemsetD8Async(at: usize, value: u8, count: usize, stream: Handle) {
        set(at, value, count, stream)
    }

    fn cuMemsetD32Async(at: usize, value: u32, count: usize, stream: Handle) {
        set(at, value, count, stream)
    }
}
