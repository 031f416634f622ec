//! CUDA's numbers for what can go wrong.

pub(crate) type Code = i32;
/// What an entry point comes to.
pub(crate) type Done = Result<(), Code>;

macro_rules! codes {
    ($($name:ident = $code:literal;)*) => {
        $(pub(crate) const $name: Code = $code;)*

        /// CUDA's name of a code.
        pub(crate) fn name(code: Code) -> Option<&'static std::ffi::CStr> {
            match code {
                0 => Some(c"CUDA_SUCCESS"),
                $($code => std::ffi::CStr::from_bytes_with_nul(concat!("CUDA_ERROR_", stringify!($name), "\0").as_bytes()).ok(),)*
                _ => None,
            }
        }
    };
}

codes! {
    INVALID_VALUE = 1;
    OUT_OF_MEMORY = 2;
    NOT_INITIALIZED = 3;
    STUB_LIBRARY = 34;
    NO_DEVICE = 100;
    INVALID_DEVICE = 101;
    INVALID_CONTEXT = 201;
    NO_BINARY_FOR_GPU = 209;
    UNSUPPORTED_PTX_VERSION = 222;
    INVALID_HANDLE = 400;
    NOT_FOUND = 500;
    NOT_READY = 600;
    ILLEGAL_ADDRESS = 700;
    HOST_MEMORY_ALREADY_REGISTERED = 712;
    HOST_MEMORY_NOT_REGISTERED = 713;
    LAUNCH_FAILED = 719;
    STREAM_CAPTURE_UNSUPPORTED = 900;
    STREAM_CAPTURE_INVALIDATED = 901;
    STREAM_CAPTURE_ISOLATION = 905;
    STREAM_CAPTURE_IMPLICIT = 906;
    CAPTURED_EVENT = 907;
}
