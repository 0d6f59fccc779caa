//! Tests `llb_tokenize`, `llb_detokenize` and `llb_count`, with known vocabularies and against the
//! counts in replies.

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, ask, call, real_model, scripted_model, weather_tool};
use crate::scripted::{Model, PLAIN_TEMPLATE, TOOLS_TEMPLATE};

fn tokenize(request: Value) -> Value {
    call(ffi::llb_tokenize, &request)
}

fn detokenize(request: Value) -> Value {
    call(ffi::llb_detokenize, &request)
}

/// Counts a request to a model.
fn count(model: &str, request: &Value) -> Value {
    let mut request = request.clone();
    request["model_path"] = model.into();
    call(ffi::llb_count, &request)
}

#[track_caller]
fn refused(reply: &Value, code: &str, message: &str) {
    assert_eq!(reply["error"]["code"], code, "{reply}");
    let text = reply["error"]["message"].as_str().unwrap();
    assert!(text.contains(message), "{text:?} lacks {message:?}");
}

/// Scripted vocabularies have one token for each byte.
#[test]
fn bytes_of_a_character_are_told() {
    let path = scripted_model("text.gguf");
    let reply = tokenize(json!({ "model_path": path, "text": "Aü<|im_end|>", "strange": 1 }));
    assert_eq!((&reply["type"], &reply["n_tokens"]), (&json!("tokens"), &json!(13)), "{reply}");
    assert_eq!(reply["ignored_keys"], json!(["strange"]));
    let tokens = reply["tokens"].as_array().unwrap();
    let ids: Vec<&Value> = tokens.iter().map(|token| &token["id"]).collect();
    assert_eq!(ids, reply["ids"].as_array().unwrap().iter().collect::<Vec<_>>());
    let at = |index: usize| {
        let mut token = tokens[index].clone();
        token.as_object_mut().unwrap().remove("id");
        token
    };
    assert_eq!(at(0), json!({ "text": "A", "special": false }));
    assert_eq!(at(1), json!({ "text": "\u{FFFD}", "bytes": [0xC3], "special": false }));
    assert_eq!(at(2), json!({ "text": "\u{FFFD}", "bytes": [0xBC], "special": false }));
    let ids_only =
        tokenize(json!({ "model_path": path, "text": "Aü<|im_end|>", "details": false }));
    assert_eq!((&ids_only["ids"], &ids_only["tokens"]), (&reply["ids"], &Value::Null));
    // The text may spell the token only if the caller says so.
    let request = json!({ "model_path": path, "text": "Aü<|im_end|>", "parse_special": true });
    let special = tokenize(request);
    assert_eq!(special["n_tokens"], 4, "{special}");
    assert_eq!(special["tokens"][3]["text"], "<|im_end|>");
    assert_eq!(special["tokens"][3]["special"], true);
    let ids = &special["ids"];
    let text = detokenize(json!({ "model_path": path, "ids": ids }));
    assert_eq!(text, json!({ "type": "text", "text": "Aü<|im_end|>" }));
    let bare = detokenize(json!({ "model_path": path, "ids": ids, "unparse_special": false }));
    assert_eq!(bare["text"], "Aü");
    let half = detokenize(json!({ "model_path": path, "ids": [ids[0], ids[1]] }));
    assert_eq!(half, json!({ "type": "text", "text": "A\u{FFFD}", "bytes": [0x41, 0xC3] }));
    let nothing = tokenize(json!({ "model_path": path, "text": "" }));
    assert_eq!((&nothing["n_tokens"], &nothing["tokens"]), (&json!(0), &json!([])));
    let nothing = detokenize(json!({ "model_path": path, "ids": [] }));
    assert_eq!(nothing["text"], "");
}

/// The requests of a conversation. Each has a member that changes its prompt.
fn requests() -> Vec<Value> {
    let spoken = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": "Weather in Köln? <|im_end|>" },
        { "role": "assistant", "tool_calls": [{ "id": "call_1", "type": "function",
            "function": { "name": "get_weather", "arguments": "{\"city\":\"Köln\"}" } }] },
        { "role": "tool", "tool_call_id": "call_1", "content": "12 °C" },
    ]);
    vec![
        ask(json!({})),
        ask(json!({ "messages": spoken })),
        ask(json!({ "messages": spoken, "tools": [weather_tool()] })),
        ask(json!({ "messages": spoken, "tools": [weather_tool()], "tool_choice": "none" })),
        ask(json!({ "messages": spoken, "polyfills": { "apply_polyfills": false } })),
        ask(json!({ "messages": spoken, "parse_special_in_messages": true })),
        ask(json!({ "add_generation_prompt": false })),
    ]
}

/// Checks that a count equals those of the reply and of the explanation.
#[track_caller]
fn check_counts(model: &str, requests: &[Value]) {
    let chat = Chat::open_with(&json!({ "model": model, "n_ctx": 2048, "tool_policy": "any" }));
    let chat = chat.unwrap_or_else(|refused| panic!("{refused:?}"));
    for request in requests {
        let mut request = request.clone();
        request["max_tokens"] = 1.into();
        let counted = count(model, &request);
        let explained = chat.explain(&request);
        if !explained["error"].is_null() {
            assert_eq!(counted["error"]["code"], explained["error"]["code"], "{counted}");
            continue;
        }
        assert_eq!(counted["type"], "count", "{counted}");
        assert_eq!(counted["prompt_tokens"], explained["prompt_tokens"], "{request}");
        assert_eq!(counted["polyfills_applied"], explained["polyfills_applied"], "{request}");
        let reply = chat.infer(&request);
        assert_eq!(counted["prompt_tokens"], reply["usage"]["prompt_tokens"], "{reply}");
    }
}

#[test]
fn a_count_is_the_usage_of_the_reply() {
    for name in ["text.gguf", "no_tools.gguf", "tool_use.gguf", "reasoning.gguf"] {
        check_counts(&scripted_model(name), &requests());
    }
}

#[test]
fn a_count_of_a_real_model_is_the_usage_of_the_reply() {
    for name in ["smollm2-135m-instruct-q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"] {
        if let Some(model) = real_model(name) {
            check_counts(&model, &requests()[..2]);
        }
    }
}

/// Options of a chat that change its prompts are accepted next to the members of the request.
#[test]
fn a_count_follows_the_options_of_a_chat() {
    let model = scripted_model("text.gguf");
    let chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let request = json!({ "messages": [{ "role": "user", "content": "12345" }] });
    let mut own = request.clone();
    own["chat_template"] = chat_template.into();
    assert_eq!(count(&model, &own)["prompt_tokens"], 5);
    assert_ne!(count(&model, &request)["prompt_tokens"], 5);
    own["components"] = json!({});
    refused(&count(&model, &own), "INVALID_REQUEST", "components: ");
}

/// A long conversation is counted, although no chat would accept it.
#[test]
fn a_count_needs_no_context() {
    let model = scripted_model("text.gguf");
    let words = "a few words ".repeat(20_000);
    let counted = count(&model, &json!({ "messages": [{ "role": "user", "content": words }] }));
    assert!(counted["prompt_tokens"].as_u64().unwrap() > words.len() as u64, "{counted}");
    assert_eq!(counted["context_length"], 2048);
}

#[test]
fn a_changed_file_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("changing.gguf");
    let path = path.to_str().unwrap();
    for piece in ["first", "other"] {
        let model = Model::new("Changing", [piece.as_bytes(), b"end"], Some(PLAIN_TEMPLATE));
        std::fs::write(path, model.to_bytes()).unwrap();
        for _ in 0..2 {
            let found = tokenize(json!({ "model_path": path, "text": piece }))["ids"].clone();
            let text = detokenize(json!({ "model_path": path, "ids": found }));
            assert_eq!(text["text"], piece);
        }
    }
    // Many files, some of them repeated: more than stay in memory.
    for round in 0..3 {
        for number in 0..9 {
            let path = folder.path().join(format!("{number}.gguf"));
            let own = format!("own{number}");
            if round == 0 {
                let model = Model::new("One of many", [own.as_bytes(), b"end"], None);
                std::fs::write(&path, model.to_bytes()).unwrap();
            }
            let reply = tokenize(json!({ "model_path": path.to_str(), "text": own }));
            assert!(reply["n_tokens"].as_u64().unwrap() > 0, "{reply}");
        }
    }
}

#[test]
fn any_number_of_threads_may_ask_at_once() {
    let path = scripted_model("tool_call.gguf");
    let threads = (0..8).map(|_| {
        let path = path.clone();
        std::thread::Builder::new().stack_size(64 << 10).spawn(move || {
            for _ in 0..20 {
                let reply = tokenize(json!({ "model_path": path, "text": "a b c" }));
                assert_eq!(reply["n_tokens"], 5, "{reply}");
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|thread| thread.unwrap().join().unwrap());
}

/// Several megabytes in one call.
#[test]
fn long_texts_are_tokenized_or_refused() {
    let path = scripted_model("text.gguf");
    let words = "a few words ".repeat(250_000);
    let request = json!({ "model_path": path, "text": words, "details": false });
    let reply = tokenize(request);
    assert_eq!(reply["n_tokens"].as_u64(), Some(words.len() as u64));
    let endless = "x".repeat(10_000_000);
    let reply = tokenize(json!({ "model_path": path, "text": endless }));
    refused(&reply, "CONTEXT_OVERFLOW", "text: ");
    let reply = count(&path, &json!({ "messages": [{ "role": "user", "content": endless }] }));
    refused(&reply, "CONTEXT_OVERFLOW", "messages: ");
}

#[test]
fn files_without_a_usable_vocabulary_are_refused() {
    let missing = tokenize(json!({ "model_path": "/nowhere.gguf", "text": "x" }));
    refused(&missing, "MODEL_NOT_FOUND", "/nowhere.gguf");
    let folder = tempfile::tempdir().unwrap();
    refused(
        &tokenize(json!({ "model_path": folder.path().to_str(), "text": "x" })),
        "MODEL_NOT_FOUND",
        "",
    );
    let path = folder.path().join("no.gguf");
    std::fs::write(&path, "GGUF, but not really").unwrap();
    refused(&tokenize(json!({ "model_path": path.to_str(), "text": "x" })), "MODEL_INVALID", "");
    // llama.cpp logs why it cannot load a file.
    let mut model = Model::new("odd", [b"ab", b"cd"], Some(TOOLS_TEMPLATE));
    model.tokenizer = "no_such_tokenizer";
    std::fs::write(&path, model.to_bytes()).unwrap();
    refused(
        &tokenize(json!({ "model_path": path.to_str(), "text": "x" })),
        "MODEL_INVALID",
        "no_such_tokenizer",
    );
}

/// For an untrusted file, a helper process gives the same replies.
#[test]
#[cfg(target_os = "linux")]
fn a_helper_process_answers_the_same() {
    let path = scripted_model("tool_use.gguf");
    let requests = [
        (ffi::llb_tokenize as crate::abi::TextFunction, json!({ "text": "Aü <|im_end|>" })),
        (ffi::llb_detokenize, json!({ "ids": [65, 66] })),
        (ffi::llb_count, requests()[2].clone()),
        (ffi::llb_tokenize, json!({ "text": 1 })),
        (ffi::llb_detokenize, json!({ "ids": [1_000_000] })),
    ];
    for (function, mut request) in requests {
        request["model_path"] = path.as_str().into();
        let here = call(function, &request);
        request["isolation"] = "process".into();
        assert_eq!(call(function, &request), here);
    }
}
