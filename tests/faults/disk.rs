//! Tests a state file and prefixes on a full disk. (tests/hub/full.rs does the same for downloads.)

use serde_json::json;

use crate::abi::{Chat, ask, scripted_model};
use crate::{child_setting, run_child, scripted};

/// Limits files that this process writes to this many bytes, as on a full disk. The signal for the
/// limit is ignored, so that a write fails.
fn limit_files(bytes: u64) {
    // SAFETY: a signal may be ignored.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is valid.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

#[test]
fn a_state_that_does_not_fit_leaves_the_old_one() {
    let name = "disk::a_state_that_does_not_fit_leaves_the_old_one";
    if child_setting().is_none() {
        let (status, text) = run_child(name, "1");
        assert!(status.success(), "{text}");
        println!("harden: inputs=1 faults=3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let model = scripted_model("text.gguf");
    let options = json!({ "model": model, "n_ctx": 512, "state_file": state, "log": "warn" });
    let open = || Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
    open().infer(&ask(json!({})));
    let old = std::fs::read(&state).unwrap();
    assert!(old.len() > 1000);
    for bytes in [0, 100, old.len() as u64 / 2] {
        limit_files(u64::MAX);
        let chat = open();
        let reply = chat.infer(&ask(json!({ "max_tokens": 3 })));
        assert!(scripted::TEXT.starts_with(reply["text"].as_str().unwrap()), "{reply}");
        limit_files(bytes);
        llb::ffi::llb_chat_destroy(chat.handle());
        let events = chat.events();
        assert!(
            events.iter().any(|event| event.starts_with("log:error:state_file: ")),
            "{bytes}: {events:?}"
        );
        assert_eq!(std::fs::read(&state).unwrap(), old, "the old file is kept");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a part is left");
    }
    limit_files(u64::MAX);
    assert_eq!(open().infer(&ask(json!({})))["text"], scripted::TEXT);
}

#[test]
fn prefixes_that_do_not_fit_are_no_error() {
    let name = "disk::prefixes_that_do_not_fit_are_no_error";
    if child_setting().is_none() {
        let (status, text) = run_child(name, "1");
        assert!(status.success(), "{text}");
        println!("harden: inputs=1 faults=3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("cache");
    let model = scripted_model("text.gguf");
    let options = json!({
        "model": model, "n_ctx": 512, "cache_dir": folder, "log": "warn", "isolation": "none",
    });
    let open = || Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
    let rules = json!({ "role": "system", "content": "x".repeat(100) });
    let request = ask(json!({ "messages": [rules, { "role": "user", "content": "Hello" }] }));
    for bytes in [0, 100, 5000] {
        let chat = open();
        limit_files(bytes);
        let reply = chat.infer(&request);
        assert_eq!(reply["text"], scripted::TEXT, "{reply}");
        llb::ffi::llb_chat_destroy(chat.handle());
        limit_files(u64::MAX);
        let events = chat.events();
        let warned = |event: &String| event.starts_with("log:warn:cache_dir: ");
        assert!(events.iter().any(warned), "{bytes}: {events:?}");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "a part is left");
    }
    // Each chat is destroyed before the next is created.
    let read = |chat: Chat| chat.infer(&request)["timings"]["disk_tokens"].as_u64();
    assert_eq!(read(open()), Some(0));
    assert!(read(open()).is_some_and(|read| read > 0));
}
