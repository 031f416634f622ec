//! Where the few lines go that a user must see. Core prints nothing itself: the host decides, once.

use std::sync::OnceLock;

static SINK: OnceLock<fn(&str)> = OnceLock::new();

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
