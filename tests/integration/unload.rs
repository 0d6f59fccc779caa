//! Tests the option `keep_alive` and `llb_model_unload`: models leave memory between requests, and
//! chats are not affected. Each test has its own copy of a model, because an unload applies to all
//! chats of the model.

use std::path::Path;
#[cfg(target_os = "linux")]
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use llb::api::CreateOptions;
use llb::engine::Interrupt;
use llb::error::Code;
use llb::ffi;
use llb::gguf::ModelHeader;
use llb::llama::{KeptModel, files_of};
use serde_json::{Value, json};

#[cfg(target_os = "linux")]
use crate::abi::scripted_model;
use crate::abi::{Chat, Embedder, Recorder, ask, call, own_model};
use crate::scripted::{TEXT, TEXT_PIECES, long_text, text_model};

fn open(model: &str, members: Value) -> Chat {
    let mut options = json!({ "model": model, "n_ctx": 512, "log": "info", "isolation": "none" });
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

fn unload(path: &str) -> Value {
    call(ffi::llb_model_unload, &json!({ "model_path": path }))
}

#[track_caller]
fn unloads(path: &str, chats: usize) {
    assert_eq!(unload(path), json!({ "type": "model_unloaded", "chats": chats }));
}

#[track_caller]
fn replies(chat: &Chat, text: &str) -> Value {
    let reply = chat.infer(&ask(json!({})));
    assert_eq!(reply["text"], text, "{reply}");
    reply
}

fn cached(reply: &Value) -> u64 {
    let cached = &reply["usage"]["prompt_tokens_details"]["cached_tokens"];
    cached.as_u64().unwrap_or_else(|| panic!("{reply}"))
}

/// How many lines of this chat's log start with this text.
fn noted(chat: &Chat, line: &str) -> usize {
    let line = format!("log:info:model: {line}");
    chat.events().iter().filter(|event| event.starts_with(&line)).count()
}

/// Whether the weights are mapped into this process.
fn is_mapped(path: &str) -> bool {
    std::fs::read_to_string("/proc/self/maps").is_ok_and(|maps| maps.contains(path))
}

/// The values of `isolation` to test.
fn isolations() -> Vec<&'static str> {
    if cfg!(target_os = "linux") { vec!["none", "process"] } else { vec!["none"] }
}

#[test]
fn an_unloaded_model_is_loaded_again_by_the_next_request() {
    let folder = tempfile::tempdir().unwrap();
    for isolation in isolations() {
        let model = own_model("text.gguf");
        let open = || open(&model, json!({ "isolation": isolation }));
        let chats = [open(), open()];
        let prompt = replies(&chats[0], TEXT)["usage"]["prompt_tokens"].as_u64().unwrap();
        assert_eq!(cached(&replies(&chats[0], TEXT)), prompt - 1);
        let here = isolation == "none" && cfg!(target_os = "linux");
        assert_eq!(is_mapped(&model), here);
        unloads(&model, 2);
        unloads(&model, 0);
        assert!(!is_mapped(&model), "{isolation}");
        for _ in 0..2 {
            // The computed prompt is gone.
            assert_eq!(cached(&replies(&chats[0], TEXT)), 0, "{isolation}");
            assert_eq!(cached(&replies(&chats[0], TEXT)), prompt - 1, "{isolation}");
            // The other chat loads the model only now.
            unloads(&model, 1);
        }
        replies(&chats[1], TEXT);
        replies(&chats[0], TEXT);
        assert_eq!(noted(&chats[0], "unloaded by llb_model_unload"), 3, "{isolation}");
        let loaded = chats.each_ref().map(|chat| noted(chat, "loaded again in "));
        assert_eq!(loaded, [3, 1], "{isolation}");
        // The file is given by another path.
        let link = folder.path().join("link.gguf");
        let _ = std::fs::remove_file(&link);
        #[cfg(unix)]
        std::os::unix::fs::symlink(&model, &link).unwrap();
        #[cfg(unix)]
        unloads(link.to_str().unwrap(), 2);
        replies(&chats[1], TEXT);
    }
}

#[test]
fn an_idle_model_leaves_memory() {
    let model = own_model("text.gguf");
    let at_once = open(&model, json!({ "keep_alive": 0 }));
    for unloaded in 1..4 {
        replies(&at_once, TEXT);
        assert!(!is_mapped(&model));
        // The model is unloaded at the end of the create, and of each explain and request.
        assert_eq!(noted(&at_once, "unloaded after 0 s without a request"), 2 * unloaded);
        let explained = at_once.explain(&ask(json!({})));
        assert_eq!(explained["cached_tokens"], 0, "{explained}");
        assert!(!is_mapped(&model));
    }
    let soon = open(&model, json!({ "keep_alive": 0.02 }));
    for _ in 0..3 {
        replies(&soon, TEXT);
        let start = Instant::now();
        while is_mapped(&model) {
            assert!(start.elapsed() < Duration::from_secs(60), "it stays");
            std::thread::yield_now();
        }
    }
    replies(&soon, TEXT);
    // Another chat that shares the model keeps it in memory.
    let keeps = open(&model, json!({ "keep_alive": -1 }));
    replies(&keeps, TEXT);
    replies(&at_once, TEXT);
    assert!(!cfg!(target_os = "linux") || is_mapped(&model));
    drop(keeps);
    if cfg!(target_os = "linux") {
        let isolated = open(&model, json!({ "keep_alive": 0, "isolation": "process" }));
        replies(&isolated, TEXT);
        replies(&isolated, TEXT);
        assert_eq!(noted(&isolated, "loaded again in "), 2, "{:?}", isolated.events());
        unloads(&model, 0);
    }
}

#[test]
fn a_running_request_keeps_its_model() {
    for isolation in isolations() {
        let model = own_model("long.gguf");
        let chat = open(&model, json!({ "isolation": isolation, "keep_alive": 0 }));
        let idle = open(&model, json!({ "isolation": isolation }));
        let answers = Arc::<Mutex<Vec<Value>>>::default();
        let recorder = Recorder::reacting({
            let (answers, model) = (Arc::clone(&answers), model.clone());
            move |_| answers.lock().unwrap().push(unload(&model))
        });
        let reply = chat.stream(&ask(json!({ "max_tokens": 12 })), &recorder);
        assert!(long_text().starts_with(reply["text"].as_str().unwrap()), "{reply}");
        let answers = answers.lock().unwrap();
        // A helper may have finished the request before its host reads the pieces.
        let is_busy = |answer: &Value| {
            answer["error"]["code"] == "BUSY"
                || isolation == "process" && answer["type"] == "model_unloaded"
        };
        assert!(answers.len() > 3 && answers.iter().all(is_busy), "{isolation}: {answers:?}");
        if isolation == "none" {
            unloads(&model, 1);
        }
        drop(idle);
        unloads(&model, 0);
    }
}

#[test]
fn requests_and_unloads_at_the_same_time() {
    let model = own_model("text.gguf");
    let keep_alive = [json!(null), json!(0), json!(0.001), json!(-1)];
    let chats = keep_alive.map(|time| open(&model, json!({ "keep_alive": time })));
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let requests = chats.each_ref().map(|chat| {
            scope.spawn(move || {
                for _ in 0..8 {
                    replies(chat, TEXT);
                    let explained = chat.explain(&ask(json!({})));
                    assert_eq!(explained["type"], "explanation", "{explained}");
                }
            })
        });
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let reply = unload(&model);
                let is_busy = reply["error"]["code"] == "BUSY";
                assert!(is_busy || reply["type"] == "model_unloaded", "{reply}");
                std::thread::yield_now();
            }
        });
        let results = requests.map(std::thread::ScopedJoinHandle::join);
        ended.store(true, Ordering::Relaxed);
        results.into_iter().for_each(|result| result.unwrap());
    });
}

#[test]
fn a_file_that_changed_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let model = own_model("text.gguf");
    let adapter = folder.path().join("adapter.gguf");
    std::fs::write(&adapter, text_model().adapter(3, 8).to_bytes()).unwrap();
    let switched: Vec<u8> =
        (0..4).chain(8..12).flat_map(|index| TEXT_PIECES[index]).copied().collect();
    let switched = String::from_utf8(switched).unwrap();
    for isolation in isolations() {
        let members = json!({ "isolation": isolation, "lora": [adapter], "keep_alive": 0 });
        let chat = open(&model, members);
        replies(&chat, &switched);
        for file in [Path::new(&model), &adapter] {
            let refused = |code: &str, says: &str| {
                let reply = chat.infer(&ask(json!({})));
                let message = reply["error"]["message"].as_str().unwrap();
                assert_eq!(reply["error"]["code"], code, "{isolation}: {reply}");
                assert!(message.starts_with(file.to_str().unwrap()), "{message}");
                assert!(message.contains(says), "{message}");
                assert_eq!(chat.explain(&ask(json!({})))["error"]["code"], code);
            };
            let away = folder.path().join("away");
            std::fs::rename(file, &away).unwrap();
            refused("MODEL_NOT_FOUND", "");
            std::fs::copy(&away, file).unwrap();
            // The content is the same, but the file is another one.
            refused("MODEL_INVALID", "the file has changed since the chat was created");
            std::fs::write(file, b"GGUF").unwrap();
            refused("MODEL_INVALID", "the file has changed since the chat was created");
            std::fs::rename(&away, file).unwrap();
            replies(&chat, &switched);
        }
    }
}

#[test]
fn embedding_models_leave_memory_too() {
    let folder = tempfile::tempdir().unwrap();
    let model = own_model("embedding.gguf");
    let open = |members: Value| {
        let mut options = json!({ "model": model, "n_threads": 1 });
        options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        Embedder::create(&options).unwrap_or_else(|error| panic!("{error}"))
    };
    let vectors = |embedder: &Embedder| {
        let reply = embedder.embed(&json!({ "input": ["one", "two three"] }));
        assert_eq!(reply["type"], "embeddings", "{reply}");
        reply["data"].clone()
    };
    let kept = open(json!({}));
    let expected = vectors(&kept);
    assert_eq!(is_mapped(&model), cfg!(target_os = "linux"));
    for _ in 0..2 {
        unloads(&model, 1);
        assert!(!is_mapped(&model));
        unloads(&model, 0);
        assert_eq!(vectors(&kept), expected);
    }
    drop(kept);
    assert!(!is_mapped(&model));
    unloads(&model, 0);
    let at_once = open(json!({ "keep_alive": 0 }));
    for _ in 0..2 {
        assert!(!is_mapped(&model));
        assert_eq!(vectors(&at_once), expected);
    }
    let soon = open(json!({ "keep_alive": 0.02 }));
    assert_eq!(vectors(&soon), expected);
    let start = Instant::now();
    while is_mapped(&model) {
        assert!(start.elapsed() < Duration::from_secs(60), "it stays");
        std::thread::yield_now();
    }
    // A file that was replaced is refused until it is back.
    let away = folder.path().join("away");
    std::fs::rename(&model, &away).unwrap();
    let refused = |code: &str| {
        let reply = at_once.embed(&json!({ "input": "one" }));
        assert_eq!(reply["error"]["code"], code, "{reply}");
    };
    refused("MODEL_NOT_FOUND");
    std::fs::copy(&away, &model).unwrap();
    refused("MODEL_INVALID");
    std::fs::rename(&away, &model).unwrap();
    assert_eq!(vectors(&at_once), expected);
    // A chat and an embedding handle of one file.
    let text = own_model("text.gguf");
    let chat = self::open(&text, json!({ "isolation": "none" }));
    let embedder = Embedder::create(&json!({ "model": text, "n_threads": 1 }));
    let embedder = embedder.unwrap_or_else(|error| panic!("{error}"));
    unloads(&text, 2);
    assert!(!is_mapped(&text));
    vectors(&embedder);
    replies(&chat, TEXT);
    let wrong = Embedder::create(&json!({ "model": text, "keep_alive": "5m" })).err().unwrap();
    let message = wrong["error"]["message"].as_str().unwrap();
    assert_eq!(message, r#"keep_alive: expected a number, got "5m""#);
}

#[test]
fn a_state_file_carries_the_conversation_over() {
    let folder = tempfile::tempdir().unwrap();
    let model = own_model("text.gguf");
    let state = folder.path().join("state");
    let chat = open(&model, json!({ "state_file": state, "keep_alive": 0 }));
    let prompt = replies(&chat, TEXT)["usage"]["prompt_tokens"].as_u64().unwrap();
    assert!(state.exists() && !is_mapped(&model));
    assert_eq!(cached(&replies(&chat, TEXT)), prompt - 1);
    let other = ask(json!({ "messages": [{ "role": "user", "content": "Something else" }] }));
    let other_prompt = chat.infer(&other)["usage"]["prompt_tokens"].as_u64().unwrap();
    drop(chat);
    let chat = open(&model, json!({ "state_file": state }));
    assert_eq!(cached(&chat.infer(&other)), other_prompt - 1, "the last request is kept");
    // If a state cannot be written, the model stays in memory.
    drop(chat);
    std::fs::remove_file(&state).unwrap();
    let chat = open(&model, json!({ "state_file": state }));
    replies(&chat, TEXT);
    std::fs::create_dir(&state).unwrap();
    let reply = unload(&model);
    assert_eq!(reply["error"]["code"], "INFERENCE_FAILED", "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().starts_with(state.to_str().unwrap()));
    assert!(!cfg!(target_os = "linux") || is_mapped(&model));
    std::fs::remove_dir(&state).unwrap();
    unloads(&model, 1);
    assert!(state.exists());
    assert_eq!(cached(&replies(&chat, TEXT)), prompt - 1);
}

#[test]
fn a_cancel_ends_the_load() {
    let model = own_model("text.gguf");
    let options = json!({ "model": model, "n_ctx": 512, "n_threads": 1 });
    let options = CreateOptions::read(&options).unwrap();
    let files = files_of(&options, &model);
    let header = ModelHeader::read_file(Path::new(&model)).unwrap();
    let kept = KeptModel::open(&options, files, &header, &mut |_| true).unwrap();
    for late in [false, true] {
        unloads(&model, 1);
        let over = Interrupt { deadline: late.then(Instant::now), ..Interrupt::default() };
        over.cancel.store(!late, Ordering::Relaxed);
        let error = kept.acquire(&over).err().expect("cancelled");
        assert_eq!(error.code(), Code::Cancelled);
        assert!(kept.in_memory().is_none());
        // A model that is in memory need not be loaded.
        let never = kept.acquire(&Interrupt::default()).expect("loaded");
        drop(kept.acquire(&over).expect("loaded"));
        drop(never);
        assert!(kept.in_memory().is_some());
    }
}

#[test]
fn a_destroyed_model_leaves_memory_during_unloads_of_others() {
    let [text, embedding, other] = ["text.gguf", "embedding.gguf", "tool_call.gguf"].map(own_model);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                unloads(&other, 0);
            }
        });
        let checks = || {
            for _ in 0..200 {
                drop(Embedder::create(&json!({ "model": embedding, "n_threads": 1 })));
                assert!(!is_mapped(&embedding));
            }
            for _ in 0..50 {
                drop(open(&text, json!({ "isolation": "none" })));
                assert!(!is_mapped(&text));
            }
        };
        let checked = std::panic::catch_unwind(checks);
        is_over.store(true, Ordering::Relaxed);
        checked.unwrap();
    });
}

#[test]
fn no_model_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let model = own_model("text.gguf");
    unloads(&model, 0);
    let folder = folder.path().to_str().unwrap();
    for (path, problem) in
        [("/nowhere/model.gguf", "no such file"), (folder, "is a directory, not a regular file")]
    {
        let message = format!("model_path: {path}: {problem}; pass the path of a model's file");
        let error = json!({ "code": "MODEL_NOT_FOUND", "message": message });
        assert_eq!(unload(path), json!({ "type": "error", "error": error }));
    }
    let request = json!({ "model_path": model, "strange": 1 });
    assert_eq!(call(ffi::llb_model_unload, &request)["ignored_keys"], json!(["strange"]));
}

/// Names the case for a child process of this program.
#[cfg(target_os = "linux")]
const CASE: &str = "LLB_TEST_UNLOAD_CASE";

#[cfg(target_os = "linux")]
#[test]
fn the_memory_is_free() {
    scripted_model("text.gguf");
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["unload::memory_case", "--exact", "--nocapture"])
        .env(CASE, "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&child.stdout).into_owned();
    let errors = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{}: {printed}{errors}", child.status);
    println!("{}", printed.lines().filter(|line| line.contains("MiB")).collect::<String>());
}

#[cfg(target_os = "linux")]
fn is_watched() -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread may end in the meantime.
    let names = threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")));
    names.into_iter().flatten().any(|name| name == "llb-keep-alive\n")
}

#[cfg(target_os = "linux")]
#[test]
fn memory_case() {
    if std::env::var_os(CASE).is_none() {
        return;
    }
    let model = own_model("text.gguf");
    let n_threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let resident = || {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: f64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096.0 / f64::from(1 << 20)
    };
    // What the first model creates once, such as tables, stays in memory.
    replies(&open(&model, json!({})), TEXT);
    let (before, threads) = (resident(), n_threads());
    let large = json!({ "n_ctx": 400_000, "cache_type_k": "f32", "cache_type_v": "f32", "n_batch": 64, "n_parallel": 1 });
    let chat = open(&model, large.clone());
    replies(&chat, TEXT);
    let loaded = resident() - before;
    unloads(&model, 1);
    let unloaded = resident() - before;
    println!("loaded {loaded:.0} MiB, unloaded {unloaded:.0} MiB");
    assert!(loaded > 90.0, "{loaded} MiB");
    assert!(unloaded < loaded / 5.0, "{unloaded} of {loaded} MiB stay");
    for _ in 0..50 {
        replies(&chat, TEXT);
        unloads(&model, 1);
    }
    let after = resident() - before;
    println!("after 50 cycles {after:.0} MiB");
    assert!(after < unloaded + loaded / 5.0, "{after} MiB stay, {unloaded} after one cycle");
    drop(chat);
    // The last destroy of a model returns its memory too, whichever thread does it.
    let open_and_destroy = || replies(&open(&model, large.clone()), TEXT);
    std::thread::scope(|scope| scope.spawn(open_and_destroy).join()).unwrap();
    let first = resident() - before;
    for _ in 0..20 {
        std::thread::scope(|scope| scope.spawn(open_and_destroy).join()).unwrap();
    }
    let last = resident() - before;
    println!("destroyed {first:.0} MiB, after 20 more {last:.0} MiB");
    assert!(first < unloaded + 30.0, "{first} MiB stay, {unloaded} after an unload");
    assert!(last < first + 30.0, "{last} MiB stay, {first} after one cycle");
    // A thread watches over a model that may stay for long, until its last chat is destroyed.
    let kept = open(&model, json!({ "keep_alive": 600 }));
    replies(&kept, TEXT);
    let start = Instant::now();
    while !is_watched() {
        assert!(start.elapsed() < Duration::from_secs(60), "no thread watches the model");
        std::thread::yield_now();
    }
    drop(kept);
    let start = Instant::now();
    while n_threads() > threads || is_watched() {
        assert!(start.elapsed() < Duration::from_secs(60), "{} threads", n_threads());
        std::thread::yield_now();
    }
}
