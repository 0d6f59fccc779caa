//! Link arguments of the shared library, the processor it is built for, and (feature `header`)
//! include/llb.h.

use std::env;

/// The ABI version in the SONAME; `LLB_ABI_VERSION` in src/ffi/version.rs (a test compares them).
const SONAME: &str = "libllb.so.1";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") == "linux" {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
        // Whatever archives define stays inside: llama.cpp, libstdc++, and llguidance's own C
        // functions, which rustc's version script would let through.
        println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,relro,-z,now");
    }

    // `make baseline` builds llama.cpp for any x86-64 and says so here, so that create asks for no
    // more than that.
    println!("cargo:rustc-check-cfg=cfg(llb_cpu_baseline)");
    println!("cargo:rerun-if-env-changed=LLB_CPU");
    if env::var("LLB_CPU").is_ok_and(|cpu| cpu == "baseline") {
        println!("cargo:rustc-cfg=llb_cpu_baseline");
    }

    #[cfg(feature = "header")]
    header();
}

/// Writes the header to `LLB_HEADER`, or to include/llb.h. Only src/ffi is parsed, in the order a
/// reader wants it.
#[cfg(feature = "header")]
fn header() {
    println!("cargo:rerun-if-changed=src/ffi");
    println!("cargo:rerun-if-changed=cbindgen.toml");
    println!("cargo:rerun-if-env-changed=LLB_HEADER");
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let config = cbindgen::Config::from_file(format!("{root}/cbindgen.toml"))
        .expect("cbindgen.toml is valid");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in ["callback", "version", "model", "chat", "template", "fetch", "guard", "string"] {
        builder = builder.with_src(format!("{root}/src/ffi/{file}.rs"));
    }
    let mut text = Vec::new();
    builder.generate().expect("src/ffi has C types").write(&mut text);
    // Rust's heading for what an unsafe function asks of its caller; in C all of it is the
    // contract.
    let text = String::from_utf8(text).expect("the header is UTF-8").replace(" * # Safety\n", "");
    let path = env::var("LLB_HEADER").unwrap_or_else(|_| format!("{root}/include/llb.h"));
    std::fs::write(&path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
}
