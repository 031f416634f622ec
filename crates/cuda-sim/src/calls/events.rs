//! Events.

use crate::capture;
use crate::code::{CAPTURED_EVENT, Code, INVALID_HANDLE, NOT_READY};
use crate::context::{self, Event, Handle, REGISTRY, new_handle, sticky};
use crate::settings::lock;
use crate::submit;
use crate::token::Token;
use std::ffi::c_uint;

/// What the event stands for, outside a graph.
fn token_of(event: Handle) -> Result<Option<Token>, Code> {
    let event = lock(&REGISTRY).events.get(&event).cloned().ok_or(INVALID_HANDLE)?;
    if event.graph.is_some() { Err(CAPTURED_EVENT) } else { Ok(event.token) }
}

entry_points! {
    fn cuEventCreate(handle: *mut Handle, _flags: c_uint) {
        let context = context::current()?;
        *handle = new_handle();
        lock(&REGISTRY).events.insert(*handle, Event { context, ..Event::default() });
        sticky()
    }

    fn cuEventDestroy_v2(event: Handle) {
        lock(&REGISTRY).events.remove(&event).map(drop).ok_or(INVALID_HANDLE)
    }

    fn cuEventRecord(event: Handle, stream: Handle) {
        let stream = context::stream_of_current(stream)?;
        let graph = *lock(&stream.graph);
        if graph.is_none() {
            submit::in_step(&stream)?;
        }
        let mut registry = lock(&REGISTRY);
        let event = registry.events.get_mut(&event).ok_or(INVALID_HANDLE)?;
        if event.context != stream.context {
            return Err(INVALID_HANDLE);
        }
        event.graph = graph;
        event.token = if graph.is_none() { Some(stream.mark()) } else { None };
        sticky()
    }

    fn cuEventQuery(event: Handle) {
        capture::forbid()?;
        sticky()?;
        if token_of(event)?.is_none_or(|token| token.is_set()) { Ok(()) } else { Err(NOT_READY) }
    }

    fn cuEventSynchronize(event: Handle) {
        capture::forbid()?;
        if let Some(token) = token_of(event)? {
            token.wait();
        }
        sticky()
    }
}
