//! Compiles the project's kernels as host C++, and names the library as the driver is named.

fn main() {
    println!("cargo:rerun-if-changed=shim");
    println!("cargo:rerun-if-changed=../../kernels/cu");
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .opt_level(2)
        .include("shim")
        .include("../../kernels/cu")
        .file("shim/table.cpp")
        .flag_if_supported("-Wno-unknown-pragmas")
        // An access that is not a multiple of its size is an error of the device: here it ends the process.
        .flag_if_supported("-fsanitize=alignment")
        .flag_if_supported("-fsanitize-undefined-trap-on-error")
        .compile("shim");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}
