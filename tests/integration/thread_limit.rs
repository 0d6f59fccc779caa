//! Tests a system that refuses to start a thread. The call returns an error, and threads that were
//! already started end.
//!
//! The limit counts all threads and processes of a user and does not apply to root, so a child
//! process of another user runs the cases. Only root can start it.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask, scripted_model, weather_tool};
use crate::isolation::worker;

/// Set in the child. Its value is the path of the model.
const SETTING: &str = "LLB_TEST_THREAD_LIMIT";
/// Set in the child: the option `isolation`.
const ISOLATION: &str = "LLB_TEST_THREAD_LIMIT_ISOLATION";

#[test]
fn a_refused_thread_is_an_error() {
    check("none");
}

#[test]
fn a_refused_thread_or_process_of_a_helper_is_an_error() {
    check("process");
}

#[track_caller]
fn check(isolation: &str) {
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
        .env(ISOLATION, isolation)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{}: {printed}", child.status);
    assert_eq!(printed, "");
}

/// The threads of this process.
pub fn n_threads() -> u64 {
    std::fs::read_dir("/proc/self/task").unwrap().count() as u64
}

/// Lets a process start threads and processes while its user has fewer than this number. 0 is the
/// calling process.
pub fn limit(process: i32, n_threads: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let resource = libc::RLIMIT_NPROC;
    // SAFETY: the limit is valid during the call.
    let read = unsafe { libc::prlimit(process, resource, std::ptr::null(), &raw mut limit) };
    assert_eq!(read, 0);
    limit.rlim_cur = n_threads;
    // SAFETY: as above.
    let set = unsafe { libc::prlimit(process, resource, &raw const limit, std::ptr::null_mut()) };
    assert_eq!(set, 0);
}

#[test]
fn a_child_runs_out_of_threads() {
    let Ok(model) = std::env::var(SETTING) else { return };
    let isolation = std::env::var(ISOLATION).unwrap();
    // The id of a user without other processes.
    let user = 1_000_000 + std::process::id();
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::setuid(user) }, 0);
    // SAFETY: takes numbers. Helpers without a parent come to this process, which waits for them.
    // The kernel counts a process until then.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) }, 0);
    let own = n_threads();
    let options = json!({ "model": model, "n_threads": 64, "isolation": isolation, "log": "info" });
    let mut refused = 0;
    let chat = loop {
        limit(0, own + refused);
        match Chat::open_with(&options) {
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
    let process = if isolation == "process" { worker(&chat.events()) } else { 0 };
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
        assert!(refused < 75, "more threads than the processors and the engine need: {reply}");
        refused += 1;
        limit(process, own + refused);
    };
    assert_eq!(reply["type"], "tool_call", "{reply}");
    assert_eq!(chat.infer(&request)["type"], "tool_call");
    if isolation == "process" {
        check_second_call(&chat, process, options);
    }
}

/// During a call of a chat, its helper cannot start a thread for another call. Only that one fails.
fn check_second_call(chat: &Chat, process: i32, options: Value) {
    let second = Arc::new(OnceLock::new());
    let recorder = Recorder::reacting({
        let second = Arc::clone(&second);
        let options = options.clone();
        move |_| {
            second.get_or_init(|| {
                limit(process, 0);
                Chat::open_with(&options).map(|_| ())
            });
        }
    });
    let reply = chat.stream(&ask(json!({})), &recorder);
    assert_eq!(reply["type"], "assistant_text", "{reply}");
    let refused = second.get().expect("the reply has a piece").as_ref().unwrap_err();
    assert_eq!(refused.code(), "OUT_OF_MEMORY", "{refused:?}");
    assert_eq!(refused.message(), "cannot start the thread llb-helper-call");
    limit(process, 200);
    let again = Chat::open_with(&options).unwrap();
    assert_eq!(worker(&again.events()), process);
}
