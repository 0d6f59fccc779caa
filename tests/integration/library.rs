//! Tests the library file: its exports and dependencies. The file is `LLB_LIBRARY` (set by `make
//! test`), or the one next to the test program.

use std::path::{Path, PathBuf};
use std::process::Command;

const HEADER: &str = include_str!("../../include/llb.h");

fn library() -> PathBuf {
    match std::env::var_os("LLB_LIBRARY") {
        Some(path) => path.into(),
        None => {
            std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("libllb.so")
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    run_on(&library(), program, arguments)
}

fn run_on(file: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .arg(file)
        .output()
        .unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The functions that a header declares: all words that start with `llb_` and precede a
/// parenthesis.
fn declared() -> Vec<String> {
    let code = HEADER.lines().filter(|line| !line.trim_start().starts_with(['*', '/']));
    let calls = code.filter_map(|line| line.split_once('(').map(|(before, _)| before));
    let names = calls.filter_map(|before| {
        before.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next()
    });
    let mut names: Vec<String> =
        names.filter(|name| name.starts_with("llb_")).map(str::to_owned).collect();
    names.sort();
    names
}

#[test]
fn the_functions_of_the_header_are_exported_and_nothing_else() {
    let table = run("nm", &["-D", "--defined-only"]);
    let mut exported: Vec<&str> =
        table.lines().filter_map(|line| line.split_whitespace().last()).collect();
    exported.sort_unstable();
    assert_eq!(exported, declared());
    assert_eq!(exported.len(), 30);
}

/// The names that a file lists under a tag in its dynamic section.
fn dynamic_names(file: &Path, tag: &str) -> Vec<String> {
    let dynamic = run_on(file, "readelf", &["-d", "-W"]);
    let lines = dynamic.lines().filter(|line| line.contains(tag));
    lines.filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned())).collect()
}

#[track_caller]
fn check_needed(file: &Path) {
    for needed in dynamic_names(file, "(NEEDED)") {
        // The last file is glibc's dynamic loader, which every process has.
        let allowed = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"];
        assert!(allowed.contains(&needed.as_str()), "{} needs {needed}", file.display());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_file_of_kernels_exports_its_entry_and_needs_only_the_c_library() {
    for file in crate::backends::files().values() {
        let table = run_on(file, "nm", &["-D", "--defined-only"]);
        let exported: Vec<&str> =
            table.lines().filter_map(|line| line.split_whitespace().last()).collect();
        assert_eq!(exported, ["llb_kernels_open"], "{}", file.display());
        check_needed(file);
        for tag in ["(RPATH)", "(RUNPATH)", "(TEXTREL)"] {
            assert!(!run_on(file, "readelf", &["-d", "-W"]).contains(tag), "{}", file.display());
        }
        // Its undefined symbols are in the C library and the unwinder, and not in ggml or C++.
        let needed = run_on(file, "nm", &["-D", "--undefined-only"]);
        let strange = needed.lines().find(|line| line.contains("ggml") || line.contains(" _Z"));
        assert_eq!(strange, None, "{}", file.display());
    }
}

#[test]
fn only_the_c_library_is_needed() {
    check_needed(&library());
    // The SONAME changes only with an incompatible ABI, but the version with every new function.
    assert_eq!(dynamic_names(&library(), "(SONAME)"), ["libllb.so.1"]);
    assert_eq!(llb::ffi::llb_abi_version(), llb::ffi::LLB_ABI_VERSION);
}

#[test]
fn the_version_names_llb_and_llama_cpp() {
    // SAFETY: returns a static string.
    let version = unsafe { std::ffi::CStr::from_ptr(llb::ffi::llb_version()) }.to_str().unwrap();
    let rest = version
        .strip_prefix(concat!("llb ", env!("CARGO_PKG_VERSION"), " (llama.cpp b"))
        .expect(version);
    // Kernels from a file follow, by the name of their variant.
    let (build, _) = rest.split_once(')').expect(version);
    assert!(build.parse::<u32>().is_ok(), "{version}");
}
