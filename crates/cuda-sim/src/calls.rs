//! The entry points, as `cuda.h` has them.

/// Functions of the driver: each is counted, fails where a test has planned it, and returns a code.
macro_rules! entry_points {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {
        $(
            /// As documented for the driver.
            ///
            /// # Safety
            /// The arguments are what the driver's documentation says.
            #[unsafe(no_mangle)]
            #[allow(non_snake_case, clippy::too_many_arguments, reason = "the driver's own")]
            pub unsafe extern "C" fn $name($($argument: $kind),*) -> $crate::code::Code {
                let call = || -> $crate::code::Done {
                    $crate::settings::called(stringify!($name))?;
                    // SAFETY: the function's own condition.
                    #[allow(unused_unsafe, reason = "some only hand out numbers")]
                    unsafe {
                        $body
                    }
                };
                match call() {
                    Ok(()) => 0,
                    Err(code) => code,
                }
            }
        )*
    };
}

mod devices;
mod contexts;
mod streams;
mod events;
mod graphs;
mod memories;
mod copies;
mod modules;

pub use contexts::*;
pub use copies::*;
pub use devices::*;
pub use events::*;
pub use graphs::*;
pub use memories::*;
pub use modules::*;
pub use streams::*;
