//! Streams that are being captured into graphs, and what is forbidden meanwhile.

use crate::code::{Code, INVALID_HANDLE, STREAM_CAPTURE_INVALIDATED, STREAM_CAPTURE_UNSUPPORTED};
use crate::context::{Handle, new_handle};
use crate::settings::lock;
use crate::stream::{Stream, Work};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};
use std::thread::ThreadId;

pub(crate) const GLOBAL: u32 = 0;
pub(crate) const THREAD_LOCAL: u32 = 1;
pub(crate) const RELAXED: u32 = 2;

thread_local! {
    /// What `cuThreadExchangeStreamCaptureMode` sets.
    static MODE: Cell<u32> = const { Cell::new(GLOBAL) };
}

struct Graph {
    work: Vec<Work>,
    /// The mode it was begun in, and by which thread, while it is being captured.
    open: Option<(u32, ThreadId)>,
    is_invalid: bool,
}

static GRAPHS: LazyLock<Mutex<HashMap<Handle, Graph>>> = LazyLock::new(Mutex::default);

pub(crate) fn exchange_mode(mode: u32) -> u32 {
    MODE.replace(mode)
}

pub(crate) fn begin(mode: u32) -> Handle {
    let handle = new_handle();
    let open = Some((mode, std::thread::current().id()));
    lock(&GRAPHS).insert(handle, Graph { work: Vec::new(), open, is_invalid: false });
    handle
}

/// The graph is whole; whether it is any good.
pub(crate) fn end(handle: Handle) -> Result<(), Code> {
    let mut graphs = lock(&GRAPHS);
    let graph = graphs.get_mut(&handle).ok_or(INVALID_HANDLE)?;
    graph.open = None;
    if graph.is_invalid { Err(STREAM_CAPTURE_INVALIDATED) } else { Ok(()) }
}

/// 1 while it goes well, 2 once it was invalidated.
pub(crate) fn status(handle: Handle) -> u32 {
    if lock(&GRAPHS).get(&handle).is_some_and(|graph| graph.is_invalid) { 2 } else { 1 }
}

pub(crate) fn append(handle: Handle, work: Work) -> Result<(), Code> {
    let mut graphs = lock(&GRAPHS);
    let graph = graphs.get_mut(&handle).ok_or(INVALID_HANDLE)?;
    if graph.is_invalid {
        return Err(STREAM_CAPTURE_INVALIDATED);
    }
    graph.work.push(work);
    Ok(())
}

pub(crate) fn invalidate(handle: Handle) {
    if let Some(graph) = lock(&GRAPHS).get_mut(&handle) {
        graph.is_invalid = true;
    }
}

pub(crate) fn work_of(handle: Handle) -> Result<Vec<Work>, Code> {
    lock(&GRAPHS).get(&handle).map(|graph| graph.work.clone()).ok_or(INVALID_HANDLE)
}

/// Whether any stream is being captured now.
pub(crate) fn is_under_way() -> bool {
    lock(&GRAPHS).values().any(|graph| graph.open.is_some())
}

/// A call that is forbidden while streams are being captured, unless the thread's mode allows it. It invalidates what it
/// disturbs.
pub(crate) fn forbid() -> Result<(), Code> {
    let (mode, me) = (MODE.get(), std::thread::current().id());
    let mut graphs = lock(&GRAPHS);
    let disturbed = graphs.values_mut().filter(|graph| match (graph.open, mode) {
        (None, _) | (_, RELAXED) => false,
        (Some((begun, by)), THREAD_LOCAL) => by == me && begun != RELAXED,
        (Some((begun, by)), _) => (by == me && begun != RELAXED) || begun == GLOBAL,
    });
    let mut any = false;
    for graph in disturbed {
        graph.is_invalid = true;
        any = true;
    }
    if any { Err(STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
}

/// A call that makes no sense of a stream that is being captured.
pub(crate) fn forbid_of(stream: &Stream) -> Result<(), Code> {
    match *lock(&stream.graph) {
        None => Ok(()),
        Some(graph) => {
            invalidate(graph);
            Err(STREAM_CAPTURE_UNSUPPORTED)
        }
    }
}
