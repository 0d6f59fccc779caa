//! Tests `llb_chat_infer*` with models whose replies are known.

use std::ffi::CString;

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask, own_model, scripted_model, take};
use crate::scripted::{LONG_TOKENS, TEXT, long_text};

#[test]
fn a_reply_has_the_documented_shape() {
    // The options differ from those of other tests, whose chats therefore leave nothing in this
    // cache.
    let options = json!({ "model": scripted_model("text.gguf"), "n_ctx": 1033 });
    let chat = Chat::open_with(&options).unwrap_or_else(|refused| panic!("{refused:?}"));
    let reply = chat.infer(&ask(json!({})));
    assert_eq!(reply["type"], "assistant_text");
    assert_eq!(reply["text"], TEXT);
    assert_eq!(reply["reasoning_content"], Value::Null);
    assert_eq!(reply["tool_calls"], json!([]));
    assert_eq!(reply["finish_reason"], "stop");
    assert_eq!(reply["message"], json!({ "role": "assistant", "content": TEXT }));
    assert_eq!(reply["logprobs"], Value::Null);
    assert_eq!(reply["polyfills_applied"], json!([]));
    assert_eq!(reply["diagnostics"], json!([]));
    let usage = &reply["usage"];
    // The vocabulary has one token for every byte and one for each marker, so the length of the
    // prompt is known.
    let prompt = "user\nHello\nassistant\n".len() + "\n".len() - 1 + 3;
    assert_eq!(usage["prompt_tokens"], prompt);
    assert_eq!(usage["completion_tokens"], 12);
    assert_eq!(usage["total_tokens"], prompt + 12);
    assert_eq!(usage["prompt_tokens_details"], json!({ "cached_tokens": 0 }));
    for key in ["prompt_ms", "predicted_ms", "prompt_per_second", "predicted_per_second"] {
        assert!(reply["timings"][key].as_f64().is_some_and(|n| n >= 0.0), "{key}");
    }
    assert_eq!(
        chat.events().iter().rev().take(2).collect::<Vec<_>>(),
        ["infer_success", "infer_start"]
    );
}

#[test]
fn a_stream_adds_up_to_the_reply() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let recorder = Recorder::default();
    let reply = chat.stream(&ask(json!({})), &recorder);
    assert_eq!(recorder.lines().concat(), TEXT);
    assert!(recorder.lines().len() > 5, "{:?}", recorder.lines());
    assert_eq!(reply["text"], TEXT);
}

#[test]
fn chunks_add_up_to_the_reply() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let recorder = Recorder::default();
    let request =
        ask(json!({ "stream_format": "chunks", "stream_options": { "include_usage": true } }));
    let reply = chat.stream(&request, &recorder);
    let chunks: Vec<Value> =
        recorder.lines().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let content: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(content, TEXT);
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["object"] == "chat.completion.chunk"
                && chunk["id"] == chunks[0]["id"])
    );
    let last = chunks.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    assert_eq!(last["usage"], reply["usage"]);
}

#[test]
fn stop_strings_end_the_text_and_are_not_part_of_it() {
    let chat = Chat::open(&scripted_model("long.gguf"));
    for stop in [json!(" 12 "), json!(["nothing", " 12 "])] {
        let recorder = Recorder::default();
        let reply = chat.stream(&ask(json!({ "stop": stop, "max_tokens": 1000 })), &recorder);
        assert_eq!(reply["text"], "Counting: 1 2 3 4 5 6 7 8 9 10 11");
        assert_eq!(recorder.lines().concat(), reply["text"].as_str().unwrap());
        assert_eq!(
            (&reply["finish_reason"], &reply["stop_sequence"]),
            (&json!("stop"), &json!(" 12 "))
        );
    }
}

#[test]
fn max_tokens_is_exact() {
    let chat = Chat::open(&scripted_model("long.gguf"));
    for (name, tokens) in [("max_tokens", 1), ("max_tokens", 7), ("max_completion_tokens", 7)] {
        let reply = chat.infer(&ask(json!({ name: tokens })));
        assert_eq!(reply["finish_reason"], "length");
        assert_eq!(reply["usage"]["completion_tokens"], tokens);
    }
    let reply = chat.infer(&ask(json!({ "max_tokens": LONG_TOKENS + 1 })));
    assert_eq!((&reply["finish_reason"], &reply["text"]), (&json!("stop"), &json!(long_text())));
    assert_eq!(reply["usage"]["completion_tokens"], LONG_TOKENS);
}

#[test]
fn a_cut_character_becomes_a_replacement_character() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let recorder = Recorder::default();
    let reply = chat.stream(&ask(json!({ "max_tokens": 1 })), &recorder);
    assert_eq!(reply["text"], "Gr\u{FFFD}");
    assert_eq!(recorder.lines().concat(), "Gr\u{FFFD}");
}

#[test]
fn a_full_context_ends_with_length_and_a_long_prompt_is_refused() {
    let chat = Chat::open_with(&json!({ "model": scripted_model("long.gguf"), "n_ctx": 256 }))
        .unwrap_or_else(|e| panic!("{e:?}"));
    let n_ctx = chat.explain(&ask(json!({})))["prompt_tokens"].as_u64().unwrap()
        + chat.explain(&ask(json!({})))["tokens_left"].as_u64().unwrap();
    let reply = chat.infer(&ask(json!({ "max_tokens": 100_000 })));
    assert_eq!(reply["finish_reason"], "length");
    let usage = &reply["usage"];
    assert!(
        usage["total_tokens"].as_u64().unwrap() >= n_ctx
            && usage["total_tokens"].as_u64().unwrap() <= n_ctx + 1,
        "{usage}"
    );

    let long = "x".repeat(10_000);
    let reply = chat.infer(&json!({ "messages": [{ "role": "user", "content": long }] }));
    assert_eq!(reply["error"]["code"], "CONTEXT_OVERFLOW");
    assert_eq!(reply["error"]["details"]["n_ctx"], n_ctx);
    assert_eq!(
        reply["error"]["details"]["prompt_tokens"],
        10_000 + "user\n\nassistant\n".len() + 3
    );
    // The engine serves the next request.
    assert_eq!(chat.infer(&ask(json!({ "max_tokens": 2 })))["text"], "Counting: 1");
}

#[test]
fn the_sampler_obeys_its_fields() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    // The scripted token leads by far, so usual sampling settings follow the script with any seed.
    for seed in 0..3 {
        let request = ask(
            json!({ "temperature": 1.0, "top_k": 40, "top_p": 0.9, "min_p": 0.05, "seed": seed }),
        );
        assert_eq!(chat.infer(&request)["text"], TEXT);
    }
    // At a temperature that flattens the distribution, only the seed decides.
    let wild = |seed: i64| {
        let request = ask(
            json!({ "temperature": 100.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": seed, "max_tokens": 24 }),
        );
        chat.infer(&request)["text"].clone()
    };
    assert_eq!(wild(1), wild(1));
    assert_ne!(wild(1), wild(2));
    // top_k 1 and min_p 1 are greedy at any temperature.
    for narrow in [json!({ "top_k": 1 }), json!({ "min_p": 1.0 }), json!({ "top_p": 0.0 })] {
        let mut request = ask(json!({ "temperature": 100.0, "seed": 3 }));
        request.as_object_mut().unwrap().extend(narrow.as_object().unwrap().clone());
        assert_eq!(chat.infer(&request)["text"], TEXT, "{narrow}");
    }
    // The token of a byte is its value. A bias of 100 exceeds the script's logit.
    let reply = chat.infer(&ask(json!({ "logit_bias": { "97": 100 }, "max_tokens": 5 })));
    assert_eq!(reply["text"], "aaaaa");
    let recorder = Recorder::default();
    let reply =
        chat.stream(&ask(json!({ "logit_bias": { "0": 100 }, "max_tokens": 2 })), &recorder);
    assert_eq!(reply["text"], "\u{FFFD}\u{FFFD}", "a C string cannot contain NUL");
    assert_eq!(recorder.lines().concat(), "\u{FFFD}\u{FFFD}");
    // The prompt contains an end of turn, so a penalty on earlier tokens prevents the usual end of
    // the reply.
    let reply = chat.infer(&ask(json!({ "repeat_penalty": 50.0, "max_tokens": 14 })));
    assert!(
        reply["text"]
            .as_str()
            .is_some_and(|text| text.starts_with(TEXT) && text.len() > TEXT.len()),
        "{reply}"
    );
}

#[test]
fn errors_name_the_path_of_a_wrong_member() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let check = |request: Value, says: &str| {
        let reply = chat.infer(&request);
        assert_eq!(reply["type"], "error", "{request}");
        assert_eq!(reply["error"]["code"], "INVALID_REQUEST", "{reply}");
        assert!(
            reply["error"]["message"].as_str().unwrap().starts_with(says),
            "{reply} does not say {says:?}"
        );
    };
    check(json!({}), "messages: missing");
    check(json!([]), "request: expected an object");
    check(
        json!({ "messages": [{ "role": "assistent", "content": "" }] }),
        "messages[0].role: unknown role",
    );
    check(ask(json!({ "temperature": "hot" })), "temperature: expected a number");
    check(
        ask(json!({ "tools": [{ "type": "function", "function": {} }] })),
        "tools[0].function.name: missing",
    );
    check(ask(json!({ "now": "yesterday" })), "now: ");
    check(ask(json!({ "top_logprobs": 5 })), "top_logprobs: requires `logprobs`: true");
    let failures = chat.events().iter().filter(|line| *line == "infer_failure").count();
    assert_eq!(failures, 7);

    let not_json = CString::new("{\"messages\": [").unwrap();
    // SAFETY: NUL-terminated.
    let reply = take(unsafe { ffi::llb_chat_infer(chat.handle(), not_json.as_ptr()) });
    assert!(
        reply["error"]["message"].as_str().unwrap().starts_with("request_json: not valid JSON"),
        "{reply}"
    );
    // SAFETY: NUL-terminated.
    let reply = take(unsafe { ffi::llb_chat_infer(chat.handle(), c"\xC3\x28".as_ptr()) });
    assert!(
        reply["error"]["message"].as_str().unwrap().starts_with("request_json: not valid UTF-8"),
        "{reply}"
    );
    // SAFETY: NULL is allowed.
    let reply = take(unsafe { ffi::llb_chat_infer(chat.handle(), std::ptr::null()) });
    assert_eq!(reply["error"]["message"], "request_json: is NULL");
    let deep = CString::new("[".repeat(100_000)).unwrap();
    // SAFETY: NUL-terminated.
    let reply = take(unsafe { ffi::llb_chat_infer(chat.handle(), deep.as_ptr()) });
    assert_eq!(reply["error"]["code"], "INVALID_REQUEST");
}

#[test]
fn unknown_members_are_reported() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    assert_eq!(
        chat.infer(&ask(json!({ "n": 1, "user": "u" })))["ignored_keys"],
        json!(["n", "user"])
    );
}

#[test]
fn a_kept_prefix_is_not_computed_again() {
    let chat = Chat::open(&own_model("text.gguf"));
    let first = chat.infer(&ask(json!({})));
    let second = chat.infer(&ask(json!({})));
    assert_eq!(first["text"], second["text"]);
    let prompt = first["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(second["usage"]["prompt_tokens_details"]["cached_tokens"], prompt - 1);
    let third = chat.infer(&ask(json!({ "cache_prompt": false })));
    assert_eq!(third["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

#[test]
fn a_timeout_is_cancelled_and_keeps_the_text_so_far() {
    let chat = Chat::open_with(&json!({ "model": scripted_model("text.gguf"), "n_ctx": 65_536 }))
        .unwrap_or_else(|e| panic!("{e:?}"));
    // Far more tokens than can be computed in a millisecond.
    let long = "x".repeat(60_000);
    let reply =
        chat.infer(&json!({ "messages": [{ "role": "user", "content": long }], "timeout_ms": 1 }));
    assert_eq!(reply["finish_reason"], "cancelled");
    assert_eq!(chat.infer(&ask(json!({})))["text"], TEXT);
}

#[test]
fn explain_generates_nothing() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let explanation = chat.explain(&ask(json!({ "stop": ["x"] })));
    assert_eq!(explanation["type"], "explanation");
    assert_eq!(explanation["prompt"], "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
    assert_eq!(explanation["stop"], json!(["x"]));
    assert_eq!(explanation["grammar"], Value::Null);
    assert_eq!(explanation["output_format"]["family"], "hermes");
}
