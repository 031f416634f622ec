//! A device of this process: found at its first tensor, kept for the process's life.
#![expect(unsafe_code, reason = "calls a C library")]

use crate::context::Context;
use crate::copier;
use crate::device_ring::DeviceRing;
use crate::driver::{Driver, driver};
use crate::error::CudaError;
use crate::event::Events;
use crate::kernels::Kernels;
use crate::queue::{Queue, State};
use capture_kernels::Image;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A device.
pub struct Gpu {
    /// `cuda:0`
    name: String,
    /// What it is called by its maker, and the driver's version: for whoever reads why it failed.
    label: String,
    pub(crate) context: Context,
    pub(crate) kernels: Kernels,
    pub(crate) events: Events,
    pub(crate) queue: Queue,
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.label)
    }
}

impl Gpu {
    /// The device of that number, as CUDA counts in this process.
    ///
    /// # Errors
    /// Why nothing can be captured from it; asked once.
    pub fn of(ordinal: i32) -> Result<&'static Self, String> {
        // Before any lock, which another thread may have held when this process was forked.
        let driver = driver().map_err(|error| error.to_string())?;
        static GPUS: Mutex<BTreeMap<i32, Result<&'static Gpu, String>>> = Mutex::new(BTreeMap::new());
        let mut gpus = GPUS.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || Self::open(driver, ordinal).map(|gpu| &*Box::leak(Box::new(gpu)));
        gpus.entry(ordinal).or_insert_with(open).clone()
    }

    fn open(driver: &'static Driver, ordinal: i32) -> Result<Self, String> {
        let mut device = 0;
        // SAFETY: fills in the handle.
        let found =
            driver.check("cuDeviceGet", unsafe { (driver.functions.device_get)(&raw mut device, ordinal) });
        found.map_err(|error| error.to_string())?;
        let name = driver.device_name(device).map_err(|error| error.to_string())?;
        let label = format!("{name}, driver {}", driver.version);
        let explained = |error: CudaError| format!("{label}: {error}");
        let attribute = |which| driver.attribute(device, which).map_err(explained);
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let image = Image::for_capability(major, minor).map_err(|error| format!("{label}: {error}"))?;
        let context = Context::retain(driver, device).map_err(explained)?;
        let _visit = context.enter().map_err(explained)?;
        let kernels = Kernels::load(&context, image).map_err(|error| {
            format!("{label}: the driver does not take the image {}: {error}; expected a driver of CUDA 12.8 or later", image.name)
        })?;
        Ok(Self {
            name: format!("cuda:{ordinal}"),
            label,
            context,
            kernels,
            events: Events::default(),
            queue: Queue::default(),
        })
    }

    /// `cuda:0`
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// An error, with whose it is.
    pub(crate) fn explain(&self, error: &CudaError) -> String {
        format!("{}: {error}", self.label)
    }

    /// Has the ring, of `ring_bytes` where it is allocated now, and the thread that empties it. To be called in the context.
    pub(crate) fn ready(&'static self, ring_bytes: usize) -> Result<MutexGuard<'static, State>, String> {
        let mut state = self.queue.lock();
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
                std::thread::Builder::new().name(format!("tpcapture-{}", self.name.replace(':', "")));
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
        names.push(gpu.name.clone());
    }
    Ok(names)
}

fn in_use(driver: &Driver) -> Result<Vec<i32>, String> {
    let count = driver.device_count().map_err(|error| error.to_string())?;
    Ok((0..count).filter(|&ordinal| driver.is_in_use(ordinal)).collect())
}
