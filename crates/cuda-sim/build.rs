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
        .compile("shim");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}
