//! Injects faults of the system: memory that cannot be allocated, disks that are full, files that
//! vanish, clocks that jump. None of them may end the process, and later calls must work as usual.
//!
//! This program has its own `malloc` and `clock_gettime`, which the linker prefers to those of the
//! C library. Only allocations inside llama.cpp fail. Rust's allocations do not use that `malloc`,
//! because stable Rust ends the process when one fails. The C library does the same for some of its
//! own.
//!
//! `LLB_FAULTS_SECONDS` is the time to search through allocations (`make harden`). Without it, only
//! a sample is tried.
#![cfg(all(target_os = "linux", target_env = "gnu"))]
#![allow(unsafe_code, reason = "calls the C ABI, and takes the place of C functions")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "the table is printed")]
#![allow(missing_docs, unreachable_pub, dead_code, reason = "a test program")]

#[path = "../integration/abi.rs"]
mod abi;
mod allocations;
mod clock;
mod disk;
mod libc_functions;
mod model_files;
#[path = "../integration/run_folder.rs"]
mod run_folder;
#[path = "../scripted/mod.rs"]
mod scripted;

use std::process::{Command, ExitStatus};

use serde_json::json;

use abi::{Chat, ask};

/// Set in a child process. It selects the case to run.
const CHILD: &str = "LLB_FAULTS_CHILD";

/// The setting for a test in a child process; `None` in the parent.
fn child_setting() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// Runs the test with this name in a child process. Returns its status and its output.
fn run_child(name: &str, setting: &str) -> (ExitStatus, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, setting)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("running 1 test"), "{name} did not run: {text}");
    (output.status, text)
}

/// Checks that a scripted model at this path replies correctly.
#[track_caller]
fn answers(path: &str) {
    let options = json!({ "model": path, "n_ctx": 512, "n_threads": 2 });
    let chat = Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
    assert_eq!(chat.infer(&ask(json!({})))["text"], scripted::TEXT);
}

/// Reads a setting that is a number of seconds.
fn seconds() -> Option<u64> {
    std::env::var("LLB_FAULTS_SECONDS").ok().map(|text| text.parse().unwrap())
}
