//! Removes, replaces or truncates a model file while a create reads it. The change happens at an
//! event of the create, the first of which precedes reading the header.

use std::path::Path;

use serde_json::json;

use crate::abi::{Chat, Recorder, ask};
use crate::scripted::random::{Memory, random};
use crate::{answers, child_setting, run_child, scripted};

type Change = fn(&Path);

/// The changes to the file.
const CHANGES: [(&str, Change); 8] = [
    ("removed", |path| std::fs::remove_file(path).unwrap_or_default()),
    ("emptied", |path| std::fs::write(path, b"").unwrap()),
    ("a folder", |path| {
        let _ = std::fs::remove_file(path);
        let _ = std::fs::create_dir(path);
    }),
    ("another model", |path| replace(path, &random(Memory::State))),
    ("another model in its place", |path| std::fs::write(path, random(Memory::Dense)).unwrap()),
    ("text", |path| replace(path, &[b'x'; 100_000])),
    ("without permission", |path| {
        use std::os::unix::fs::PermissionsExt;
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o000));
    }),
    ("a broken header", |path| {
        let mut bytes = scripted::text_model().to_bytes();
        bytes[8..24].fill(0xFF);
        replace(path, &bytes);
    }),
];

/// Replaces the file by a new one at the same path.
fn replace(path: &Path, bytes: &[u8]) {
    let other = path.with_extension("new");
    std::fs::write(&other, bytes).unwrap();
    std::fs::rename(other, path).unwrap();
}

#[test]
fn a_file_that_changes_during_a_create_is_survived() {
    let name = "model_files::a_file_that_changes_during_a_create_is_survived";
    if child_setting().is_none() {
        let (status, text) = run_child(name, "1");
        assert!(status.success(), "{text}");
        let (_, counts) = text.split_once("harden: ").unwrap();
        println!("harden: {}", counts.lines().next().unwrap());
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (good, mut faults) = (scripted::text_model().to_bytes(), 0);
    let sound = folder.path().join("sound.gguf");
    std::fs::write(&sound, &good).unwrap();
    for use_mmap in [true, false] {
        for (what, change) in CHANGES {
            // Changes the file at the first event, and at some reports of the load's progress.
            for wanted in [0, 1, 2, 4, 8] {
                let path = folder.path().join(format!("{faults}.gguf"));
                std::fs::write(&path, &good).unwrap();
                let (seen, at) = (std::sync::atomic::AtomicUsize::new(0), path.clone());
                let changed = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
                let noted = std::sync::Arc::clone(&changed);
                let recorder = Recorder::reacting(move |_| {
                    if seen.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == wanted {
                        noted.store(true, std::sync::atomic::Ordering::SeqCst);
                        change(&at);
                    }
                });
                let options = json!({ "model": path, "n_ctx": 256, "n_threads": 2, "use_mmap": use_mmap,
                    "tool_policy": "any" });
                match Chat::open_recorded(&options, recorder) {
                    Ok(chat) => {
                        let reply = chat.infer(&ask(json!({ "max_tokens": 2 })));
                        let code = reply["error"]["code"].as_str();
                        assert!(
                            reply["text"].is_string()
                                || matches!(code, Some("INFERENCE_FAILED" | "ENGINE_CLOSED")),
                            "{what} at event {wanted}: {reply}"
                        );
                    }
                    Err(refused) => assert!(
                        matches!(
                            refused.code(),
                            "MODEL_INVALID" | "MODEL_NOT_FOUND" | "MODEL_NO_TOOL_SUPPORT"
                        ),
                        "{what} at event {wanted}: {refused:?}"
                    ),
                }
                faults += 1;
                assert!(changed.load(std::sync::atomic::Ordering::SeqCst), "no event {wanted}");
                let _ = std::fs::remove_file(&path);
            }
        }
        answers(sound.to_str().unwrap());
    }
    assert!(faults > 4 * CHANGES.len(), "only {faults}");
    println!("harden: inputs={} faults={faults}", CHANGES.len());
}
