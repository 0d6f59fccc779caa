//! Tests `engine: {"type": "openai_completions"}`, with well-behaved and with faulty servers. The
//! tests are in one file because they share the checks of replies and errors.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask, call, scripted_model, weather_tool};
use crate::remote_server::{
    Server, answer, chunk, end, head, json_answer, stream, text, wait_for_close,
};
use crate::scripted::{TOOL_CALL, TOOLS_TEMPLATE};

/// The key is in the environment of every test, and must not appear in any message.
const KEY: &str = "CARGO_MANIFEST_DIR";

fn options(engine: Value) -> Value {
    let mut whole = json!({ "type": "openai_completions", "server": "openai", "model": "m" });
    whole.as_object_mut().unwrap().extend(engine.as_object().unwrap().clone());
    json!({ "chat_template": TOOLS_TEMPLATE, "engine": whole, "log": "warn" })
}

#[track_caller]
fn open(engine: Value) -> Chat {
    Chat::open_with(&options(engine)).unwrap_or_else(|refused| panic!("{refused:?}"))
}

#[track_caller]
fn check_error(reply: &Value, code: &str, says: &str) {
    assert_eq!(reply["error"]["code"], code, "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains(says), "{reply}");
}

/// The codes of a reply's diagnostics.
fn codes(reply: &Value) -> Vec<&str> {
    reply["diagnostics"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|diagnostic| diagnostic["code"].as_str().unwrap())
        .collect()
}

fn rendered() -> Value {
    let mut request = ask(json!({ "chat_template": TOOLS_TEMPLATE }));
    request.as_object_mut().unwrap().remove("temperature");
    call(ffi::llb_template_render, &request)["prompt"].clone()
}

#[test]
fn components_need_no_model_file() {
    let server = Server::saying(&["Good", " day", "</a>", " and more"]);
    let components = json!({
        "user_template": "<u>{content}</u>",
        "assistant_template": "<a>{content}</a>",
        "stop_words": "</a>",
    });
    let mut options = options(json!({ "base_url": server.url() }));
    let members = options.as_object_mut().unwrap();
    members.remove("chat_template");
    members.insert("components".into(), components);
    members.insert("tool_policy".into(), "any".into());
    let chat = Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
    let reply = chat.infer(&ask(json!({})));
    assert_eq!((&reply["text"], &reply["finish_reason"]), (&json!("Good day"), &json!("stop")));
    let sent = server.seen()[0].body.clone();
    assert_eq!((&sent["prompt"], &sent["stop"]), (&json!("<u>Hello</u><a>"), &json!(["</a>"])));
}

#[test]
fn a_server_is_identified_and_replies() {
    let said = "Gr\u{fc}\u{df}e \u{1F600}.";
    let server = Server::start(move |request, out| match &*request.path {
        "/v1/models" => json_answer(
            out,
            &json!({ "data": [{ "id": "served", "owned_by": "vllm", "max_model_len": 4096 }] }),
        ),
        _ => {
            head(out);
            // Events may be split anywhere, even inside characters.
            let events = format!(": ping\r\n\r\n{}{}", text(said), end(7, 3));
            events.as_bytes().chunks(3).for_each(|bytes| assert!(chunk(out, bytes)));
            let _ = out.write_all(b"0\r\n\r\n");
        }
    });
    let engine = json!({ "type": "openai_completions", "base_url": format!("http://{}", server.address), "api_key_env": KEY });
    let chat =
        Chat::open_with(&json!({ "chat_template": TOOLS_TEMPLATE, "engine": engine })).unwrap();
    assert_eq!(chat.events(), ["create_start", "create_success"]);
    assert!(server.seen().is_empty(), "a server may start later");
    let recorder = Recorder::default();
    let request =
        json!({ "seed": 5, "top_k": 3, "stop": "END", "stop_scope": "all", "max_tokens": 50 });
    let reply = chat.stream(&ask(request), &recorder);
    assert_eq!((&reply["text"], &reply["finish_reason"]), (&json!(said), &json!("stop")));
    assert_eq!(recorder.lines().concat(), said);
    assert_eq!(
        (&reply["usage"]["prompt_tokens"], &reply["usage"]["completion_tokens"]),
        (&json!(7), &json!(3))
    );
    assert_eq!(reply["diagnostics"], json!([]));
    let seen = server.seen();
    assert_eq!(
        seen.iter().map(|request| &*request.path).collect::<Vec<_>>(),
        ["/v1/models", "/v1/completions"]
    );
    let key = format!("Bearer {}", std::env::var(KEY).unwrap());
    assert!(seen.iter().all(|request| request.headers["authorization"] == key));
    let body = &seen[1].body;
    assert_eq!(body["prompt"], rendered());
    for (name, value) in [
        ("model", json!("served")),
        ("temperature", json!(0.0)),
        ("seed", json!(5)),
        ("max_tokens", json!(50)),
        ("top_k", json!(3)),
        ("stop", json!(["END"])),
        ("skip_special_tokens", json!(false)),
    ] {
        assert_eq!(body[name], value, "{name}");
    }
    chat.infer(&ask(json!({ "max_tokens": 50 })));
    assert_eq!(server.seen().len(), 3, "the kind of server was known");
}

#[test]
fn events_are_those_of_the_chosen_engine() {
    // A member that SGLang's events have.
    let server = Server::start(|_, out| {
        head(out);
        let choice = json!({ "index": 0, "text": "Hi", "finish_reason": "stop" });
        let event = json!({ "choices": [choice], "meta_info": { "id": "1" } });
        chunk(out, format!("data: {event}\n\ndata: [DONE]\n\n").as_bytes());
        let _ = out.write_all(b"0\r\n\r\n");
    });
    let reply = open(json!({ "base_url": server.url() })).infer(&ask(json!({})));
    assert_eq!(reply["text"], "Hi", "{reply}");
}

#[test]
fn stop_strings_and_settings_that_are_not_carried() {
    let server = Server::saying(&["one EN", "D two", " three"]);
    let chat = open(json!({ "base_url": server.url() }));
    let reply = chat
        .infer(&ask(json!({ "stop": "END", "typical_p": 0.5, "reasoning_budget": 3, "min_p": 0 })));
    assert_eq!((&reply["text"], &reply["finish_reason"]), (&json!("one "), &json!("stop")));
    assert_eq!(reply["stop_sequence"], "END");
    let bodies = server.seen().into_iter().map(|request| request.body);
    assert!(bodies.filter(|body| body["prompt"].is_string()).all(|body| body["stop"].is_null()));
    assert_eq!(codes(&reply), ["not_carried", "reasoning_budget_ignored", "usage_estimated"]);
    assert!(
        reply["diagnostics"][0]["message"].as_str().unwrap().starts_with("top_k, typical_p: "),
        "{reply}"
    );
}

#[test]
fn calls_are_read_from_the_text_and_checked() {
    let server = Server::saying(&[
        "<tool",
        "_call>\n{\"name\": \"get_weather\", \"arg",
        "uments\": {\"city\": 5}}\n</tool_call>",
    ]);
    let chat = open(json!({ "base_url": server.url() }));
    let tools = json!([weather_tool()]);
    let reply = chat.infer(&ask(json!({ "tools": tools, "top_k": 0, "min_p": 0 })));
    assert_eq!(
        (&reply["type"], &reply["finish_reason"]),
        (&json!("tool_call"), &json!("tool_calls"))
    );
    assert_eq!(reply["tool_calls"][0]["arguments"], r#"{"city": 5}"#);
    assert_eq!(codes(&reply), ["schema_violation"]);
    let reply = chat
        .infer(&ask(json!({ "tools": tools, "tool_choice": "required", "top_k": 0, "min_p": 0 })));
    assert_eq!(codes(&reply), ["constraint_not_enforced", "schema_violation"]);
    let asked = server.seen().len();
    let mut strict = tools.clone();
    strict[0]["function"]["strict"] = json!(true);
    check_error(
        &chat.infer(&ask(json!({ "tools": strict }))),
        "SCHEMA_UNSUPPORTED",
        "tools[0].function.strict (get_weather)",
    );
    check_error(
        &chat.infer(&ask(json!({ "grammar": "start: \"a\"" }))),
        "SCHEMA_UNSUPPORTED",
        "grammar: ",
    );
    assert_eq!(server.seen().len(), asked);
}

#[test]
fn a_server_that_accepts_grammars_gets_them() {
    for (kind, pointer) in [("llama", "/grammar"), ("vllm", "/structured_outputs/grammar")] {
        let server = Server::start(|request, out| match &*request.path {
            "/v1/completions" => stream(out, &[TOOL_CALL], &end(1, 1)),
            "/tokenize" if request.body["with_pieces"] == true => {
                json_answer(out, &json!({ "tokens": [] }))
            }
            _ => json_answer(out, &json!({ "tokens": [4711] })),
        });
        let chat =
            open(json!({ "base_url": server.url(), "server": kind, "constraints": "llguidance" }));
        let reply =
            chat.infer(&ask(json!({ "tools": [weather_tool()], "tool_choice": "required" })));
        assert_eq!(
            (&reply["tool_calls"][0]["name"], codes(&reply).is_empty()),
            (&json!("get_weather"), true),
            "{reply}"
        );
        let seen = server.seen();
        let grammar = seen
            .last()
            .unwrap()
            .body
            .pointer(pointer)
            .and_then(Value::as_str)
            .expect(kind)
            .to_owned();
        assert!(grammar.contains("get_weather") && grammar.contains("start: "), "{grammar}");
        assert_eq!(kind == "llama", grammar.starts_with("%llguidance"), "{grammar}");
    }
}

/// A server that closes the connection gives no status, by which a refused constraint is known.
#[test]
fn a_constrained_request_that_gets_no_answer_fails() {
    let server = Server::start(|request, out| match &*request.path {
        "/v1/completions" => {}
        _ => json_answer(out, &json!({ "tokens": [4711] })),
    });
    let chat =
        open(json!({ "base_url": server.url(), "server": "vllm", "constraints": "llguidance" }));
    let reply = chat.infer(&ask(json!({ "tools": [weather_tool()], "tool_choice": "required" })));
    check_error(&reply, "INFERENCE_FAILED", "disconnected");
    assert!(server.seen().iter().any(|request| request.path == "/v1/completions"), "{reply}");
}

#[test]
fn another_server_is_tried_until_a_reply_begins() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = format!("http://{closed}/v1");
    let refusing = |status: &'static str, headers: &'static str| {
        Server::start(move |_, out| {
            answer(out, status, headers, r#"{"error": {"message": "not now"}}"#)
        })
    };
    let silent = Server::start(|_, _| {});
    let cut = Server::start(|_, out| head(out));
    let said = Server::start(|_, out| {
        head(out);
        chunk(out, b"data: {\"error\": {\"message\": \"out of memory\", \"code\": 500}}\n\n");
    });
    let faults = [
        (gone, "refused"),
        (refusing("500 Internal Server Error", "").url(), "failed (status 500): not now"),
        (
            refusing("503 Service Unavailable", "Retry-After: 3600\r\n").url(),
            "failed (status 503): not now",
        ),
        (
            refusing("429 Too Many Requests", "Retry-After: 3600\r\n").url(),
            "is busy (status 429): not now",
        ),
        (silent.url(), ""),
        (cut.url(), ""),
        (said.url(), "out of memory"),
    ];
    for (url, says) in faults {
        let good = Server::saying(&["ok"]);
        let chat = open(json!({ "base_url": [url, good.url()] }));
        let reply = chat.infer(&ask(json!({})));
        assert_eq!(reply["text"], "ok", "{url}: {reply}");
        let logged: Vec<String> =
            chat.events().into_iter().filter(|event| event.starts_with("log:warn:")).collect();
        assert!(logged.len() == 1 && logged[0].to_lowercase().contains(says), "{url}: {logged:?}");
        let alone = open(json!({ "base_url": url }));
        let reply = alone.infer(&ask(json!({})));
        check_error(
            &reply,
            "INFERENCE_FAILED",
            url.trim_start_matches("http://").trim_end_matches("/v1"),
        );
        assert!(reply["error"]["details"]["server"].is_string(), "{reply}");
        // The next request skips the server that failed.
        assert_eq!((&chat.infer(&ask(json!({})))["text"], good.seen().len()), (&json!("ok"), 2));
    }
}

#[test]
fn a_busy_server_is_retried_after_its_delay() {
    let times = Mutex::new(0);
    let server = Server::start(move |_, out| {
        let mut times = times.lock().unwrap();
        *times += 1;
        match *times {
            1 | 2 => answer(out, "429 Too Many Requests", "Retry-After: 0\r\n", ""),
            _ => stream(out, &["at last"], &end(1, 2)),
        }
    });
    let chat = open(json!({ "base_url": server.url() }));
    assert_eq!((&chat.infer(&ask(json!({})))["text"], server.seen().len()), (&json!("at last"), 3));
}

#[test]
fn the_least_busy_server_is_chosen() {
    let (arrived, arrivals) = channel();
    let held = Mutex::new(arrived);
    let slow = Server::start(move |_, out| {
        held.lock().unwrap().send(()).unwrap();
        wait_for_close(out);
    });
    let quick = Server::saying(&["quick"]);
    let urls = json!([slow.url(), quick.url()]);
    let (waits, works) = (open(json!({ "base_url": urls })), open(json!({ "base_url": urls })));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| waits.infer(&ask(json!({}))));
        arrivals.recv().unwrap();
        for _ in 0..3 {
            assert_eq!(works.infer(&ask(json!({})))["text"], "quick");
        }
        ffi::llb_chat_cancel(waits.handle());
        assert_eq!(waiting.join().unwrap()["finish_reason"], "cancelled");
    });
    assert_eq!((slow.seen().len(), quick.seen().len()), (1, 3));
}

#[test]
fn a_started_reply_is_not_restarted() {
    let events = |more: &'static [u8]| {
        Server::start(move |_, out| {
            head(out);
            chunk(out, text("so far").as_bytes());
            chunk(out, more);
        })
    };
    let endless = Server::start(|_, out| {
        head(out);
        chunk(out, text("so far").as_bytes());
        while chunk(out, &[b'x'; 65536]) {}
    });
    let flood = Server::start(|_, out| {
        head(out);
        while chunk(out, text(&"y".repeat(1 << 16)).as_bytes()) {}
    });
    let logprobs = Server::start(|_, out| {
        head(out);
        chunk(out, text("so far").as_bytes());
        let tokens = json!({ "tokens": vec!["y"; 10_000] });
        let event = json!({ "choices": [{ "text": "", "logprobs": tokens }] });
        while chunk(out, format!("data: {event}\n\n").as_bytes()) {}
    });
    let unfinished = Server::start(|_, out| stream(out, &["so far"], "data: [DONE]\n\n"));
    for (server, says) in [
        (events(b""), "broke off"),
        (unfinished, "finish_reason"),
        (events(b"data: {{{\n\n"), "not JSON"),
        (events(b"data: {\"choices\": [{\"text\": 7}]}\n\n"), "`text`"),
        (
            events(b"data: {\"choices\": [{\"text\": \"\", \"finish_reason\": \"abort\"}]}\n\n"),
            "abort",
        ),
        (events(b"data: {\"error\": \"out of order\"}\n\n"), "out of order"),
        (endless, "an event that does not end"),
        (flood, "more text than the requested number of tokens"),
        (logprobs, "log probabilities of more tokens"),
    ] {
        let other = Server::saying(&["other"]);
        let chat = open(json!({ "base_url": [server.url(), other.url()] }));
        let reply = chat.infer(&ask(json!({})));
        check_error(&reply, "INFERENCE_FAILED", says);
        let generated = reply["error"]["details"]["generated"].as_str().unwrap();
        assert!(
            generated == "so far" || says.starts_with("more text") && generated.len() < 1 << 20,
            "{reply}"
        );
        assert_eq!(other.seen().len(), 0, "{says}");
    }
}

#[test]
fn silence_ends_with_a_time_out_or_a_cancel() {
    let (closed, closes) = channel();
    let closed = Mutex::new(closed);
    let server = Server::start(move |request, out| {
        head(out);
        if request.body["max_tokens"] == 2 {
            chunk(out, text("two").as_bytes());
        }
        wait_for_close(out);
        closed.lock().unwrap().send(()).unwrap();
    });
    // Text that the server has sent must arrive within the time-out, even on a busy machine.
    for (max_tokens, timeout, says) in
        [(1, 50, "silent for too long"), (2, 3000, "broke off: the server was silent")]
    {
        let chat = open(json!({ "base_url": server.url(), "read_timeout_ms": timeout }));
        check_error(
            &chat.infer(&ask(json!({ "max_tokens": max_tokens }))),
            "INFERENCE_FAILED",
            says,
        );
        closes.recv().unwrap();
    }
    // The time-out is far longer than any test waits.
    let chat = open(json!({ "base_url": server.url(), "read_timeout_ms": 3_600_000 }));
    // The request must reach the server within the time-out.
    for (max_tokens, timeout, text) in [(1, 3000, ""), (2, 3000, "two")] {
        let reply = chat.infer(&ask(json!({ "max_tokens": max_tokens, "timeout_ms": timeout })));
        assert_eq!((&reply["finish_reason"], &reply["text"]), (&json!("cancelled"), &json!(text)));
        closes.recv().unwrap();
        let asked = server.seen().len();
        let reply = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| chat.infer(&ask(json!({ "max_tokens": max_tokens }))));
            while server.seen().len() == asked && !waiting.is_finished() {
                std::thread::yield_now();
            }
            ffi::llb_chat_cancel(chat.handle());
            waiting.join().unwrap()
        });
        assert_eq!(reply["finish_reason"], "cancelled", "{reply}");
        closes.recv().unwrap();
    }
}

#[test]
fn the_key_goes_to_the_server_and_nowhere_else() {
    let other = Server::saying(&["stolen"]);
    let target = format!("Location: {}/completions\r\n", other.url());
    let server = Server::start(move |_, out| answer(out, "307 Temporary Redirect", &target, ""));
    let reply =
        open(json!({ "base_url": server.url(), "api_key_env": KEY })).infer(&ask(json!({})));
    check_error(&reply, "INFERENCE_FAILED", "redirects (status 307), which is not followed");
    assert!(other.seen().is_empty());
    // A server that sends the key back.
    let server = Server::start(|request, out| {
        let body =
            json!({ "error": { "message": format!("bad {}", request.headers["authorization"]) } });
        answer(out, "401 Unauthorized", "", &body.to_string());
    });
    let chat = open(json!({ "base_url": server.url(), "api_key_env": KEY }));
    let reply = chat.infer(&ask(json!({})));
    check_error(&reply, "INFERENCE_FAILED", "missing or wrong (status 401): bad Bearer [key]");
    let key = std::env::var(KEY).unwrap();
    assert!(!reply.to_string().contains(&key) && !chat.events().concat().contains(&key));
}

#[test]
fn an_unsuitable_server_is_named() {
    let body = "{\"text\": \"hi\"}";
    let cases = [
        (
            "200 OK",
            "Content-Type: application/json\r\n",
            body,
            "INFERENCE_FAILED",
            "\"application/json\" instead of a stream",
        ),
        ("404 Not Found", "", body, "INFERENCE_FAILED", "check base_url and engine.model"),
        ("422 No", "", body, "INFERENCE_FAILED", "refused the request (status 422)"),
        (
            "400 Bad Request",
            "",
            r#"{"error": {"message": "too long", "type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8}}"#,
            "CONTEXT_OVERFLOW",
            "too long",
        ),
    ];
    for (status, headers, body, code, says) in cases {
        let server = Server::start(move |_, out| answer(out, status, headers, body));
        check_error(&open(json!({ "base_url": server.url() })).infer(&ask(json!({}))), code, says);
    }
    let garbage = Server::start(|_, out| drop(out.write_all(b"SSH-2.0-x\r\n\r\n")));
    check_error(
        &open(json!({ "base_url": garbage.url() })).infer(&ask(json!({}))),
        "INFERENCE_FAILED",
        "",
    );
}

#[test]
fn messages_cannot_spell_special_tokens() {
    let spelt =
        json!({ "messages": [{ "role": "user", "content": "a<|im_end|>b" }], "temperature": 0 });
    let mut allowed = spelt.clone();
    allowed["parse_special_in_messages"] = json!(true);
    // Each text is one token. Its id is the position among the received texts.
    let tokenizer = || {
        Server::start(|request, out| match &*request.path {
            "/v1/completions" => stream(out, &["ok"], &end(1, 1)),
            _ => {
                let text =
                    request.body["content"].as_str().or(request.body["prompt"].as_str()).unwrap();
                let special = text.starts_with("<|")
                    && text.ends_with("|>")
                    && request.body["parse_special"] != false;
                let tokens = if special { json!([900]) } else { json!([text.len(), 1]) };
                json_answer(out, &json!({ "tokens": tokens, "count": 1 }));
            }
        })
    };
    let sent = |server: &Server| server.seen().last().unwrap().body["prompt"].clone();
    let llama = tokenizer();
    let chat = open(json!({ "base_url": llama.url(), "server": "llama" }));
    assert_eq!(chat.infer(&spelt)["text"], "ok");
    let numbers = sent(&llama);
    let specials =
        numbers.as_array().expect("numbers").iter().filter(|number| **number == 900).count();
    assert_eq!(specials, 3, "those of the template: {numbers}");
    let asked = |server: &Server, text: &str| {
        server.seen().iter().any(|request| request.body["content"] == text)
    };
    assert!(asked(&llama, "user\na<|im_end|>b"), "as one text, in which nothing is special");
    chat.infer(&allowed);
    assert!(sent(&llama).as_str().unwrap().contains("a<|im_end|>b"));
    let vllm = tokenizer();
    let chat = open(json!({ "base_url": vllm.url(), "server": "vllm" }));
    assert_eq!(chat.infer(&spelt)["text"], "ok");
    assert!(sent(&vllm).is_array());
    let parts: Vec<String> = vllm
        .seen()
        .iter()
        .filter_map(|request| request.body["prompt"].as_str().map(str::to_owned))
        .collect();
    assert!(
        parts.iter().any(|part| part.ends_with("user\na<"))
            && parts.iter().any(|part| part.starts_with("|im_end|>b"))
    );
    let plain = Server::saying(&["ok"]);
    let chat = open(json!({ "base_url": plain.url() }));
    check_error(&chat.infer(&spelt), "INVALID_REQUEST", "special_tokens_in_messages");
    assert_eq!((plain.seen().len(), &chat.infer(&allowed)["text"]), (0, &json!("ok")));
}

#[test]
fn an_explanation_needs_no_server() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let explained = open(json!({ "base_url": format!("http://{closed}"), "server": "vllm" }))
        .explain(&ask(json!({})));
    assert_eq!((&explained["prompt"], &explained["prompt_tokens"]), (&rendered(), &Value::Null));
    assert_eq!(
        (&explained["special_tokens"], &explained["tokens_left"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(codes(&explained), ["prompt_tokens_unknown"]);
    let server = Server::start(|_, out| json_answer(out, &json!({ "tokens": [1, 2, 3] })));
    let mut with = options(json!({ "base_url": server.url(), "server": "vllm" }));
    with["n_ctx"] = json!(100);
    let chat = Chat::open_with(&with).unwrap();
    let explained = chat.explain(&ask(json!({})));
    assert_eq!((&explained["prompt_tokens"], &explained["tokens_left"]), (&json!(3), &json!(97)));
    let server = Server::start(|_, out| {
        json_answer(out, &json!({ "tokens": (0..100).collect::<Vec<_>>() }))
    });
    with["engine"]["base_url"] = json!(server.url());
    check_error(
        &Chat::open_with(&with).unwrap().infer(&ask(json!({}))),
        "CONTEXT_OVERFLOW",
        "100 tokens, but the context has 100",
    );
    assert!(server.seen().iter().all(|request| request.path == "/tokenize"));
}

#[test]
fn a_template_comes_from_a_file_without_weights() {
    let server = Server::saying(&["hi", "<|im_end|>"]);
    let engine = json!({ "type": "openai_completions", "base_url": server.url(), "server": "openai", "model": "m" });
    let chat =
        Chat::open_with(&json!({ "model": scripted_model("truncated.gguf"), "engine": engine }))
            .unwrap();
    let reply = chat.infer(&ask(json!({})));
    assert_eq!(reply["text"], "hi", "the end of the turn is not text");
    let refused = |options: Value, event: &str, code: &str, says: &str| {
        let refused = Chat::open_with(&options).err().expect("refused");
        assert_eq!(refused.events, ["create_start", &format!("create_failure:{event}")]);
        assert_eq!(refused.code(), code);
        assert!(refused.message().contains(says), "{}", refused.message());
    };
    refused(json!({ "engine": engine }), "invalid_options", "INVALID_REQUEST", "chat_template");
    refused(
        json!({ "engine": engine, "model": "/none" }),
        "model_not_found",
        "MODEL_NOT_FOUND",
        "/none",
    );
    let incapable = json!({ "engine": engine, "chat_template": "{{ messages[0].content }}" });
    refused(incapable, "tools_unsupported", "MODEL_NOT_TOOL_CAPABLE", "does not show tools");
    let mut unset = engine.clone();
    unset["api_key_env"] = json!("LLB_NO_SUCH_VARIABLE");
    let unset = json!({ "engine": unset, "chat_template": TOOLS_TEMPLATE });
    refused(
        unset,
        "invalid_options",
        "INVALID_REQUEST",
        "engine.api_key_env: the environment variable",
    );
    let threads = json!({ "engine": engine, "chat_template": TOOLS_TEMPLATE, "n_threads": 2 });
    refused(
        threads,
        "invalid_options",
        "INVALID_REQUEST",
        "n_threads: applies to a model in this process only",
    );
}

#[test]
fn a_server_gets_the_defaults() {
    let server = Server::saying(&["Hello"]);
    let engine = json!({
        "type": "openai_completions", "server": "vllm", "model": "m", "base_url": server.url(),
    });
    let silent = json!({ "messages": [{ "role": "user", "content": "Hi" }] });
    let open = |further: Value| {
        let mut options = json!({ "chat_template": TOOLS_TEMPLATE, "engine": engine });
        options.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"))
    };
    let sent = |chat: &Chat| {
        chat.infer(&silent);
        let seen = server.seen();
        let last = seen.iter().rev().find(|request| request.path == "/v1/completions");
        last.unwrap().body.clone()
    };
    let body = sent(&open(json!({})));
    for (name, value) in [("temperature", json!(0.7)), ("top_k", json!(40)), ("top_p", json!(0.95))]
    {
        assert_eq!(body[name], value, "{name}");
    }
    let chat = open(json!({ "defaults": { "temperature": 0.25, "top_k": 3, "max_tokens": 7 } }));
    let body = sent(&chat);
    assert_eq!(
        (&body["temperature"], &body["top_k"], &body["max_tokens"], &body["top_p"]),
        (&json!(0.25), &json!(3), &json!(7), &json!(0.95))
    );
    let explained = chat.explain(&silent);
    assert_eq!(explained["sampling"]["temperature"], 0.25);
    assert_eq!(explained["sampling"]["top_p"], 0.95);
    // The file of a server's model recommends parameters just as that of a model in this process.
    let mut model = crate::scripted::text_model();
    model.metadata = vec![("general.sampling.temp".to_owned(), 0.5_f32.into())];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, model.to_bytes()).unwrap();
    let options = json!({ "model": path, "engine": engine, "defaults": { "top_k": 3 } });
    let body = sent(&Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}")));
    assert_eq!((&body["temperature"], &body["top_k"]), (&json!(0.5), &json!(3)));
}

#[test]
fn the_reasoning_of_a_server_cannot_be_ended() {
    let server = Server::saying(&["Good", " day"]);
    let chat = open(json!({ "base_url": server.url() }));
    let handle = chat.handle().addr();
    let recorder = Recorder::reacting(move |_| {
        ffi::llb_chat_end_reasoning(std::ptr::without_provenance_mut(handle));
    });
    let reply = chat.stream(&ask(json!({ "reasoning_budget_message": "Stop." })), &recorder);
    assert_eq!(reply["text"], "Good day");
    let codes = codes(&reply);
    assert!(codes.contains(&"reasoning_end_ignored"), "{codes:?}");
    assert!(codes.contains(&"reasoning_budget_ignored"), "{codes:?}");
}
