//! Ctrl-C while processes are being switched, which must not leave them half-way.

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// From when it is made until it is released a signal only sets the flag; afterwards it ends the command as ever.
#[derive(Debug)]
pub(crate) struct Interrupt {
    flag: Arc<AtomicBool>,
    released: Arc<AtomicBool>,
}

impl Interrupt {
    pub(crate) fn heed() -> Self {
        let (flag, released) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        for signal in [SIGHUP, SIGINT, SIGTERM] {
            // These can always be registered; where not, the signal ends the command at once.
            let _ = flag::register_conditional_default(signal, Arc::clone(&released));
            let _ = flag::register(signal, Arc::clone(&flag));
        }
        Self { flag, released }
    }

    pub(crate) fn flag(&self) -> &AtomicBool {
        &self.flag
    }

    pub(crate) fn release(&self) {
        self.released.store(true, Relaxed);
    }
}
