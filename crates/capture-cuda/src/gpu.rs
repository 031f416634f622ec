//! A device of this process: found at its first tensor, kept for the process's life.
#![expect(unsafe_code, reason = "calls a C library")]

use crate::context::Context;
use crate::driver::{Driver, driver};
use crate::error::CudaError;
use crate::event::Events;
use crate::kernels::Kernels;
use crate::queue::Queue;
use capture_kernels::Image;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

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
}
