//! Tests handles, threads, cancel and destroy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask, infer, scripted_model};
use crate::scripted::{TEXT, long_text};

fn code(reply: &Value) -> &str {
    reply["error"]["code"].as_str().unwrap_or("none")
}

#[test]
fn stale_and_invented_handles_are_refused() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let handle = chat.handle();
    ffi::llb_chat_destroy(handle);
    assert_eq!(code(&infer(handle, &ask(json!({})))), "ENGINE_CLOSED");
    assert_eq!(code(&chat.explain(&ask(json!({})))), "ENGINE_CLOSED");
    ffi::llb_chat_cancel(handle);
    ffi::llb_chat_destroy(handle);
    assert_eq!(chat.events().iter().filter(|line| *line == "destroy").count(), 1);
    // The slot is used again, but the old handle matches nothing.
    let next = Chat::open(&scripted_model("text.gguf"));
    assert_eq!(code(&infer(handle, &ask(json!({})))), "ENGINE_CLOSED");
    ffi::llb_chat_destroy(handle);
    assert_eq!(next.infer(&ask(json!({})))["text"], TEXT);
    for made_up in [0usize, 1, 7, 0xDEAD_BEEF, usize::MAX, 1 << 32, (1 << 32) | 0xFFFF] {
        let handle = std::ptr::without_provenance_mut(made_up);
        if handle != next.handle() {
            assert_eq!(code(&infer(handle, &ask(json!({})))), "ENGINE_CLOSED", "{made_up:#x}");
            ffi::llb_chat_cancel(handle);
            ffi::llb_chat_destroy(handle);
        }
    }
}

#[test]
fn two_threads_on_one_chat_take_turns() {
    let chat = Chat::open(&scripted_model("long.gguf"));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..3 {
                    assert_eq!(chat.infer(&ask(json!({ "max_tokens": 400 })))["text"], long_text());
                }
            });
        }
    });
}

#[test]
fn many_chats_on_one_model_are_decoded_together() {
    // There are more chats than sequences, so some wait.
    let model = scripted_model("long.gguf");
    let chats: Vec<Chat> = (0..9)
        .map(|_| {
            Chat::open_with(&json!({ "model": model, "n_ctx": 2048, "n_parallel": 3 }))
                .unwrap_or_else(|e| panic!("{e:?}"))
        })
        .collect();
    std::thread::scope(|scope| {
        for chat in &chats {
            scope.spawn(|| {
                assert_eq!(chat.infer(&ask(json!({ "max_tokens": 400 })))["text"], long_text())
            });
        }
    });
}

/// A request whose reply has no end: `aaaa…`
fn endless(members: Value) -> Value {
    let mut request = ask(json!({ "logit_bias": { "97": 100 }, "max_tokens": i32::MAX }));
    request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    request
}

/// Checks a cancelled reply: its text is what was generated, and the chat answers the next request.
#[track_caller]
fn check_cut(chat: &Chat, reply: &Value, recorder: &Recorder) {
    let text = reply["text"].as_str().unwrap_or_else(|| panic!("{reply}"));
    assert_eq!(reply["finish_reason"], "cancelled");
    assert_eq!(text, recorder.lines().concat());
    assert_eq!(text, "a".repeat(reply["usage"]["completion_tokens"].as_u64().unwrap() as usize));
    assert_eq!(chat.infer(&ask(json!({})))["text"], TEXT);
}

fn open_shifting() -> Chat {
    let options = json!({ "model": scripted_model("text.gguf"), "context_overflow": "shift" });
    Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"))
}

#[test]
fn cancel_from_the_callback_keeps_what_was_generated() {
    let chat = open_shifting();
    let handle = chat.handle().addr();
    let pieces = AtomicUsize::new(0);
    let recorder = Recorder::reacting(move |_| {
        if pieces.fetch_add(1, Ordering::Relaxed) == 4 {
            ffi::llb_chat_cancel(std::ptr::without_provenance_mut(handle));
        }
    });
    let reply = chat.stream(&endless(json!({})), &recorder);
    assert!(recorder.lines().len() >= 5);
    check_cut(&chat, &reply, &recorder);
}

#[test]
fn cancel_from_another_thread_keeps_what_was_generated() {
    let chat = open_shifting();
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
    check_cut(&chat, &reply, &recorder);
}

#[test]
fn a_time_out_keeps_what_was_generated() {
    let chat = open_shifting();
    let recorder = Recorder::default();
    let reply = chat.stream(&endless(json!({ "timeout_ms": 40 })), &recorder);
    check_cut(&chat, &reply, &recorder);
}

#[test]
fn a_cancel_in_infer_start_is_not_lost() {
    let starts = AtomicUsize::new(0);
    let options = json!({ "model": scripted_model("long.gguf"), "n_ctx": 2048, "n_threads": 1 });
    let chat = Chat::open_reacting(&options, move |event, handle| {
        if event == "infer_start" && starts.fetch_add(1, Ordering::Relaxed) == 0 {
            ffi::llb_chat_cancel(handle);
        }
    });
    // Nothing has been sent to the engine yet, so no token is generated.
    let reply = chat.infer(&ask(json!({ "max_tokens": 400 })));
    assert_eq!(
        (&reply["finish_reason"], &reply["text"]),
        (&json!("cancelled"), &json!("")),
        "{reply}"
    );
    assert_eq!(reply["usage"]["completion_tokens"], 0);
    assert_eq!(chat.infer(&ask(json!({ "max_tokens": 400 })))["text"], long_text());
}

#[test]
fn other_calls_on_the_chat_are_busy_in_its_callback() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let handle = chat.handle().addr();
    let codes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let recorder = Recorder::reacting({
        let codes = Arc::clone(&codes);
        move |_| {
            let reply = infer(std::ptr::without_provenance_mut(handle), &ask(json!({})));
            codes.lock().unwrap().push(code(&reply).to_owned());
        }
    });
    let reply = chat.stream(&ask(json!({})), &recorder);
    assert_eq!(reply["text"], TEXT);
    let codes = codes.lock().unwrap();
    assert!(!codes.is_empty() && codes.iter().all(|code| code == "BUSY"), "{codes:?}");
}

#[test]
fn destroy_from_the_callback_ends_the_call() {
    let chat = Chat::open(&scripted_model("long.gguf"));
    let handle = chat.handle().addr();
    let recorder = Recorder::reacting(move |_| {
        ffi::llb_chat_destroy(std::ptr::without_provenance_mut(handle))
    });
    let reply = chat.stream(&ask(json!({ "max_tokens": 400 })), &recorder);
    assert_eq!(reply["text"].as_str().unwrap(), recorder.lines().concat());
    assert_eq!(chat.events().last().map(String::as_str), Some("destroy"));
    assert_eq!(code(&chat.infer(&ask(json!({})))), "ENGINE_CLOSED");
}

#[test]
fn destroy_from_another_thread_waits_for_the_call() {
    for _ in 0..20 {
        let chat = Chat::open(&scripted_model("long.gguf"));
        std::thread::scope(|scope| {
            let call = scope.spawn(|| chat.infer(&ask(json!({ "max_tokens": 400 }))));
            ffi::llb_chat_destroy(chat.handle());
            let events = chat.events();
            assert_eq!(events.last().map(String::as_str), Some("destroy"));
            let reply = call.join().unwrap();
            assert!(
                reply["type"] == "assistant_text" || code(&reply) == "ENGINE_CLOSED",
                "{reply}"
            );
            assert_eq!(chat.events(), events, "no event comes after destroy has returned");
        });
    }
}

unsafe extern "C" fn create_again(
    event: *const std::ffi::c_char,
    user_data: *mut std::ffi::c_void,
) {
    // SAFETY: the library passes a string that is valid during the call.
    let event = unsafe { std::ffi::CStr::from_ptr(event) };
    if event == c"create_start" {
        // SAFETY: the test passes its path, which outlives the call.
        let path = unsafe { &*user_data.cast::<std::ffi::CString>() };
        // SAFETY: NUL-terminated.
        let inner = unsafe { ffi::llb_chat_create(path.as_ptr(), None, std::ptr::null_mut()) };
        assert!(inner.is_null());
        assert_eq!(crate::abi::last_error()["error"]["code"], "BUSY");
    }
}

#[test]
fn create_in_a_callback_of_create_is_busy() {
    let path = std::ffi::CString::new(scripted_model("text.gguf")).unwrap();
    let data = std::ptr::from_ref(&path).cast_mut().cast();
    // SAFETY: NUL-terminated; the path outlives the chat.
    let chat = unsafe { ffi::llb_chat_create(path.as_ptr(), Some(create_again), data) };
    assert!(!chat.is_null());
    ffi::llb_chat_destroy(chat);
}

#[test]
fn template_functions_work_in_a_callback() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let recorder = Recorder::reacting(|_| {
        let request = json!({ "chat_template": "{{ messages[0].content }}", "messages": [{ "role": "user", "content": "x" }] });
        assert_eq!(crate::abi::call(ffi::llb_template_render, &request)["prompt"], "x");
    });
    assert_eq!(chat.stream(&ask(json!({})), &recorder)["text"], TEXT);
}
