//! Tests files of kernels: which of them a process uses, and what it does not load. Each case runs
//! in a child process, because a process chooses only once. The files are those of `make backends`
//! next to the library.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, ask, last_error, real_model, scripted_model, take};
use crate::scripted::TEXT;

const CHILD: &str = "LLB_TEST_BACKENDS_CHILD";

/// The folder that contains the library under test.
pub fn built() -> PathBuf {
    match std::env::var_os("LLB_LIBRARY") {
        Some(path) => PathBuf::from(path).parent().unwrap().to_owned(),
        None => std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned(),
    }
}

/// The files of kernels of this build, by variant. Prints a line if there are none.
pub fn files() -> BTreeMap<String, PathBuf> {
    let entries = std::fs::read_dir(built()).unwrap().flatten();
    let files: BTreeMap<String, PathBuf> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let variant = name.strip_prefix("libllb-cpu-")?.strip_suffix(".so")?.to_owned();
            Some((variant, entry.path()))
        })
        .collect();
    if files.is_empty() {
        assert!(std::env::var_os("LLB_REQUIRE_ALL").is_none(), "no files of kernels");
        eprintln!("SKIPPED: there are no files of kernels; run: make backends");
    }
    files
}

/// Runs the test with this name again in a child process, in a folder and with `LLB_BACKENDS`.
/// Returns false in that child, after it has called `run`.
#[track_caller]
fn in_child(name: &str, backends: Option<&Path>, data: &Value, run: fn(Value)) -> bool {
    if let Ok(data) = std::env::var(CHILD) {
        run(serde_json::from_str(&data).unwrap());
        return false;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([&format!("backends::{name}"), "--exact", "--nocapture"]);
    command.env(CHILD, data.to_string()).env_remove("LLB_BACKENDS");
    if let Some(backends) = backends {
        command.env("LLB_BACKENDS", backends);
    }
    if let Some(folder) = data["working_folder"].as_str() {
        command.current_dir(folder);
    }
    let child = command.output().unwrap();
    let text = String::from_utf8_lossy(&child.stdout);
    assert!(text.contains("running 1 test"), "{name} did not run: {text}");
    assert!(child.status.success(), "{}: {}", child.status, String::from_utf8_lossy(&child.stderr));
    true
}

fn backends() -> Value {
    take(ffi::llb_backends())
}

fn version() -> String {
    // SAFETY: a static string.
    let version = unsafe { std::ffi::CStr::from_ptr(ffi::llb_version()) };
    version.to_str().unwrap().to_owned()
}

/// Opens a scripted chat with two threads.
fn open(members: Value) -> Result<Chat, crate::abi::Refused> {
    let mut options = json!({ "model": scripted_model("text.gguf"), "n_ctx": 512, "n_threads": 2, "log": "info" });
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Chat::open_with(&options)
}

/// Checks that the scripted chat replies.
#[track_caller]
pub fn chats(chat: &Chat) {
    let reply = chat.infer(&ask(json!({})));
    assert_eq!(reply["text"], TEXT, "{reply}");
}

/// The entry of a file in `llb_backends`.
fn entry(backends: &Value, file: &Path) -> Value {
    let file = file.to_str().unwrap();
    let entries = backends["backends"].as_array().unwrap();
    entries.iter().find(|entry| entry["file"] == file).cloned().unwrap_or(Value::Null)
}

#[test]
fn each_variant_that_the_processor_can_run_computes() {
    let name = "each_variant_that_the_processor_can_run_computes";
    let run = |data: Value| {
        let variant = data["variant"].as_str().unwrap();
        let before = backends();
        assert_eq!(before["backend"]["in_use"], false, "{before}");
        let chat = open(json!({ "backend": variant })).unwrap();
        chats(&chat);
        let after = backends();
        assert_eq!(after["backend"]["name"], variant);
        assert_eq!(after["backend"]["in_use"], true);
        let expected = (after["backend"]["file"].as_str(), data["file"].as_str());
        assert_eq!(expected.0, expected.1, "{after}");
        assert_eq!(entry(&after, Path::new(expected.0.unwrap()))["reason"], Value::Null);
        assert!(version().ends_with(&format!(") {variant}")), "{}", version());
        let line = format!("log:info:backend: {variant} from {}", expected.0.unwrap());
        assert!(chat.events().contains(&line), "{:?}", chat.events());
        // With a real model, the matrix products give the same first words and nearly the same
        // probabilities.
        if let Some(model) = data["model"].as_str() {
            let (found, expected) = (answer(model), tokens(&data["answer"]));
            assert_eq!(found.len(), expected.len());
            for (found, expected) in found.iter().zip(&expected) {
                let near = (found.1 - expected.1).abs() <= 0.1;
                assert!(found.0 == expected.0 && near, "{variant}: {found:?}, {expected:?}");
            }
        }
    };
    if std::env::var_os(CHILD).is_some() {
        in_child(name, None, &Value::Null, run);
        return;
    }
    let model = real_model("smollm2-135m-instruct-q4_1.gguf");
    let expected = model.as_deref().map(answer);
    for (variant, file) in files() {
        let usable = entry(&in_folder(&built()), &file);
        if usable["usable"] == false {
            let reason = usable["reason"].as_str().unwrap();
            assert!(reason.starts_with("this processor lacks"), "{usable}");
            eprintln!("SKIPPED: {variant}: {reason}");
            continue;
        }
        let data = json!({ "variant": variant, "file": file, "model": model, "answer": expected });
        in_child(name, Some(&built()), &data, run);
    }
}

/// The first tokens of a real model's reply, with the probability of each.
fn answer(model: &str) -> Vec<(String, f64)> {
    let chat = Chat::open_with(&json!({
        "model": model, "n_ctx": 512, "tool_policy": "any", "n_threads": 2,
    }));
    let request = json!({
        "messages": [{ "role": "user", "content": "Count from one to ten." }],
        "temperature": 0, "max_tokens": 4, "logprobs": true,
    });
    let reply = chat.unwrap().infer(&request);
    let content = reply["logprobs"]["content"].as_array().unwrap_or_else(|| panic!("{reply}"));
    let token = |token: &Value| json!([token["token"], token["logprob"].as_f64().unwrap().exp()]);
    tokens(&content.iter().map(token).collect())
}

fn tokens(list: &Value) -> Vec<(String, f64)> {
    serde_json::from_value(list.clone()).unwrap()
}

/// Runs a child process with this folder in `LLB_BACKENDS`, and returns the backends that it finds.
fn in_folder(folder: &Path) -> Value {
    let output = tempfile::NamedTempFile::new().unwrap();
    let data = json!({ "output": output.path() });
    if !in_child("a_child_tells_what_it_finds", Some(folder), &data, |_| ()) {
        return Value::Null;
    }
    serde_json::from_slice(&std::fs::read(output.path()).unwrap()).unwrap()
}

#[test]
fn a_child_tells_what_it_finds() {
    if std::env::var_os(CHILD).is_some() {
        in_child("", None, &Value::Null, |data| {
            std::fs::write(data["output"].as_str().unwrap(), backends().to_string()).unwrap();
        });
    }
}

/// A variant whose file this processor can run, and which the library itself does not contain.
fn usable_file() -> Option<(String, PathBuf)> {
    let found = in_folder(&built());
    files().into_iter().find(|(_, file)| entry(&found, file)["usable"] == true)
}

#[test]
fn bad_files_are_not_loaded() {
    let name = "bad_files_are_not_loaded";
    let run = |data: Value| {
        let folder = PathBuf::from(data["folder"].as_str().unwrap());
        let found = backends();
        for (file, reason) in data["reasons"].as_object().unwrap() {
            let entry = entry(&found, &folder.join(file));
            assert_eq!(entry["usable"], false, "{file}: {entry}");
            let told = entry["reason"].as_str().unwrap();
            assert!(told.contains(reason.as_str().unwrap()), "{file}: {told}");
        }
        let chat = open(json!({})).unwrap();
        chats(&chat);
        // The files are neither loaded nor mapped.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains(folder.to_str().unwrap()), "{maps}");
        let warned = format!("log:warn:backend: not used: {}", folder.display());
        let warnings = chat.events().iter().filter(|event| event.starts_with(&warned)).count();
        assert_eq!(warnings, data["reasons"].as_object().unwrap().len());
        assert_eq!(backends()["backend"]["file"], Value::Null);
    };
    if std::env::var_os(CHILD).is_some() {
        in_child(name, None, &Value::Null, run);
        return;
    }
    let Some((_, file)) = usable_file() else { return };
    let bytes = std::fs::read(&file).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut reasons = serde_json::Map::new();
    let mut put = |name: &str, bytes: &[u8], reason: &str| {
        let name = format!("libllb-cpu-{name}.so");
        let path = folder.path().join(&name);
        std::fs::write(&path, bytes).unwrap();
        reasons.insert(name, reason.into());
        path
    };
    for (length, name) in [(0, "empty"), (40, "header"), (4096, "page"), (bytes.len() / 2, "half")]
    {
        put(name, &bytes[..length], "is not complete");
    }
    put("shorter", &bytes[..bytes.len() - 1], "is not complete");
    put("text", &[b'x'; 4096], "is not a shared library for this processor");
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    put("program", &program, "is not a file of llb's kernels");
    let identity = b"llama-cpp-sys-2 0.";
    let mut other = bytes.clone();
    let at = other.windows(identity.len()).position(|part| part == identity).unwrap();
    other[at..at + identity.len()].copy_from_slice(b"llama-cpp-sys-2 9.");
    put("other", &other, "is from another build");
    let writable = put("writable", &bytes, "can be written by every user");
    std::fs::set_permissions(writable, PermissionsExt::from_mode(0o666)).unwrap();
    // Only root can change the owner of a file.
    let given = folder.path().join("libllb-cpu-given.so");
    std::fs::write(&given, &bytes).unwrap();
    if std::os::unix::fs::chown(&given, Some(12345), None).is_ok() {
        reasons.insert("libllb-cpu-given.so".to_owned(), "belongs to another user".into());
    } else {
        std::fs::remove_file(given).unwrap();
    }
    let data = json!({ "folder": folder.path(), "reasons": reasons });
    in_child(name, Some(folder.path()), &data, run);
}

#[test]
fn files_elsewhere_are_not_used() {
    let name = "files_elsewhere_are_not_used";
    let run = |_| {
        chats(&open(json!({})).unwrap());
        let found = backends();
        assert_eq!(found["backend"]["file"], Value::Null, "{found}");
        let relative = found["folders"].as_array().unwrap().iter().find(|it| it["path"] == ".");
        match std::env::var_os("LLB_BACKENDS") {
            Some(_) => assert_eq!(relative.unwrap()["reason"], "is not absolute"),
            None => assert!(relative.is_none()),
        }
    };
    if std::env::var_os(CHILD).is_some() {
        in_child(name, None, &Value::Null, run);
        return;
    }
    if files().is_empty() {
        return;
    }
    // The working directory contains valid files.
    let data = json!({ "working_folder": built() });
    in_child(name, None, &data, run);
    in_child(name, Some(Path::new(".")), &data, run);
}

#[test]
fn the_first_create_decides() {
    let name = "the_first_create_decides";
    let run = |data: Value| {
        let variant = data["variant"].as_str().unwrap();
        let refused = open(json!({ "backend": "no-such" })).err().unwrap();
        assert_eq!(refused.code(), "INVALID_REQUEST");
        let built_in = backends()["backends"].as_array().unwrap().clone();
        let built_in =
            built_in.iter().find(|it| it["file"] == Value::Null).unwrap()["name"].clone();
        let message = refused.message();
        assert!(
            message.starts_with("backend: there is no \"no-such\" here; there is: "),
            "{message}"
        );
        assert!(message.contains(&format!("{built_in}")) && message.contains(variant), "{message}");
        let there = refused.error["error"]["details"]["backends"].as_array().unwrap();
        assert!(there.contains(&built_in) && there.contains(&json!(variant)));
        assert_eq!(refused.events.last().unwrap(), "create_failure:invalid_options");
        // A refused create does not choose kernels.
        let chat = open(json!({ "backend": variant })).unwrap();
        chats(&open(json!({})).unwrap());
        chats(&open(json!({ "backend": "auto" })).unwrap());
        chats(&open(json!({ "backend": variant, "n_ctx": 300 })).unwrap());
        let refused = open(json!({ "backend": built_in })).err().unwrap();
        assert_eq!(refused.code(), "INVALID_REQUEST");
        let message = refused.message();
        assert!(message.contains("since its first create"), "{message}");
        assert_eq!(last_error()["error"]["code"], "INVALID_REQUEST");
        chats(&chat);
        // A helper process makes its own choice at its first create.
        let isolated = open(json!({ "backend": built_in, "isolation": "process" })).unwrap();
        chats(&isolated);
        let line = format!("log:info:backend: {} from this library", built_in.as_str().unwrap());
        assert!(isolated.events().contains(&line), "{:?}", isolated.events());
        let isolated = open(json!({ "backend": variant, "isolation": "process" })).unwrap();
        chats(&isolated);
        let line = format!("log:info:backend: {variant} from ");
        assert!(
            isolated.events().iter().any(|it| it.starts_with(&line)),
            "{:?}",
            isolated.events()
        );
        let refused = open(json!({ "backend": "no-such", "isolation": "process" })).err().unwrap();
        assert_eq!(
            (refused.code(), refused.message().contains(variant)),
            ("INVALID_REQUEST", true)
        );
    };
    if std::env::var_os(CHILD).is_some() {
        in_child(name, None, &Value::Null, run);
        return;
    }
    let Some((variant, _)) = usable_file() else { return };
    in_child(name, Some(&built()), &json!({ "variant": variant }), run);
}

#[test]
fn the_library_works_without_files() {
    let name = "the_library_works_without_files";
    let run = |_| {
        chats(&open(json!({})).unwrap());
        let found = backends();
        assert_eq!(found["backends"].as_array().unwrap().len(), 1, "{found}");
        assert_eq!(found["backend"]["file"], Value::Null);
        assert!(version().ends_with(')'), "{}", version());
        let devices = found["devices"].as_array().unwrap();
        assert!(devices.iter().any(|device| device["type"] == "cpu"), "{found}");
        let features = found["processor"]["features"].as_array().unwrap();
        assert!(cfg!(not(target_arch = "x86_64")) || features.contains(&json!("sse4.2")));
    };
    let folder = tempfile::tempdir().unwrap();
    in_child(name, Some(folder.path()), &Value::Null, run);
}
