//! The kernels on one device.
#![expect(unsafe_code, reason = "calls a C library")]

use crate::context::Context;
use crate::error::CudaError;
use capture_core::Dtype;
use capture_kernels::{HASH, Image, Kernel, PACK, STATS, THREADS, TURN};
use cudarc::driver::sys::{CUfunction, CUmodule, CUstream};
use std::collections::BTreeMap;
use std::ffi::c_void;

/// A kernel of a module that stays loaded for the life of the process.
#[derive(Clone, Copy)]
struct Function(CUfunction);

// SAFETY: a handle that any thread may use.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// All of them.
pub(crate) struct Kernels {
    pack: BTreeMap<(usize, bool), Function>,
    turn: BTreeMap<usize, Function>,
    hash: BTreeMap<usize, Function>,
    stats: BTreeMap<Dtype, Function>,
}

/// Which one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Pack { unit_bytes: usize, is_wide: bool },
    Turn { item_bytes: usize },
    Hash { item_bytes: usize },
    Stats { dtype: Dtype },
}

impl Kernels {
    /// Loads the image. To be called in the device's context.
    pub(crate) fn load(context: &Context, image: Image) -> Result<Self, CudaError> {
        let driver = context.driver;
        let mut module: CUmodule = std::ptr::null_mut();
        // SAFETY: a whole image, PTX with a zero at its end.
        let code = unsafe { (driver.functions.module_load)(&raw mut module, image.bytes.as_ptr().cast()) };
        driver.check("cuModuleLoadData", code)?;
        let find = |name: &std::ffi::CStr| {
            let mut function = std::ptr::null_mut();
            // SAFETY: of the module just loaded.
            let code =
                unsafe { (driver.functions.module_function)(&raw mut function, module, name.as_ptr()) };
            driver.check("cuModuleGetFunction", code).map(|()| Function(function))
        };
        Ok(Self {
            pack: all(&PACK, find)?,
            turn: all(&TURN, find)?,
            hash: all(&HASH, find)?,
            stats: all(&STATS, find)?,
        })
    }

    /// Launches a kernel of so many blocks on the stream. The arguments are copied before this returns.
    ///
    /// # Safety
    /// They are what `capture_kernels::kernel` says, and their addresses are good when the stream comes to them.
    pub(crate) unsafe fn launch(
        &self,
        context: &Context,
        which: Which,
        blocks: u32,
        stream: CUstream,
        arguments: &mut [*mut c_void],
    ) -> Result<(), CudaError> {
        let function = match which {
            Which::Pack { unit_bytes, is_wide } => self.pack[&(unit_bytes, is_wide)],
            Which::Turn { item_bytes } => self.turn[&item_bytes],
            Which::Hash { item_bytes } => self.hash[&item_bytes],
            Which::Stats { dtype } => self.stats[&dtype],
        };
        let arguments = arguments.as_mut_ptr();
        // SAFETY: the caller's condition.
        let code = unsafe {
            let launch = context.driver.functions.launch;
            launch(function.0, blocks, 1, 1, THREADS, 1, 1, 0, stream, arguments, std::ptr::null_mut())
        };
        context.driver.check("cuLaunchKernel", code)
    }
}

fn all<Key: Copy + Ord>(
    family: &[Kernel<Key>],
    find: impl Fn(&std::ffi::CStr) -> Result<Function, CudaError>,
) -> Result<BTreeMap<Key, Function>, CudaError> {
    family.iter().map(|kernel| Ok((kernel.key, find(kernel.name)?))).collect()
}
