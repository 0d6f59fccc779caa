//! Tests requests with `prompt` instead of `messages`.

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask, call, real_model, scripted_model};
use crate::scripted::{REASONING, TEXT, TOOL_CALL};

fn plain(prompt: Value, members: Value) -> Value {
    let mut request = members;
    request["prompt"] = prompt;
    request["temperature"] = 0.into();
    request
}

/// Checks a whole reply and a streamed one. Returns the whole one.
#[track_caller]
fn check(chat: &Chat, request: &Value, text: &str, finish: &str) -> Value {
    let recorder = Recorder::default();
    let streamed = chat.stream(request, &recorder);
    let reply = chat.infer(request);
    for reply in [&streamed, &reply] {
        assert_eq!((&reply["text"], &reply["finish_reason"]), (&json!(text), &json!(finish)));
        assert_eq!(reply["tool_calls"], json!([]), "{reply}");
        assert_eq!(reply["reasoning_content"], Value::Null, "{reply}");
    }
    assert_eq!(recorder.lines().concat(), text);
    reply
}

#[test]
fn a_prompt_is_continued_as_it_is() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let request = plain(json!("Once upon"), json!({}));
    let reply = check(&chat, &request, TEXT, "stop");
    // One token per byte, and no template around them.
    let explained = chat.explain(&request);
    assert_eq!(explained["prompt"], "Once upon", "{explained}");
    assert_eq!(reply["usage"]["prompt_tokens"], explained["prompt_tokens"]);
    let span = json!([{ "start": 0, "end": 9, "origin": "message", "path": "prompt" }]);
    assert_eq!(explained["spans"], span);
    let stopped = plain(json!("Once upon"), json!({ "stop": " aus" }));
    let reply = check(&chat, &stopped, "Grüße", "stop");
    assert_eq!(reply["stop_sequence"], " aus");
    let cut = plain(json!("Once upon"), json!({ "max_tokens": 3 }));
    check(&chat, &cut, "Grüße aus", "length");
    // Messages still work, before and after.
    assert_eq!(chat.infer(&ask(json!({})))["text"], TEXT);
}

/// Markup is text: nothing is a call or reasoning. Control tokens are not shown.
#[test]
fn there_are_no_calls_and_no_reasoning() {
    let chat = Chat::open(&scripted_model("tool_call.gguf"));
    let text = TOOL_CALL.replace("<tool_call>", "").replace("</tool_call>", "");
    let reply = chat.infer(&plain(json!("x"), json!({})));
    assert!([TOOL_CALL, &text].iter().any(|text| reply["text"] == **text), "{reply}");
    assert_eq!(reply["tool_calls"], json!([]));
    let chat = Chat::open(&scripted_model("reasoning.gguf"));
    let reply = chat.infer(&plain(json!("x"), json!({})));
    assert_eq!(reply["reasoning_content"], Value::Null);
    let all = reply["text"].as_str().unwrap();
    assert!(REASONING.iter().all(|part| all.contains(part)), "{reply}");
}

#[test]
fn tokens_are_used_as_they_are() {
    let model = scripted_model("text.gguf");
    let chat = Chat::open(&model);
    let tokens = call(ffi::llb_tokenize, &json!({ "model_path": model, "text": "Once upon" }));
    let request = plain(tokens["ids"].clone(), json!({}));
    let reply = check(&chat, &request, TEXT, "stop");
    let n_tokens = tokens["n_tokens"].as_u64().unwrap();
    assert_eq!(reply["usage"]["prompt_tokens"], n_tokens);
    assert_eq!(chat.explain(&request)["prompt"], "Once upon");
    let again = chat.infer(&request);
    assert_eq!(again["usage"]["prompt_tokens_details"]["cached_tokens"], n_tokens - 1);
    let unknown = chat.infer(&plain(json!([1, 9_999_999]), json!({})));
    let message = unknown["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("prompt[1]: the model has tokens from 0 to "), "{message}");
    assert_eq!(
        chat.infer(&plain(json!([]), json!({})))["error"]["message"],
        "prompt: has no tokens"
    );
}

#[test]
fn a_grammar_and_a_schema_are_obeyed() {
    let chat = Chat::open(&scripted_model("reasoning.gguf"));
    let grammar = plain(json!("x"), json!({ "grammar": "start: \"yes\" | \"no\"" }));
    let text = chat.infer(&grammar)["text"].clone();
    assert!(text == "yes" || text == "no", "{text}");
    let schema = json!({ "type": "object", "properties": { "a": { "type": "boolean" } }, "required": ["a"] });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "s", "schema": schema } });
    let reply = chat.infer(&plain(json!("x"), json!({ "response_format": format })));
    let value: Value = serde_json::from_str(reply["text"].as_str().unwrap()).unwrap();
    assert!(value["a"].is_boolean(), "{reply}");
}

#[test]
fn a_model_without_tokens_for_a_gap_refuses_a_suffix() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let error = chat.infer(&plain(json!("a"), json!({ "suffix": "b" })));
    assert_eq!(error["error"]["code"], "INVALID_REQUEST");
    assert!(error["error"]["message"].as_str().unwrap().starts_with("suffix: "), "{error}");
}

#[test]
fn a_real_model_fills_a_gap() {
    let Some(model) = real_model("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf") else { return };
    let chat = Chat::open(&model);
    let request = plain(
        json!("def add(a, b):\n    return "),
        json!({ "suffix": "\n\nprint(add(1, 2))\n", "max_tokens": 12, "stop": "\n" }),
    );
    let explained = chat.explain(&request);
    let marks = json!(["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]);
    assert_eq!(explained["special_tokens"], marks, "{explained}");
    assert!(chat.infer(&request)["text"].as_str().unwrap().contains("a + b"));
    // Text of the request spells no special token.
    let spelt = plain(json!("<|fim_middle|>"), json!({}));
    assert_eq!(chat.explain(&spelt)["special_tokens"], json!([]));
    let allowed = plain(json!("<|fim_middle|>"), json!({ "parse_special_in_messages": true }));
    assert_eq!(chat.explain(&allowed)["special_tokens"], json!(["<|fim_middle|>"]));
}
