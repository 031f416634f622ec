//! The driver of this process: found once, and every call of it checked.
#![expect(unsafe_code, reason = "calls a C library")]

use crate::error::{CudaError, SUCCESS};
use crate::functions::Functions;
use cudarc::driver::sys;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::sync::OnceLock;

/// Why no device can be captured from in this process. Host memory can.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// There is no driver.
    #[error(
        "libcuda.so.1 is not there: no NVIDIA driver is installed, or the container was started without it"
    )]
    NoLibrary,
    /// A driver that lacks what is needed.
    #[error("the driver{} has no {symbol}: expected one of CUDA 12.0 or later", version_text(*version))]
    NoSymbol {
        /// As `cuDriverGetVersion` gives it; 0 where not even that is known.
        version: i32,
        /// What it lacks.
        symbol: &'static str,
    },
    /// A child of fork: there every call of the driver may hang or fail.
    #[error("CUDA does not survive fork, and this process is a child of one that used it")]
    Forked,
    /// It does not start.
    #[error("the driver does not start: {0}")]
    NoStart(String),
}

/// A version as `cuDriverGetVersion` gives it, in words.
fn version_text(version: i32) -> String {
    if version == 0 { String::new() } else { format!(" of CUDA {}.{}", version / 1000, version % 1000 / 10) }
}

pub(crate) struct Driver {
    pub(crate) functions: Functions,
    /// `13.2`
    pub(crate) version: String,
    /// The process that started it.
    pid: u32,
}

/// The driver, looked for at most once in the life of the process.
pub(crate) fn driver() -> Result<&'static Driver, Unavailable> {
    static DRIVER: OnceLock<Result<Driver, Unavailable>> = OnceLock::new();
    let found = DRIVER.get_or_init(Driver::find).as_ref().map_err(Clone::clone)?;
    if found.pid == std::process::id() { Ok(found) } else { Err(Unavailable::Forked) }
}

impl Driver {
    fn find() -> Result<Self, Unavailable> {
        let library = library().ok_or(Unavailable::NoLibrary)?;
        // SAFETY: of a library that stays loaded; what is there is for `Functions` to know.
        let find = |symbol: &CStr| unsafe { libc::dlsym(library, symbol.as_ptr()) };
        let version = version(find(c"cuDriverGetVersion"));
        let functions = Functions::load(find).map_err(|symbol| Unavailable::NoSymbol { version, symbol })?;
        let version = format!("{}.{}", version / 1000, version % 1000 / 10);
        let driver = Self { functions, version, pid: std::process::id() };
        // SAFETY: harmless where the framework did it before.
        let started = driver.check("cuInit", unsafe { (driver.functions.init)(0) });
        started.map_err(|error| Unavailable::NoStart(error.to_string()))?;
        Ok(driver)
    }

    /// What a call returned.
    pub(crate) fn check(&self, call: &'static str, code: c_int) -> Result<(), CudaError> {
        if code == SUCCESS { Ok(()) } else { Err(self.error(call, code)) }
    }

    #[cold]
    fn error(&self, call: &'static str, code: c_int) -> CudaError {
        let mut text = std::ptr::null();
        // SAFETY: fills in the address of a text that is never freed, or null.
        let known = unsafe { (self.functions.error_name)(code, &raw mut text) };
        let name = if known == SUCCESS && !text.is_null() {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        } else {
            format!("error {code}")
        };
        CudaError { call, code, name }
    }

    /// An attribute of a device.
    pub(crate) fn attribute(&self, device: c_int, which: sys::CUdevice_attribute) -> Result<u32, CudaError> {
        let mut value = 0;
        // SAFETY: fills in the value.
        let code = unsafe { (self.functions.device_attribute)(&raw mut value, which as c_int, device) };
        self.check("cuDeviceGetAttribute", code)?;
        Ok(value.unsigned_abs())
    }

    /// What a device is called by its maker.
    pub(crate) fn device_name(&self, device: c_int) -> Result<String, CudaError> {
        let mut name = [0; 256];
        // SAFETY: writes at most so many bytes, the last of them zero.
        let code = unsafe { (self.functions.device_name)(name.as_mut_ptr(), name.len() as c_int, device) };
        self.check("cuDeviceGetName", code)?;
        // SAFETY: as above.
        Ok(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }

    /// How many devices the process sees.
    pub(crate) fn device_count(&self) -> Result<c_int, CudaError> {
        let mut count = 0;
        // SAFETY: fills in the count.
        self.check("cuDeviceGetCount", unsafe { (self.functions.device_count)(&raw mut count) })?;
        Ok(count)
    }

    /// Whether somebody uses the device's primary context.
    pub(crate) fn is_in_use(&self, device: c_int) -> bool {
        let (mut flags, mut active): (c_uint, c_int) = (0, 0);
        // SAFETY: fills in both.
        let code = unsafe { (self.functions.primary_state)(device, &raw mut flags, &raw mut active) };
        code == SUCCESS && active != 0
    }
}

/// The driver that the process has loaded already, as every framework has; only else the one that the system finds. There
/// may be a stub on the way to that one, and two drivers in a process would be one too many.
fn library() -> Option<*mut c_void> {
    let name = c"libcuda.so.1";
    [libc::RTLD_NOLOAD | libc::RTLD_NOW, libc::RTLD_NOW].into_iter().find_map(|flags| {
        // SAFETY: the constructors of a driver are trusted. The handle is never closed.
        let library = unsafe { libc::dlopen(name.as_ptr(), flags) };
        (!library.is_null()).then_some(library)
    })
}

/// What `cuDriverGetVersion`, which lies there, says; 0 where it says nothing.
fn version(function: *mut c_void) -> c_int {
    let mut version = 0;
    if function.is_null() {
        return version;
    }
    // SAFETY: the driver's function of that name has this signature; it needs no initialisation.
    let status = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_int) -> c_int>(function)(
            &raw mut version,
        )
    };
    if status == SUCCESS { version } else { 0 }
}
