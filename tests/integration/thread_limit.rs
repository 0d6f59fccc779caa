//! Tests a system that refuses to start a thread. The call returns an error, and threads that were
//! already started end.
//!
//! The limit counts all threads of a user and does not apply to root, so a child process of another
//! user runs the cases. Only root can start it.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use serde_json::json;

use crate::abi::{Chat, ask, scripted_model, weather_tool};

/// Set in the child. Its value is the path of the model.
const SETTING: &str = "LLB_TEST_THREAD_LIMIT";

#[test]
fn a_refused_thread_is_an_error() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        assert!(std::env::var_os("LLB_REQUIRE_ALL").is_none(), "only root can test thread limits");
        eprintln!("SKIPPED: only root can test thread limits");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let model = folder.path().join("tool_call.gguf");
    std::fs::copy(scripted_model("tool_call.gguf"), &model).unwrap();
    std::fs::set_permissions(&model, PermissionsExt::from_mode(0o644)).unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["thread_limit::a_child_runs_out_of_threads", "--exact", "--nocapture"])
        .env(SETTING, model)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{}: {printed}", child.status);
    assert_eq!(printed, "");
}

fn n_threads() -> u64 {
    std::fs::read_dir("/proc/self/task").unwrap().count() as u64
}

/// Limits this user to this number of threads.
fn limit(n_threads: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is valid during the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &raw mut limit) }, 0);
    limit.rlim_cur = n_threads;
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }, 0);
}

#[test]
fn a_child_runs_out_of_threads() {
    let Ok(model) = std::env::var(SETTING) else { return };
    // The id of a user without other processes.
    let user = 1_000_000 + std::process::id();
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::setuid(user) }, 0);
    let own = n_threads();
    let mut refused = 0;
    let chat = loop {
        limit(own + refused);
        match Chat::open_with(&json!({ "model": model, "n_threads": 64 })) {
            Ok(chat) => break chat,
            Err(failure) => {
                assert_eq!(failure.code(), "OUT_OF_MEMORY", "{failure:?}");
                assert_eq!(failure.events.last().unwrap(), "create_failure:oom");
                assert!(failure.message().starts_with("cannot start"), "{failure:?}");
            }
        }
        // Waits until no thread of the library is left, waiting or computing.
        while n_threads() > own {
            std::thread::yield_now();
        }
        refused += 1;
    };
    assert!(refused > 0, "the engine's thread needs room");
    // The thread that prepares grammars may have been refused. The request then does that work on
    // the thread that compiles its grammar. If that thread cannot be started either, the request is
    // an error and the chat stays usable.
    let request = ask(json!({ "tools": [weather_tool()] }));
    let reply = loop {
        let reply = chat.infer(&request);
        if reply["type"] != "error" {
            break reply;
        }
        assert_eq!(reply["error"]["code"], "OUT_OF_MEMORY", "{reply}");
        assert!(refused < 70, "more threads than the processors and the engine need: {reply}");
        refused += 1;
        limit(own + refused);
    };
    assert_eq!(reply["type"], "tool_call", "{reply}");
    assert_eq!(chat.infer(&request)["type"], "tool_call");
}
