//! The driver's functions, as they are: looked up once, all of them, so that a driver that lacks one is known before anything
//! is under way. They return plain numbers, since a newer driver may have errors that no enum has.
#![expect(unsafe_code, reason = "functions of a C library")]

use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUfunction, CUmodule, CUstream};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

macro_rules! functions {
    ($($field:ident: $symbol:literal($($argument:ty),*);)*) => {
        /// Every function that is called.
        pub(crate) struct Functions {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            /// Looks them up; the name of the first that is not there.
            pub(crate) fn load(find: impl Fn(&CStr) -> *mut c_void) -> Result<Self, &'static str> {
                Ok(Self {
                    $($field: {
                        let name = concat!($symbol, "\0").as_bytes();
                        let found = find(CStr::from_bytes_with_nul(name).map_err(|_| $symbol)?);
                        if found.is_null() {
                            return Err($symbol);
                        }
                        // SAFETY: the driver's function of that name has this signature, by its documentation.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> c_int>(found) }
                    },)*
                })
            }
        }
    };
}

functions! {
    init: "cuInit"(c_uint);
    error_name: "cuGetErrorName"(c_int, *mut *const c_char);
    device_count: "cuDeviceGetCount"(*mut c_int);
    device_get: "cuDeviceGet"(*mut CUdevice, c_int);
    device_name: "cuDeviceGetName"(*mut c_char, c_int, CUdevice);
    device_attribute: "cuDeviceGetAttribute"(*mut c_int, c_int, CUdevice);
    primary_retain: "cuDevicePrimaryCtxRetain"(*mut CUcontext, CUdevice);
    primary_state: "cuDevicePrimaryCtxGetState"(CUdevice, *mut c_uint, *mut c_int);
    context_current: "cuCtxGetCurrent"(*mut CUcontext);
    context_push: "cuCtxPushCurrent_v2"(CUcontext);
    context_pop: "cuCtxPopCurrent_v2"(*mut CUcontext);
    capture_mode: "cuThreadExchangeStreamCaptureMode"(*mut c_uint);
    stream_create: "cuStreamCreate"(*mut CUstream, c_uint);
    stream_context: "cuStreamGetCtx"(CUstream, *mut CUcontext);
    stream_is_capturing: "cuStreamIsCapturing"(CUstream, *mut c_uint);
    stream_wait: "cuStreamWaitEvent"(CUstream, CUevent, c_uint);
    event_create: "cuEventCreate"(*mut CUevent, c_uint);
    event_record: "cuEventRecord"(CUevent, CUstream);
    event_synchronize: "cuEventSynchronize"(CUevent);
    memory_alloc: "cuMemAlloc_v2"(*mut CUdeviceptr, usize);
    host_register: "cuMemHostRegister_v2"(*mut c_void, usize, c_uint);
    host_unregister: "cuMemHostUnregister"(*mut c_void);
    host_address: "cuMemHostGetDevicePointer_v2"(*mut CUdeviceptr, *mut c_void, c_uint);
    copy: "cuMemcpyAsync"(CUdeviceptr, CUdeviceptr, usize, CUstream);
    copy_to_host: "cuMemcpyDtoHAsync_v2"(*mut c_void, CUdeviceptr, usize, CUstream);
    pointer_attributes: "cuPointerGetAttributes"(c_uint, *mut c_int, *mut *mut c_void, CUdeviceptr);
    module_load: "cuModuleLoadData"(*mut CUmodule, *const c_void);
    module_function: "cuModuleGetFunction"(*mut CUfunction, CUmodule, *const c_char);
    launch: "cuLaunchKernel"(
        CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void, *mut *mut c_void
    );
}
