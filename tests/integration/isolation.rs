//! Tests the option `isolation`: a chat in a helper process behaves like one in this process, and
//! nothing else ends when the helper ends.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, Refused, ask, call, own_model, scripted_model, weather_tool};
use crate::scripted::{self, TEXT, long_text};

/// A time-out in milliseconds in which a call reaches its worker, even on a busy machine.
const REACHES_THE_WORKER: u64 = 3000;

fn with(options: &Value, members: Value) -> Value {
    let mut options = options.clone();
    options.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    options
}

fn isolated(options: Value) -> Value {
    with(&json!({ "isolation": "process", "n_ctx": 1024 }), options)
}

pub fn open(options: Value) -> Chat {
    Chat::open_with(&isolated(options)).unwrap_or_else(|refused| panic!("{refused:?}"))
}

/// The process id of the helper of a chat that was opened with `"log": "info"`.
pub fn worker(events: &[String]) -> i32 {
    let told = "log:info:isolation: the model runs in process ";
    let line = events.iter().find_map(|event| event.strip_prefix(told));
    line.unwrap_or_else(|| panic!("{events:?}")).parse().unwrap()
}

pub fn kill(process: i32, signal: i32) {
    // SAFETY: takes numbers.
    assert_eq!(unsafe { libc::kill(process, signal) }, 0);
}

pub fn exists(process: i32) -> bool {
    // A zombie that its parent has not waited for does not count.
    std::fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

#[track_caller]
pub fn wait_for_end(process: i32) {
    let start = Instant::now();
    while exists(process) {
        assert!(start.elapsed() < Duration::from_secs(60), "{process} still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Stops a process, and waits until all its threads have stopped.
fn stop(process: i32) {
    kill(process, libc::SIGSTOP);
    let state = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // After the name, which is in parentheses.
        text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next())
    };
    let runs = || {
        let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        threads.flatten().any(|thread| state(thread) != Some('T'))
    };
    let start = Instant::now();
    while runs() {
        assert!(start.elapsed() < Duration::from_secs(60), "{process} still runs");
        std::thread::yield_now();
    }
}

pub fn code(reply: &Value) -> &str {
    reply["error"]["code"].as_str().unwrap_or("none")
}

/// Replaces values that differ between any two calls.
fn comparable(mut reply: Value) -> Value {
    fn clean(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|name, _| !matches!(name.as_str(), "timings" | "created" | "id"));
                members.values_mut().for_each(clean);
            }
            Value::Array(items) => items.iter_mut().for_each(clean),
            _ => {}
        }
    }
    clean(&mut reply);
    reply
}

fn lines(recorder: &Recorder) -> Vec<Value> {
    let json = |line: &String| {
        serde_json::from_str::<Value>(line).map_or_else(|_| json!(line), comparable)
    };
    recorder.lines().iter().map(json).collect()
}

#[test]
fn replies_pieces_and_events_are_the_same() {
    let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
    let requests = [
        ask(json!({})),
        ask(json!({ "stop": ["東京"], "logprobs": true, "top_logprobs": 3 })),
        ask(json!({ "tools": [weather_tool()] })),
        ask(json!({ "tools": [weather_tool()], "tool_choice": "required" })),
        ask(json!({ "tools": [weather_tool()], "stream_format": "chunks", "logprobs": true })),
        ask(json!({ "stream_format": "chunks", "stream_options": { "include_usage": true } })),
        ask(json!({ "max_tokens": 3, "no_such_member": 1 })),
        ask(
            json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "n", "schema": schema } }, "max_tokens": 20 }),
        ),
        ask(json!({ "max_tokens": 0 })),
        ask(json!({ "messages": [{ "role": "assistent", "content": "x" }] })),
        ask(json!({ "messages": [{ "role": "user", "content": "long ".repeat(2000) }] })),
        ask(json!({ "grammar": "start: /x" })),
        json!({ "messages": [] }),
        json!(7),
    ];
    for model in ["text.gguf", "tool_call.gguf", "reasoning.gguf"] {
        let options = json!({ "model": own_model(model), "n_ctx": 1024, "log": "error" });
        let here = Chat::open_with(&with(&options, json!({ "isolation": "none" }))).unwrap();
        let there = open(options);
        for request in &requests {
            assert_eq!(
                comparable(there.explain(request)),
                comparable(here.explain(request)),
                "{model}: explain {request}"
            );
            assert_eq!(
                comparable(there.infer(request)),
                comparable(here.infer(request)),
                "{model}: {request}"
            );
            let recorders = [Recorder::default(), Recorder::default()];
            let replies = [&there, &here].into_iter().zip(&recorders);
            let replies: Vec<Value> = replies
                .map(|(chat, recorder)| comparable(chat.stream(request, recorder)))
                .collect();
            assert_eq!(replies[0], replies[1], "{model}: streamed {request}");
            assert_eq!(lines(&recorders[0]), lines(&recorders[1]), "{model}: {request}");
        }
        assert_eq!(there.events(), here.events(), "{model}");
    }
}

#[test]
fn failures_of_create_are_the_same() {
    let text = scripted_model("text.gguf");
    for options in [
        json!({}),
        json!({ "model": "" }),
        json!({ "model": "/" }),
        json!({ "model": "/no/such/model.gguf" }),
        json!({ "model": scripted_model("no_tools.gguf") }),
        json!({ "model": scripted_model("truncated.gguf") }),
        json!({ "model": scripted_model("bad_template.gguf") }),
        json!({ "model": std::env::current_dir().unwrap().join(file!()) }),
        json!({ "model": text, "flash_attn": "off", "cache_type_v": "q8_0" }),
        json!({ "model": text, "n_ctx": i32::MAX }),
        json!({ "model": text, "n_ctx": 0 }),
        json!({ "model": text, "ctx": 1 }),
        json!({ "model": text, "lora": ["/no/such/adapter.gguf"] }),
        json!({ "model": text, "draft_model": "/no/such/draft.gguf" }),
        json!({ "model": text, "state_file": "/no/such/folder/state" }),
    ] {
        let failure = |options: &Value| -> Refused { Chat::open_with(options).err().unwrap() };
        let (there, here) =
            (failure(&with(&options, json!({ "isolation": "process" }))), failure(&options));
        assert_eq!(there.events, here.events, "{options}");
        let numbers = |error: &Value| {
            let text = error["error"]["message"].as_str().unwrap().to_owned();
            // The amount of available memory differs.
            let text: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
            (error["error"]["code"].clone(), text)
        };
        assert_eq!(numbers(&there.error), numbers(&here.error), "{options}");
        let details = |error: &Value| -> Option<BTreeSet<String>> {
            Some(error["error"]["details"].as_object()?.keys().cloned().collect())
        };
        assert_eq!(details(&there.error), details(&here.error), "{options}");
    }
}

/// A request whose reply lasts until the context is full: `aaaa…`
fn endless(members: Value) -> Value {
    with(&ask(json!({ "logit_bias": { "97": 100 }, "max_tokens": i32::MAX })), members)
}

fn open_shifting(model: &str) -> Chat {
    open(json!({ "model": model, "context_overflow": "shift", "log": "info" }))
}

/// A copy of a model, so that killing its process does not affect other tests.
fn own_copy(name: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::copy(scripted_model(name), &path).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

#[test]
fn cancel_and_time_out_keep_what_was_generated() {
    let chat = open_shifting(&scripted_model("text.gguf"));
    let check = |reply: &Value, recorder: &Recorder| {
        let text = reply["text"].as_str().unwrap_or_else(|| panic!("{reply}"));
        assert_eq!(reply["finish_reason"], "cancelled");
        assert_eq!(text, recorder.lines().concat());
        assert_eq!(chat.infer(&ask(json!({})))["text"], TEXT);
    };
    let recorder = Recorder::default();
    let reply = std::thread::scope(|scope| {
        let call = scope.spawn(|| chat.stream(&endless(json!({})), &recorder));
        while recorder.lines().is_empty() {
            std::thread::yield_now();
        }
        ffi::llb_chat_cancel(chat.handle());
        call.join().unwrap()
    });
    assert_ne!(reply["text"], "");
    check(&reply, &recorder);
    let handle = chat.handle().addr();
    let recorder = Recorder::reacting(move |_| {
        ffi::llb_chat_cancel(std::ptr::without_provenance_mut(handle));
    });
    check(&chat.stream(&endless(json!({})), &recorder), &recorder);
    let recorder = Recorder::default();
    check(&chat.stream(&endless(json!({ "timeout_ms": 60 })), &recorder), &recorder);
    // A call that waits in the queue.
    let recorder = Recorder::default();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| chat.stream(&endless(json!({})), &recorder));
        while recorder.lines().is_empty() {
            std::thread::yield_now();
        }
        let waited = chat.infer(&ask(json!({ "timeout_ms": 1, "other": 1 })));
        assert_eq!(
            (&waited["finish_reason"], &waited["text"], &waited["ignored_keys"]),
            (&json!("cancelled"), &json!(""), &json!(["other"]))
        );
        ffi::llb_chat_cancel(chat.handle());
        first.join().unwrap();
    });
}

#[test]
fn a_cancel_in_infer_start_is_not_lost() {
    let first = AtomicBool::new(true);
    let options = json!({ "model": scripted_model("long.gguf"), "n_threads": 1 });
    let chat = Chat::open_reacting(&isolated(options), move |event, handle| {
        if event == "infer_start" && first.swap(false, Ordering::Relaxed) {
            ffi::llb_chat_cancel(handle);
        }
    });
    let reply = chat.infer(&ask(json!({ "max_tokens": 400 })));
    assert_eq!(
        (&reply["finish_reason"], &reply["text"]),
        (&json!("cancelled"), &json!("")),
        "{reply}"
    );
}

#[test]
fn chats_of_one_file_share_a_process_that_ends_with_the_last() {
    let (_folder, model) = own_copy("long.gguf");
    let options = json!({ "model": model, "n_ctx": 2048, "n_parallel": 3, "log": "info" });
    let chats: Vec<Chat> = (0..5).map(|_| open(options.clone())).collect();
    let processes: BTreeSet<i32> = chats.iter().map(|chat| worker(&chat.events())).collect();
    assert_eq!(processes.len(), 1);
    std::thread::scope(|scope| {
        for chat in &chats {
            scope.spawn(|| {
                for _ in 0..2 {
                    assert_eq!(chat.infer(&ask(json!({ "max_tokens": 400 })))["text"], long_text());
                }
            });
        }
    });
    let process = *processes.first().unwrap();
    let other = open(json!({ "model": scripted_model("tool_use.gguf"), "log": "info" }));
    assert_ne!(worker(&other.events()), process);
    drop(chats);
    wait_for_end(process);
    assert_eq!(other.infer(&ask(json!({})))["type"], "assistant_text");
}

#[test]
fn a_destroy_in_a_callback_ends_the_call_and_the_process() {
    let (_folder, model) = own_copy("text.gguf");
    let chat = open_shifting(&model);
    let process = worker(&chat.events());
    let handle = chat.handle().addr();
    let recorder = Recorder::reacting(move |_| {
        ffi::llb_chat_destroy(std::ptr::without_provenance_mut(handle));
    });
    let reply = chat.stream(&endless(json!({})), &recorder);
    assert_eq!(reply["finish_reason"], "cancelled", "{reply}");
    assert_eq!(chat.events().iter().filter(|line| *line == "destroy").count(), 1);
    wait_for_end(process);
    assert_eq!(code(&chat.infer(&ask(json!({})))), "ENGINE_CLOSED");
}

#[test]
fn a_state_file_passes_between_processes() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("chat.state");
    let options = json!({
        "model": scripted_model("text.gguf"), "n_ctx": 528, "state_file": state, "log": "warn",
    });
    let cached = |reply: &Value| {
        reply["usage"]["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap_or_else(|| panic!("{reply}"))
    };
    let chat = open(options.clone());
    let first = chat.infer(&ask(json!({})));
    assert_eq!(cached(&first), 0);
    drop(chat);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    let prompt = first["usage"]["prompt_tokens"].as_u64().unwrap();
    for options in [isolated(options.clone()), options.clone()] {
        let chat = Chat::open_with(&options).unwrap();
        let reply = chat.infer(&ask(json!({})));
        assert_eq!((cached(&reply), reply["diagnostics"].clone()), (prompt - 1, json!([])));
    }
    // A chat without a request does not change the file, and a damaged file is reported.
    std::fs::write(&state, b"LLBSTATE and more").unwrap();
    let chat = open(options);
    assert!(chat.events().iter().any(|event| event.starts_with("log:warn:state_file: ")));
    drop(chat);
    assert_eq!(std::fs::read(&state).unwrap(), b"LLBSTATE and more");
}

#[test]
fn an_unload_writes_the_state_files() {
    let folder = tempfile::tempdir().unwrap();
    let (_folder, model) = own_copy("text.gguf");
    let unload = || call(ffi::llb_model_unload, &json!({ "model_path": model }));
    for isolation in ["none", "process"] {
        let open = |name: &str| {
            let state = folder.path().join(format!("{name}.{isolation}"));
            let options = json!({
                "model": model, "n_ctx": 528, "state_file": state, "isolation": isolation,
            });
            (Chat::open_with(&options).unwrap(), state)
        };
        let ((first, first_state), (second, second_state), (unused, unused_state)) =
            (open("first"), open("second"), open("unused"));
        let members = |text: &str| json!({ "messages": [{ "role": "user", "content": text }] });
        let requests = [ask(members("first")), ask(members("the second"))];
        let ask_both = || {
            [(&first, &requests[0]), (&second, &requests[1])].map(|(chat, request)| {
                let usage = chat.infer(request)["usage"].clone();
                let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
                (cached, usage["prompt_tokens"].as_u64().unwrap())
            })
        };
        ask_both();
        for _ in 0..2 {
            let unloaded = unload();
            assert_eq!(unloaded, json!({ "type": "model_unloaded", "chats": 3 }), "{isolation}");
            assert!(first_state.exists() && second_state.exists() && !unused_state.exists());
            for (cached, prompt) in ask_both() {
                assert_eq!(cached, prompt - 1, "{isolation}");
            }
            // The chat without a request loads the model too.
            unused.explain(&requests[0]);
        }
        // If a state cannot be written, the model stays in memory.
        std::fs::remove_file(&first_state).unwrap();
        std::fs::create_dir(&first_state).unwrap();
        assert_eq!(code(&unload()), "INFERENCE_FAILED", "{isolation}");
        std::fs::remove_dir(&first_state).unwrap();
        drop((first, second, unused));
        assert!(first_state.exists() && second_state.exists() && !unused_state.exists());
    }
    let names = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.count(), 4, "no temporary file is left");
}

/// Checks what remains of a chat whose helper has ended.
#[track_caller]
fn check_dead(chat: &Chat) {
    assert_eq!(code(&chat.infer(&ask(json!({})))), "ENGINE_CLOSED");
    assert_eq!(code(&chat.explain(&ask(json!({})))), "ENGINE_CLOSED");
    ffi::llb_chat_cancel(chat.handle());
    ffi::llb_chat_destroy(chat.handle());
    assert_eq!(chat.events().last().map(String::as_str), Some("destroy"));
}

#[test]
fn the_end_of_the_process_is_an_error_with_its_reason() {
    let (_folder, model) = own_copy("text.gguf");
    for (signal, name) in [
        (libc::SIGKILL, "9 (SIGKILL)"),
        (libc::SIGSEGV, "11 (SIGSEGV)"),
        (libc::SIGABRT, "6 (SIGABRT)"),
    ] {
        let reason = format!("the helper process of the model ended by signal {name}");
        let check = |reply: &Value| {
            assert_eq!(code(reply), "INFERENCE_FAILED", "{reply}");
            assert_eq!(reply["error"]["message"], reason);
            assert_eq!(reply["error"]["details"]["signal"], signal);
        };
        // The helper ends before a request.
        let chat = open_shifting(&model);
        kill(worker(&chat.events()), signal);
        wait_for_end(worker(&chat.events()));
        check(&chat.infer(&ask(json!({}))));
        check_dead(&chat);
        // The helper ends during a reply. Text that came before that was delivered.
        let chat = open_shifting(&model);
        let process = worker(&chat.events());
        let once = AtomicBool::new(true);
        let recorder = Recorder::reacting(move |_| {
            if once.swap(false, Ordering::Relaxed) {
                kill(process, signal);
            }
        });
        check(&chat.stream(&endless(json!({})), &recorder));
        assert!(recorder.lines().concat().starts_with('a'));
        assert_eq!(
            chat.events().iter().filter(|event| event.starts_with("infer_")).collect::<Vec<_>>(),
            ["infer_start", "infer_failure"]
        );
        check_dead(&chat);
    }
    // The next chat works.
    let chat = open_shifting(&model);
    assert_eq!(chat.infer(&ask(json!({})))["text"], TEXT);
}

#[test]
fn the_end_of_the_process_during_create_is_a_failure() {
    let (_folder, path) = own_copy("reasoning.gguf");
    let options = isolated(json!({ "model": path, "log": "info" })).to_string();
    let options = std::ffi::CString::new(options).unwrap();
    let told = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let events = std::sync::Arc::clone(&told);
    let recorder = Recorder::reacting(move |event| {
        events.lock().unwrap().push(event.to_owned());
        if event.starts_with("log:info:isolation") {
            kill(worker(&events.lock().unwrap()), libc::SIGBUS);
        }
    });
    let data = std::ptr::from_ref(&recorder).cast_mut().cast();
    // SAFETY: NUL-terminated, and the recorder outlives the call.
    let chat =
        unsafe { ffi::llb_chat_create_with(options.as_ptr(), Some(crate::abi::record), data) };
    assert!(chat.is_null());
    let error = crate::abi::last_error();
    assert_eq!(code(&error), "INFERENCE_FAILED");
    assert!(error["error"]["message"].as_str().unwrap().ends_with("signal 7 (SIGBUS)"), "{error}");
    let events = told.lock().unwrap();
    assert_eq!(events.last().map(String::as_str), Some("create_failure:load_model"));
    assert_eq!(events.iter().filter(|event| event.starts_with("create_failure")).count(), 1);
    let chat = open(json!({ "model": path }));
    assert_eq!(chat.infer(&ask(json!({})))["finish_reason"], "stop");
}

#[test]
fn a_process_that_hangs_is_ended() {
    let (_folder, model) = own_copy("text.gguf");
    let chat = open_shifting(&model);
    let process = worker(&chat.events());
    let (once, handle) = (AtomicBool::new(true), chat.handle().addr());
    let recorder = Recorder::reacting(move |_| {
        if once.swap(false, Ordering::Relaxed) {
            stop(process);
            ffi::llb_chat_cancel(std::ptr::without_provenance_mut(handle));
        }
    });
    let reply = chat.stream(&endless(json!({})), &recorder);
    assert_eq!(code(&reply), "INFERENCE_FAILED", "{reply}");
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(message.contains("did not end a cancelled call"), "{message}");
    wait_for_end(process);
    check_dead(&chat);
    // The same without a reply: a time-out or a cancel ends the wait.
    for cancels in [false, true] {
        let chat = open_shifting(&model);
        let process = worker(&chat.events());
        stop(process);
        let mut request = ask(json!({}));
        if !cancels {
            request["timeout_ms"] = REACHES_THE_WORKER.into();
        }
        let explained = std::thread::scope(|scope| {
            let explained = scope.spawn(|| chat.explain(&request));
            // A cancel before the call begins does nothing, so it is repeated.
            while cancels && !explained.is_finished() {
                ffi::llb_chat_cancel(chat.handle());
                std::thread::yield_now();
            }
            explained.join().unwrap()
        });
        assert_eq!(code(&explained), "INFERENCE_FAILED", "{explained}");
        wait_for_end(process);
        check_dead(&chat);
    }
}

/// The monitor that waits for a worker.
pub fn monitor(worker: i32) -> i32 {
    let status = std::fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap().parse().unwrap()
}

/// Stops the worker and the monitor of a chat, and returns them.
pub fn stop_both(chat: &Chat) -> [i32; 2] {
    let worker = worker(&chat.events());
    let both = [worker, monitor(worker)];
    both.iter().rev().for_each(|process| stop(*process));
    both
}

#[test]
fn processes_that_are_stopped_together_are_ended() {
    let (_folder, model) = own_copy("text.gguf");
    // A destroy, and a destroy after a cancelled call.
    for calls in [false, true] {
        let chat = open_shifting(&model);
        let both = stop_both(&chat);
        let start = Instant::now();
        if calls {
            let reply =
                chat.infer(&with(&ask(json!({})), json!({ "timeout_ms": REACHES_THE_WORKER })));
            assert_eq!(code(&reply), "INFERENCE_FAILED", "{reply}");
        }
        drop(chat);
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
        both.into_iter().for_each(wait_for_end);
    }
}

/// The helper must handle the fault: it may read where the file is mapped, and map pages.
#[test]
fn a_file_that_is_cut_is_an_error_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, scripted::random::random(scripted::random::Memory::Dense)).unwrap();
    let options = json!({ "model": path, "log": "info", "tool_policy": "any" });
    let chat = open(options);
    let process = worker(&chat.events());
    assert_eq!(chat.infer(&ask(json!({ "max_tokens": 2 })))["finish_reason"], "length");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(4096).unwrap();
    let reply = chat.infer(&ask(json!({ "max_tokens": 2 })));
    assert_eq!(code(&reply), "INFERENCE_FAILED", "{reply}");
    let message = reply["error"]["message"].as_str().unwrap();
    assert!(message.contains("the file was cut short") && exists(process), "{message}");
}
