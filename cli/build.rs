//! Sets the link argument that the library's build.rs sets for its own programs: ggml's registry then
//! starts on a processor that cannot run the kernels in the program (src/llama/kernels/kernels.cpp).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-link-arg=-Wl,--wrap=ggml_backend_cpu_reg");
    }
}
