//! Giving work to streams: at once, into a graph, or in step with the legacy default stream.

use crate::capture;
use crate::code::{Code, Done, STREAM_CAPTURE_IMPLICIT};
use crate::context::{self, legacy, set_sticky, sticky, streams_of};
use crate::settings::lock;
use crate::stream::{Item, Stream, Work};
use std::sync::Arc;

/// Work that may fail, which all that comes later hears of.
pub(crate) fn work(run: impl Fn() -> Result<(), Code> + Send + Sync + 'static) -> Work {
    Arc::new(move || {
        if sticky().is_ok()
            && let Err(code) = run()
        {
            set_sticky(code);
        }
    })
}

pub(crate) fn submit(stream: &Arc<Stream>, work: Work) -> Done {
    sticky()?;
    if let Some(graph) = *lock(&stream.graph) {
        return capture::append(graph, work);
    }
    in_step(stream)?;
    stream.push(Item::Run(work));
    Ok(())
}

/// The legacy default stream waits for all that block, and they for it.
pub(crate) fn in_step(stream: &Arc<Stream>) -> Done {
    if !stream.is_blocking {
        return Ok(());
    }
    let Some(default) = legacy(stream.context) else { return Ok(()) };
    if !Arc::ptr_eq(&default, stream) {
        stream.push(Item::Wait(default.mark()));
        return Ok(());
    }
    let others = streams_of(stream.context)
        .into_iter()
        .filter(|other| other.is_blocking && !Arc::ptr_eq(other, stream));
    for other in others {
        if lock(&other.graph).is_some() {
            return Err(STREAM_CAPTURE_IMPLICIT);
        }
        stream.push(Item::Wait(other.mark()));
    }
    Ok(())
}

/// Waits for all streams of the current context.
pub(crate) fn synchronize_context() -> Done {
    let streams = streams_of(context::current()?);
    for stream in &streams {
        capture::forbid_of(stream)?;
    }
    let marks: Vec<_> = streams.iter().map(|stream| stream.mark()).collect();
    marks.iter().for_each(crate::token::Token::wait);
    sticky()
}
