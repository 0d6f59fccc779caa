//! Sets the link arguments of the shared library and the processor it is built for. With the
//! feature `header` it generates include/llb.h.

use std::env;

/// The SONAME. It changes with an incompatible ABI only, unlike `LLB_ABI_VERSION`.
const SONAME: &str = "libllb.so.1";
/// The same for macOS.
const MACOS_NAME: &str = "libllb.1.dylib";
/// What starts and joins a `std::thread`. cli/build.rs and scripts/llb.pc.in have them too.
#[cfg(feature = "engine")]
const THREAD_FUNCTIONS: [&str; 2] = [
    "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE",
    "_ZNSt6thread4joinEv",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if target("OS") == "linux" {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,{SONAME}");
        // Hides all symbols of archives: llama.cpp, libstdc++, and llguidance's own C functions,
        // which rustc's version script would export.
        println!("cargo:rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,relro,-z,now");
        // dlclose leaves the library in memory: its threads may still run, and exit handlers and
        // handlers of forks point into it.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
    if target("OS") == "macos" {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-install_name,@rpath/{MACOS_NAME}");
    }

    // `isolation`: helper.cpp has an entry point for these systems, where the dynamic loader runs the
    // library as a helper process.
    println!("cargo:rustc-check-cfg=cfg(llb_isolation)");
    let is_linux = target("OS") == "linux" && ["gnu", "musl"].contains(&target("ENV").as_str());
    let isolates = is_linux && ["x86_64", "aarch64"].contains(&target("ARCH").as_str());
    if isolates {
        println!("cargo:rustc-cfg=llb_isolation");
        if env::var_os("CARGO_FEATURE_ENGINE").is_some() {
            println!("cargo:rustc-cdylib-link-arg=-Wl,-e,llb_helper_entry");
        }
    }

    // `make baseline` builds llama.cpp for any x86-64 processor and sets LLB_CPU.
    println!("cargo:rerun-if-env-changed=LLB_CPU");

    #[cfg(feature = "engine")]
    {
        kernels();
        shim(isolates);
    }
    #[cfg(feature = "header")]
    header();
}

/// Compiles the C++ that catches what llama.cpp and callbacks throw, handles its faults, and ends
/// its threads. llama-cpp-sys-2 links the C++ library. cli/build.rs and scripts/llb.pc.in have the
/// redirections too.
#[cfg(feature = "engine")]
fn shim(isolates: bool) {
    const SOURCES: [&str; 9] = [
        "src/llama/raw/shim.cpp",
        "src/llama/raw/exit.cpp",
        "src/llama/raw/refused_threads.cpp",
        "src/llama/raw/faults.cpp",
        "src/llama/raw/faults_windows.cpp",
        "src/llama/context/threads.cpp",
        "src/llama/kernels/kernels.cpp",
        "src/ffi/host.cpp",
        "src/ffi/helper.cpp",
    ];
    SOURCES.iter().for_each(|source| println!("cargo:rerun-if-changed={source}"));
    println!("cargo:rerun-if-changed=src/llama/raw/faults.h");
    println!("cargo:rerun-if-changed=src/llama/raw/system_thread.h");
    println!("cargo:rerun-if-changed=src/llama/kernels/kernels.h");
    let mut build = cc::Build::new();
    if isolates {
        build.define("LLB_ISOLATION", None);
    }
    if cfg!(feature = "media") {
        build.define("LLB_MEDIA", None);
    }
    build
        .cpp(true)
        .std("c++17")
        .cpp_link_stdlib(None)
        .flag_if_supported("-fvisibility=hidden")
        .files(SOURCES)
        .compile("llb_shim");
    if env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        // ggml's registry starts with the kernels in the library; kernels.cpp decides whether it may.
        println!("cargo:rustc-link-arg=-Wl,--wrap=ggml_backend_cpu_reg");
        // exit.cpp notices new static objects.
        println!("cargo:rustc-link-arg=-Wl,--wrap=__cxa_atexit");
        // refused_threads.cpp does the work of threads that cannot be started.
        for name in THREAD_FUNCTIONS {
            println!("cargo:rustc-link-arg=-Wl,--wrap={name}");
        }
    }
}

/// The identity of this build for files of kernels and devices (docs/backends.md), and what
/// scripts/kernels.py and scripts/devices.py need to compile them.
#[cfg(feature = "engine")]
fn kernels() {
    const SOURCES: [&str; 4] = [
        "src/llama/kernels/kernels.h",
        "src/llama/kernels/loaded_file.h",
        "src/llama/kernels/variant.cpp",
        "src/llama/kernels/device_file.cpp",
    ];
    let read = |path: &str| {
        println!("cargo:rerun-if-changed={path}");
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    let manifest = read("Cargo.toml");
    // A packed crate has a table for each dependency.
    let pinned = ["\nllama-cpp-sys-2 = ", "\n[dependencies.llama-cpp-sys-2]"]
        .iter()
        .find_map(|name| manifest.split_once(name))
        .and_then(|(_, rest)| rest.split('"').find_map(|text| text.strip_prefix('=')));
    let pinned = pinned.expect("the version of llama-cpp-sys-2 is exact");
    // FNV-1a of what both sides must share.
    let shared: String = SOURCES.iter().map(|path| read(path)).collect();
    let hash = shared.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    let version = env!("CARGO_PKG_VERSION");
    let identity = format!("llb {version}, llama-cpp-sys-2 {pinned}, {hash:016x}");
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let built_in = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        _ if flags.contains("target-cpu=native") => "native",
        Ok("x86_64") if env::var("LLB_CPU").is_err() => "haswell",
        Ok("aarch64") => "armv8.0_1",
        _ => "baseline",
    };
    println!("cargo:rustc-env=LLB_KERNELS_IDENTITY={identity}");
    println!("cargo:rustc-env=LLB_KERNELS_BUILT_IN={built_in}");
    // llama-cpp-sys-2 tells a folder in its build folder, which has a record of the compilation.
    let engine = env::var("DEP_LLAMA_GGML_CMAKE_DIR").unwrap_or_default();
    let engine = engine.split('/').find(|part| part.starts_with("llama-cpp-sys-2-")).unwrap_or("");
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let libc = env::var("CARGO_CFG_TARGET_ENV").unwrap_or_default();
    let json = format!(
        "{{\"identity\": \"{identity}\", \"architecture\": \"{architecture}\", \
         \"libc\": \"{libc}\", \"built_in\": \"{built_in}\", \"engine\": \"{engine}\"}}\n"
    );
    std::fs::write(format!("{out}/kernels.json"), json).expect("OUT_DIR is writable");
}

/// Writes the header to `LLB_HEADER`, or to include/llb.h. Only src/ffi is parsed; its files are in
/// reading order.
#[cfg(feature = "header")]
fn header() {
    println!("cargo:rerun-if-changed=src/ffi");
    println!("cargo:rerun-if-changed=cbindgen.toml");
    println!("cargo:rerun-if-env-changed=LLB_HEADER");
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let config = cbindgen::Config::from_file(format!("{root}/cbindgen.toml"))
        .expect("cbindgen.toml is valid");
    let mut builder = cbindgen::Builder::new().with_config(config);
    for file in [
        "callback", "version", "model", "chat", "unload", "embed", "template", "tokens", "memory",
        "fetch", "backends", "guard", "string",
    ] {
        builder = builder.with_src(format!("{root}/src/ffi/{file}.rs"));
    }
    let mut text = Vec::new();
    builder.generate().expect("src/ffi has C types").write(&mut text);
    // Removes Rust's heading for the contract of an unsafe function. In C all of the text is
    // contract.
    let text = String::from_utf8(text).expect("the header is UTF-8").replace(" * # Safety\n", "");
    let path = env::var("LLB_HEADER").unwrap_or_else(|_| format!("{root}/include/llb.h"));
    std::fs::write(&path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
}
