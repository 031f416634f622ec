//! A progress bar for work that takes over a second, where someone watches.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::{
    io::{IsTerminal as _, stderr},
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// How far some work is, in bytes. May be shared by threads.
pub(crate) struct Progress {
    total: AtomicU64,
    done: AtomicU64,
    since: Instant,
    bar: OnceLock<ProgressBar>,
    watched: bool,
}

impl Progress {
    pub(crate) fn new(total: u64) -> Self {
        let (total, done) = (AtomicU64::new(total), AtomicU64::new(0));
        Self { total, done, since: Instant::now(), bar: OnceLock::new(), watched: stderr().is_terminal() }
    }

    /// There is so much to do.
    pub(crate) fn expect(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// So much more is done.
    pub(crate) fn add(&self, n_bytes: u64) {
        // Only a count: nothing is read by virtue of it.
        let done = self.done.fetch_add(n_bytes, Ordering::Relaxed) + n_bytes;
        if self.watched && self.since.elapsed() > Duration::from_secs(1) {
            self.bar.get_or_init(|| bar(self.total.load(Ordering::Relaxed))).set_position(done);
        }
    }
}

fn bar(total: u64) -> ProgressBar {
    let template = "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let style = ProgressStyle::with_template(template).expect("the template is a good one");
    ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr()).with_style(style)
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}
