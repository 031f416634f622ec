//! Where the few lines go that a user must see. Core prints nothing itself: the host decides, once.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

static SINK: OnceLock<fn(&str)> = OnceLock::new();

/// Which rank speaks; -1 where that is not known.
static SPEAKER: AtomicI64 = AtomicI64::new(-1);

/// From now on notices are of this rank.
pub(crate) fn set_speaker(rank: Option<u32>) {
    SPEAKER.store(rank.map_or(-1, i64::from), Relaxed);
}

/// The rank whose notices these are: eight ranks write to one log.
#[must_use]
pub fn speaker() -> Option<u32> {
    u32::try_from(SPEAKER.load(Relaxed)).ok()
}

/// Sets where notices go. It is called on the model's threads and on the writer's, and must neither block nor panic.
/// The first call counts.
pub fn set_sink(sink: fn(&str)) {
    // A second host in one process (an extension loaded under two names) keeps the first one's sink.
    let _ = SINK.set(sink);
}

/// Tells the user.
pub fn notice(line: &str) {
    if let Some(sink) = SINK.get() {
        sink(line);
    }
}
