//! What the tests need of a driver, the simulated one or, with `TPCAPTURE_GPU=1`, the machine's own; and of a run.

#![allow(dead_code, reason = "each test uses some of it")]
#![allow(clippy::unwrap_used, clippy::missing_safety_doc, reason = "tests")]
#![expect(unsafe_code, reason = "calls a driver")]

use capture_core::control::{self, Aim};
use capture_core::digested;
use capture_core::tap::{self, CaptureError, Patience};
use capture_core::{Digest, Element, Manifest, TensorView};
use capture_cuda::lane;
use safetensors::SafeTensors;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::{Path, PathBuf};

pub(crate) const RING: usize = 1 << 20;

/// Whether the tests run on the machine's own device. There nothing can be held or made to fail.
pub(crate) fn is_real() -> bool {
    std::env::var_os("TPCAPTURE_GPU").is_some_and(|value| value == "1")
}

/// The driver, before anybody else looks for one.
pub(crate) fn load() {
    static LOADED: std::sync::Once = std::sync::Once::new();
    LOADED.call_once(|| {
        let name = if is_real() {
            c"libcuda.so.1".to_owned()
        } else {
            let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
            CString::new(folder.join("libcuda_sim.so").to_str().unwrap()).unwrap()
        };
        // SAFETY: a driver.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        assert!(!handle.is_null(), "no driver at {name:?}");
        call!(cuInit(0u32));
    });
}

pub(crate) fn symbol(name: &CStr) -> *mut c_void {
    // SAFETY: looks the name up among what is loaded.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    assert!(!found.is_null(), "the driver has no {name:?}");
    found
}

/// Calls a function of the driver and returns its code. Arguments have the types that the driver expects.
macro_rules! code_of {
    ($name:ident($($argument:expr),*)) => {{
        let found = $crate::sim::symbol(
            std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()).unwrap(),
        );
        #[expect(unsafe_code, reason = "calls a driver")]
        // SAFETY: integers and addresses are passed alike in registers or whole words.
        unsafe {
            let function: unsafe extern "C" fn($($crate::sim::word!($argument)),*) -> std::ffi::c_int = std::mem::transmute(found);
            function($(($argument) as usize),*)
        }
    }};
}
macro_rules! word {
    ($argument:expr) => {
        usize
    };
}
/// The same, and it has to succeed.
macro_rules! call {
    ($name:ident($($argument:expr),*)) => {{
        let code = $crate::sim::code_of!($name($($argument),*));
        assert_eq!(code, 0, concat!(stringify!($name), " failed"));
    }};
}
pub(crate) use {call, code_of, word};

/// Makes a device's primary context current.
pub(crate) fn enter(device: c_int) -> usize {
    load();
    let mut context = 0usize;
    call!(cuDevicePrimaryCtxRetain(&raw mut context, device as usize));
    call!(cuCtxSetCurrent(context));
    context
}

pub(crate) fn current_context() -> usize {
    let mut context = 0usize;
    call!(cuCtxGetCurrent(&raw mut context));
    context
}

pub(crate) fn new_stream() -> usize {
    let mut stream = 0usize;
    call!(cuStreamCreate(&raw mut stream, 1));
    stream
}

/// Device memory with those bytes.
pub(crate) fn upload(bytes: &[u8]) -> usize {
    let mut at = 0usize;
    call!(cuMemAlloc_v2(&raw mut at, bytes.len().max(1)));
    if !bytes.is_empty() {
        call!(cuMemcpyHtoD_v2(at, bytes.as_ptr(), bytes.len()));
    }
    at
}

pub(crate) fn overwrite(at: usize, n_bytes: usize, stream: usize) {
    call!(cuMemsetD8Async(at, 0xEE, n_bytes, stream));
}

pub(crate) fn synchronize(stream: usize) {
    call!(cuStreamSynchronize(stream));
}

/// Waits for what has to happen soon.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let since = std::time::Instant::now();
    while !is_so() {
        assert!(since.elapsed() < std::time::Duration::from_secs(20), "{what}: not within 20 s");
        std::thread::yield_now();
    }
}

pub(crate) fn calls(name: &CStr) -> usize {
    let found = symbol(c"cuda_sim_calls");
    // SAFETY: the simulator's.
    unsafe {
        let function: unsafe extern "C" fn(*const std::ffi::c_char) -> u64 = std::mem::transmute(found);
        function(name.as_ptr()) as usize
    }
}

/// A tensor on a device.
pub(crate) struct Tensor<'a> {
    pub(crate) device: c_int,
    pub(crate) stream: usize,
    /// Address of its first item.
    pub(crate) at: usize,
    pub(crate) element: Element,
    pub(crate) shape: &'a [u64],
    pub(crate) strides: &'a [i64],
    pub(crate) ring_bytes: usize,
}

impl Tensor<'_> {
    pub(crate) fn capture(&self, name: &str) -> Result<(), CaptureError> {
        let device = format!("cuda:{}", self.device);
        let lane = lane(self.device, self.stream, self.ring_bytes, None).unwrap();
        // SAFETY: tests give addresses of memory that is there.
        let view =
            unsafe { TensorView::new(self.at as *const u8, self.element, self.shape, self.strides, &device) };
        fire(name, &view.unwrap().on(&lane))
    }
}

pub(crate) fn fire(name: &str, view: &TensorView<'_>) -> Result<(), CaptureError> {
    let tap = tap::tap(name).unwrap();
    let Some(ticket) = tap::begin(tap, view, None, None)? else { return Ok(()) };
    ticket.stage(view, Patience::Full).map(drop)
}

/// A run that is being captured.
pub(crate) struct Capture {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

impl Capture {
    pub(crate) fn begin(select: &str, variables: &[(&str, &str)]) -> Self {
        load();
        static STARTED: std::sync::Once = std::sync::Once::new();
        let variables: BTreeMap<_, _> = variables.iter().copied().collect();
        STARTED.call_once(|| control::start(|name| variables.get(name).map(Into::into)));
        let dir = tempfile::tempdir().unwrap();
        let aim = Aim { selection: select.parse().unwrap(), ..Aim::everything(dir.path().to_owned()) };
        let path = control::switch_on(aim).unwrap();
        Self { dir, path }
    }

    pub(crate) fn end(self) -> Run {
        // The last error, which the manifest has, too.
        let _ = control::switch_off("test");
        Run::read(&self.path)
    }
}

/// What was captured.
#[derive(Debug)]
pub(crate) struct Run {
    /// Bytes by the tensor's name in the file.
    pub(crate) tensors: BTreeMap<String, Vec<u8>>,
    /// By tap.
    pub(crate) digests: BTreeMap<String, Digest>,
    pub(crate) manifest: Manifest,
}

impl Run {
    fn read(path: &Path) -> Self {
        let (mut tensors, mut digests, mut manifest) = (BTreeMap::new(), BTreeMap::new(), None);
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("safetensors") => {
                    for (name, tensor) in SafeTensors::deserialize(&bytes).unwrap().iter() {
                        tensors.insert(name.to_owned(), tensor.data().to_vec());
                    }
                }
                Some("jsonl") => {
                    let (_, records, errors) = digested::decode(&bytes).unwrap().unwrap();
                    assert_eq!(errors, []);
                    digests.extend(records.into_iter().map(|record| (record.record.tap, record.digest)));
                }
                _ => manifest = Some(Manifest::parse(&bytes).unwrap()),
            }
        }
        Self { tensors, digests, manifest: manifest.unwrap() }
    }

    pub(crate) fn reasons(&self) -> Vec<String> {
        self.manifest.losses.iter().map(|loss| loss.reason.clone()).collect()
    }
}
