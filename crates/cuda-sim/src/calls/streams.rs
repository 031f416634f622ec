//! Streams.

use crate::capture;
use crate::code::{INVALID_HANDLE, NOT_READY, STREAM_CAPTURE_IMPLICIT, STREAM_CAPTURE_ISOLATION};
use crate::context::{self, Handle, REGISTRY, new_handle, sticky};
use crate::settings::lock;
use crate::stream::{Item, Stream};
use crate::submit;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

entry_points! {
    fn cuStreamCreate(handle: *mut Handle, flags: c_uint) {
        let created = Stream::start(context::current()?, flags & 1 == 0);
        *handle = new_handle();
        lock(&REGISTRY).streams.insert(*handle, created);
        sticky()
    }

    fn cuStreamCreateWithPriority(handle: *mut Handle, flags: c_uint, _priority: c_int) {
        let created = Stream::start(context::current()?, flags & 1 == 0);
        *handle = new_handle();
        lock(&REGISTRY).streams.insert(*handle, created);
        sticky()
    }

    fn cuStreamDestroy_v2(handle: Handle) {
        lock(&REGISTRY).streams.remove(&handle).ok_or(INVALID_HANDLE)?.close();
        Ok(())
    }

    fn cuStreamSynchronize(handle: Handle) {
        let stream = context::stream(handle)?;
        capture::forbid_of(&stream)?;
        capture::forbid()?;
        stream.mark().wait();
        sticky()
    }

    fn cuStreamQuery(handle: Handle) {
        let stream = context::stream(handle)?;
        capture::forbid_of(&stream)?;
        capture::forbid()?;
        sticky()?;
        if stream.is_idle() { Ok(()) } else { Err(NOT_READY) }
    }

    fn cuStreamGetCtx(handle: Handle, owner: *mut Handle) {
        *owner = context::stream(handle)?.context;
        Ok(())
    }

    fn cuStreamIsCapturing(handle: Handle, status: *mut c_uint) {
        let stream = context::stream(handle)?;
        let graph = *lock(&stream.graph);
        if graph.is_none() && handle <= 1 && capture::is_under_way() {
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        *status = graph.map_or(0, capture::status);
        Ok(())
    }

    fn cuStreamWaitEvent(handle: Handle, event: Handle, _flags: c_uint) {
        let stream = context::stream_of_current(handle)?;
        let event = lock(&REGISTRY).events.get(&event).cloned().ok_or(INVALID_HANDLE)?;
        let mut graph = lock(&stream.graph);
        match (*graph, event.graph) {
            // A fork: from here on this stream belongs to that capture, too.
            (None, Some(theirs)) => *graph = Some(theirs),
            (Some(mine), Some(theirs)) if mine == theirs => {}
            (Some(mine), _) => {
                capture::invalidate(mine);
                return Err(STREAM_CAPTURE_ISOLATION);
            }
            (None, None) => {
                if let Some(token) = event.token {
                    stream.push(Item::Wait(token));
                }
            }
        }
        sticky()
    }

    fn cuLaunchHostFunc(handle: Handle, function: unsafe extern "C" fn(*mut c_void), data: *mut c_void) {
        let data = data as usize;
        let stream = context::stream_of_current(handle)?;
        let work = submit::work(move || {
            // SAFETY: the caller's function and its data.
            unsafe { function(data as *mut c_void) };
            Ok(())
        });
        submit::submit(&Arc::clone(&stream), work)
    }
}
