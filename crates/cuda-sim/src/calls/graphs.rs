//! Capturing streams into graphs, and launching these.

use crate::capture;
use crate::code::{INVALID_HANDLE, INVALID_VALUE};
use crate::context::{self, Handle, REGISTRY};
use crate::settings::lock;
use crate::submit;
use std::ffi::c_uint;

entry_points! {
    fn cuStreamBeginCapture_v2(stream: Handle, mode: c_uint) {
        let stream = context::stream_of_current(stream)?;
        let mut graph = lock(&stream.graph);
        if graph.is_some() {
            return Err(INVALID_VALUE);
        }
        *graph = Some(capture::begin(mode));
        Ok(())
    }

    fn cuStreamEndCapture(stream: Handle, graph: *mut Handle) {
        let stream = context::stream_of_current(stream)?;
        let captured = lock(&stream.graph).take().ok_or(INVALID_VALUE)?;
        // Streams that joined it leave it.
        for other in context::streams_of(stream.context) {
            let mut joined = lock(&other.graph);
            if *joined == Some(captured) {
                *joined = None;
            }
        }
        lock(&REGISTRY).events.values_mut().filter(|event| event.graph == Some(captured)).for_each(|event| event.graph = None);
        *graph = 0;
        capture::end(captured)?;
        *graph = captured;
        Ok(())
    }

    fn cuGraphInstantiateWithFlags(executable: *mut Handle, graph: Handle, _flags: u64) {
        capture::work_of(graph)?;
        *executable = graph;
        Ok(())
    }

    fn cuGraphLaunch(executable: Handle, stream: Handle) {
        let stream = context::stream_of_current(stream)?;
        for work in capture::work_of(executable)? {
            submit::submit(&stream, work)?;
        }
        Ok(())
    }

    fn cuGraphExecDestroy(executable: Handle) {
        if executable == 0 { Err(INVALID_HANDLE) } else { Ok(()) }
    }

    fn cuGraphDestroy(graph: Handle) {
        if graph == 0 { Err(INVALID_HANDLE) } else { Ok(()) }
    }
}
