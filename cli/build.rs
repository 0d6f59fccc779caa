//! Sets the redirections of the library's build.rs, whose link arguments apply to its own programs
//! only.

const THREAD_FUNCTIONS: [&str; 2] = [
    "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE",
    "_ZNSt6thread4joinEv",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-link-arg=-Wl,--wrap=ggml_backend_cpu_reg");
        println!("cargo:rustc-link-arg=-Wl,--wrap=__cxa_atexit");
        for name in THREAD_FUNCTIONS {
            println!("cargo:rustc-link-arg=-Wl,--wrap={name}");
        }
    }
}
