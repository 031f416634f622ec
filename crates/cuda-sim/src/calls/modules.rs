//! Modules and launches. Images are not looked into, but for their beginning: the kernels are those of `shim/`.

use crate::capture;
use crate::code::{
    INVALID_HANDLE, INVALID_VALUE, LAUNCH_FAILED, NO_BINARY_FOR_GPU, NOT_FOUND, UNSUPPORTED_PTX_VERSION,
};
use crate::context::{self, Function, Handle, REGISTRY, new_handle, sticky};
use crate::settings::{driver_version, lock, random};
use crate::shim::{self, Launch};
use crate::submit::{submit, work};
use std::ffi::{CStr, c_char, c_uint, c_void};

/// The first driver that knows the images.
const CUDA_12: i32 = 12_000;

entry_points! {
    fn cuModuleLoadData(module: *mut Handle, image: *const c_void) {
        capture::forbid()?;
        let context = context::current()?;
        let is_cubin = std::slice::from_raw_parts(image.cast::<u8>(), 4) == b"\x7fELF";
        match driver_version() {
            version if version < CUDA_12 && is_cubin => return Err(NO_BINARY_FOR_GPU),
            version if version < CUDA_12 + 80 && !is_cubin => return Err(UNSUPPORTED_PTX_VERSION),
            _ => {}
        }
        *module = new_handle();
        lock(&REGISTRY).modules.insert(*module, context);
        sticky()
    }

    fn cuModuleGetFunction(function: *mut Handle, module: Handle, name: *const c_char) {
        let mut registry = lock(&REGISTRY);
        let context = *registry.modules.get(&module).ok_or(INVALID_HANDLE)?;
        let name = CStr::from_ptr(name);
        if !shim::has(name) {
            return Err(NOT_FOUND);
        }
        *function = new_handle();
        registry.functions.insert(*function, Function { context, name: name.to_owned() });
        Ok(())
    }

    fn cuLaunchKernel(
        function: Handle,
        grid: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        threads: c_uint,
        threads_y: c_uint,
        threads_z: c_uint,
        _shared_bytes: c_uint,
        stream: Handle,
        arguments: *mut *mut c_void,
        _extra: *mut *mut c_void,
    ) {
        let stream = context::stream_of_current(stream)?;
        let function = lock(&REGISTRY).functions.get(&function).cloned().ok_or(INVALID_HANDLE)?;
        if function.context != stream.context {
            return Err(INVALID_HANDLE);
        }
        // Kernels of one dimension are all there are.
        if grid == 0 || !(1..=1024).contains(&threads) || [grid_y, grid_z, threads_y, threads_z] != [1; 4] {
            return Err(INVALID_VALUE);
        }
        let device = context::current_device()?;
        let launch = Launch::copy(&function.name, arguments);
        submit(&stream, work(move || match launch.run(device, grid, threads, random()) {
            None => Ok(()),
            Some(wrong) => {
                eprintln!("cuda-sim: kernel {:?}: {wrong}", function.name);
                Err(LAUNCH_FAILED)
            }
        }))
    }
}
