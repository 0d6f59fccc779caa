//! Tests paths that do not lead to a regular file, and files whose content does not match their
//! names. Every function must report the problem and must never block.
#![cfg(unix)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, ask, call, model_info, scripted_model};
use crate::scripted::gguf_writer::GgufWriter;
use crate::scripted::{TEXT, TOOLS_TEMPLATE};

/// Runs a case on a separate thread, because a failure here is a call that never returns.
#[track_caller]
fn ends<T: Send + 'static>(what: &str, case: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = channel();
    std::thread::spawn(move || done.send(case()));
    let minute = Duration::from_secs(60);
    result.recv_timeout(minute).unwrap_or_else(|_| panic!("{what}: it failed or does not end"))
}

/// Paths that are not regular files, with the description that an error uses.
fn odd_paths(folder: &Path) -> Vec<(PathBuf, &'static str)> {
    let pipe = folder.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let socket = folder.join("socket");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let inside = folder.join("folder");
    std::fs::create_dir(&inside).unwrap();
    let zeros = folder.join("zeros");
    std::os::unix::fs::symlink("/dev/zero", &zeros).unwrap();
    vec![(pipe, "a named pipe"), (socket, "a socket"), (inside, "a directory"), (zeros, "a device")]
}

#[test]
fn every_option_that_names_a_file() {
    let folder = tempfile::tempdir().unwrap();
    for (path, kind) in odd_paths(folder.path()) {
        let path = path.to_str().unwrap().to_owned();
        let says = format!("is {kind}, not a regular file");
        let check = |what: &str, text: Value, code: &str| {
            let text = text.to_string();
            assert!(text.contains(&says) && text.contains(code), "{what}, {kind}: {text}");
        };
        let path_of = path.clone();
        let info = ends("info", move || model_info(&path_of));
        assert_eq!(info["supports_tools"], false, "{info}");
        check("info", info, "model_not_found");
        let request = ask(json!({ "gguf": path }));
        check(
            "template",
            ends("template", move || call(ffi::llb_template_render, &request)),
            "MODEL_NOT_FOUND",
        );
        let text = scripted_model("text.gguf");
        let options = [
            (json!({ "model": path }), "MODEL_NOT_FOUND"),
            (json!({ "model": text, "lora": [path] }), "lora[0].path"),
            (json!({ "model": text, "draft_model": path }), "draft_model"),
        ];
        for (options, code) in options {
            let what = options.to_string();
            let error = ends(&what, move || Chat::open_with(&options).err().unwrap().error);
            check(&what, error, code);
        }
        let options = json!({ "model": text, "state_file": path, "log": "warn", "n_ctx": 680 });
        let (reply, events) = ends("state_file", move || {
            let chat = Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
            let reply = chat.infer(&ask(json!({})));
            ffi::llb_chat_destroy(chat.handle());
            (reply, chat.events().concat())
        });
        // The file itself is refused. For a link, the error is about the link and not about its
        // target.
        let says = if kind == "a device" { "is a symbolic link" } else { &says };
        assert_eq!((&reply["text"], reply.to_string().contains(says)), (&json!(TEXT), true));
        assert!(events.contains("log:error:state_file: ") && events.contains(says), "{events}");
    }
}

#[test]
fn the_parts_of_a_split_model() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("m-00001-of-00002.gguf");
    let second = folder.path().join("m-00002-of-00002.gguf");
    let bytes = GgufWriter::new()
        .metadata("general.architecture", "llama")
        .metadata("tokenizer.chat_template", TOOLS_TEMPLATE)
        .metadata("split.no", 0_u16)
        .metadata("split.count", 2_u16)
        .metadata("split.tensors.count", 2_i32)
        .tensor("output.weight", &[8], &[0.0; 8])
        .to_bytes();
    std::fs::write(&first, bytes).unwrap();
    let path = first.to_str().unwrap().to_owned();
    let refused = |says: &str| {
        let options = json!({ "model": path });
        let refused = ends(says, move || Chat::open_with(&options).err().unwrap());
        assert_eq!(refused.code(), "MODEL_INVALID", "{refused:?}");
        assert!(refused.message().contains(says), "{refused:?}");
        let path = path.clone();
        let info = ends("info", move || model_info(&path)).to_string();
        assert!(info.contains("split_part_missing") && info.contains(says), "{info}");
    };
    refused("1 of 2 parts missing: m-00002-of-00002.gguf");
    for (odd, kind) in odd_paths(folder.path()) {
        let _ = std::fs::remove_file(&second);
        std::os::unix::fs::symlink(odd, &second).unwrap();
        refused(&format!("m-00002-of-00002.gguf (is {kind}, not a regular file)"));
    }
}

/// How a file is handled depends on its header and not on its size.
#[test]
fn a_file_with_a_hole_of_a_tebibyte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.gguf");
    std::fs::copy(scripted_model("text.gguf"), &path).unwrap();
    let grown = File::options().write(true).open(&path).unwrap().set_len(1 << 40);
    if let Err(error) = grown {
        return eprintln!("skipped: a file of a tebibyte ({error})");
    }
    let text = path.to_str().unwrap().to_owned();
    let info = ends("info", move || model_info(&text));
    assert_eq!((&info["error"], &info["file_size"]), (&Value::Null, &json!(1_u64 << 40)));
    let options = json!({ "model": path, "n_ctx": 680, "use_mmap": true });
    let reply = ends("create", move || Chat::open_with(&options).unwrap().infer(&ask(json!({}))));
    assert_eq!(reply["text"], TEXT);
    let options = json!({ "model": path, "n_ctx": 680, "use_mmap": false, "state_file": folder.path().join("state") });
    let reply = ends("create", move || Chat::open_with(&options).unwrap().infer(&ask(json!({}))));
    assert_eq!(reply["text"], TEXT);
    let options =
        json!({ "model": scripted_model("text.gguf"), "n_ctx": 680, "draft_model": path });
    let reply = ends("draft", move || Chat::open_with(&options).unwrap().infer(&ask(json!({}))));
    assert_eq!(reply["text"], TEXT);
}
