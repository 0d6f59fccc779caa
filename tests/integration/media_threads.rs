//! Tests media where the system refuses to start threads. A child process of another user runs the
//! cases, as in `thread_limit`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use llb::gguf::ProjectorType;
use serde_json::{Value, json};

use crate::abi::Chat;
use crate::media::{about as about_picture, ask, open};
use crate::scripted::projector::{model, projector};
use crate::sounds::{about as about_sound, tone};
use crate::thread_limit::{limit, n_threads};

/// Set in the child. Its value is the folder of the models.
const SETTING: &str = "LLB_TEST_MEDIA_THREADS";
const HEARS: ProjectorType = ProjectorType::Qwen2Audio;
const SEES: ProjectorType = ProjectorType::Gemma3;
/// More threads than any call here starts.
const MANY: u64 = 500;

#[test]
fn media_without_threads_end_no_process() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        assert!(std::env::var_os("LLB_REQUIRE_ALL").is_none(), "only root can test thread limits");
        eprintln!("SKIPPED: only root can test thread limits");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let public = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    public(folder.path(), 0o755);
    for kind in [HEARS, SEES] {
        for (name, bytes) in [("model", model(kind)), ("mmproj", projector(kind))] {
            let path = folder.path().join(format!("{name}-{}.gguf", kind.as_str()));
            std::fs::write(&path, bytes).unwrap();
            public(&path, 0o644);
        }
    }
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["media_threads::a_child_reads_media_without_threads", "--exact", "--nocapture"])
        .env(SETTING, folder.path())
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{}: {printed}", child.status);
    assert_eq!(printed, "");
}

/// Options for a model with this projector, whose encoder has so many threads.
fn options(folder: &str, kind: ProjectorType, n_threads: u32) -> Value {
    let path = |name| format!("{folder}/{name}-{}.gguf", kind.as_str());
    json!({ "model": path("model"), "projector": path("mmproj"), "tool_policy": "any",
        "n_ctx": 2048, "n_batch": 64, "n_threads": n_threads, "cache_type_k": "f32",
        "cache_type_v": "f32", "flash_attn": "off" })
}

#[test]
fn a_child_reads_media_without_threads() {
    let Ok(folder) = std::env::var(SETTING) else { return };
    // The id of a user without other processes.
    let user = 2_000_000 + std::process::id();
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::setuid(user) }, 0);
    // A create computes the spectra of a second of sound.
    for spare in 0..6 {
        limit(0, n_threads() + spare);
        if let Err(refused) = Chat::open_with(&options(&folder, HEARS, 1)) {
            assert_eq!(refused.code(), "OUT_OF_MEMORY", "{refused:?}");
        }
        limit(0, MANY);
    }
    // A sound is computed with the threads that there are.
    let [chat, other] = [(), ()].map(|()| open(&options(&folder, HEARS, 1)));
    for spare in 0..4 {
        let sound = about_sound(&tone(300.0 + 200.0 * spare as f32, 400_000));
        limit(0, n_threads() + spare);
        let reply = ask(&chat, &sound);
        limit(0, MANY);
        assert_eq!(reply["text"], ask(&other, &sound)["text"], "{spare}");
    }
    // A picture is an error, or is computed.
    for spare in 0..4 {
        let chat = open(&options(&folder, SEES, 4));
        limit(0, n_threads() + spare);
        let request = json!({ "messages": about_picture([9, 9, spare as u8]), "max_tokens": 4 });
        let reply = chat.infer(&request);
        limit(0, MANY);
        // The message of the second one is that of an assertion about the thread.
        let codes = [Value::Null, json!("OUT_OF_MEMORY"), json!("INFERENCE_FAILED")];
        assert!(codes.contains(&reply["error"]["code"]), "{reply}");
    }
}
