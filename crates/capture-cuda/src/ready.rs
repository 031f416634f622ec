//! Getting a device ready: its ring, and the thread that empties it.
#![expect(unsafe_code, reason = "calls a C library")]

use crate::copier;
use crate::device_ring::DeviceRing;
use crate::driver::{Driver, driver};
use crate::gpu::Gpu;
use crate::queue::State;
use std::sync::MutexGuard;

impl Gpu {
    /// Has the ring, of `ring_bytes` where it is allocated now, and the thread that empties it. To be called in the context.
    pub(crate) fn ready(&'static self, ring_bytes: usize) -> Result<MutexGuard<'static, State>, String> {
        let mut state = self.queue.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        if state.ring.is_none() && ring_bytes > 0 {
            let mut base = 0;
            // SAFETY: fills in the address.
            let code = unsafe { (self.context.driver.functions.memory_alloc)(&raw mut base, ring_bytes) };
            let allocated = self.context.driver.check("cuMemAlloc", code);
            allocated.map_err(|error| {
                let error = self.explain(&error);
                format!("{error}: no {ring_bytes} bytes for TPCAPTURE_DEVICE_RING; set it lower, to 0 for none, or call tpcapture.prepare() before the server takes all memory")
            })?;
            state.ring = Some(DeviceRing::new(base, ring_bytes as u64));
        }
        if !state.has_copier {
            let thread =
                std::thread::Builder::new().name(format!("tpcapture-{}", self.name().replace(':', "")));
            thread.spawn(move || copier::run(self)).map_err(|error| format!("no thread: {error}"))?;
            state.has_copier = true;
        }
        Ok(state)
    }
}

/// Gets devices ready before a server takes all their memory: those given, or all whose primary context is in use. Their
/// names.
///
/// # Errors
/// The first that cannot be had.
pub fn prepare(ordinals: Option<Vec<i32>>, ring_bytes: usize) -> Result<Vec<String>, String> {
    let ordinals = match ordinals {
        Some(ordinals) => ordinals,
        None => in_use(driver().map_err(|error| error.to_string())?)?,
    };
    let mut names = Vec::new();
    for ordinal in ordinals {
        let gpu = Gpu::of(ordinal).map_err(|reason| format!("cuda:{ordinal}: {reason}"))?;
        let _visit = gpu.context.enter().map_err(|error| gpu.explain(&error))?;
        drop(gpu.ready(ring_bytes)?);
        names.push(gpu.name().to_owned());
    }
    Ok(names)
}

fn in_use(driver: &Driver) -> Result<Vec<i32>, String> {
    let count = driver.device_count().map_err(|error| error.to_string())?;
    Ok((0..count).filter(|&ordinal| driver.is_in_use(ordinal)).collect())
}
