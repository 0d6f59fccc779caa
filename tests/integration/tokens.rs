//! Tests vocabularies and texts that are hard for a tokenizer: long tokens, long prompts.

use std::ffi::{CString, c_char};

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, ask, scripted_model, take, weather_tool};
use crate::embeddings::check_error;
use crate::scripted::{Model, TOOLS_TEMPLATE};

type TokenFunction = unsafe extern "C" fn(*const c_char) -> *const c_char;

#[test]
fn tokens_of_any_length_are_loaded_and_only_missing_in_grammars() {
    let pieces = ["x".repeat(1_024), "y".repeat(1_025), "z".repeat(20_000), " done.".to_owned()];
    let model =
        Model::new("Long tokens", pieces.each_ref().map(String::as_bytes), Some(TOOLS_TEMPLATE));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.gguf");
    std::fs::write(&path, model.to_bytes()).unwrap();
    let chat = Chat::open(path.to_str().unwrap());
    let reply = chat.infer(&ask(json!({})));
    assert_eq!(reply["text"], pieces.concat(), "{}", reply["error"]);
    // The same tokens in a stop string, a bias and log probabilities.
    let stopped = chat.infer(&ask(json!({ "stop": "z".repeat(1_000_000), "logprobs": true })));
    assert_eq!(stopped["text"], pieces.concat(), "{}", stopped["error"]);
    for _ in 0..2 {
        let forced = chat.infer(&ask(json!({
            "tools": [weather_tool()], "tool_choice": "required", "max_tokens": 200,
        })));
        assert_eq!(forced["tool_calls"][0]["name"], "get_weather", "{forced}");
    }
}

#[test]
fn few_tokens_may_not_spell_a_long_text() {
    let pieces = ["z".repeat(20_000), " done.".to_owned()];
    let model =
        Model::new("Long tokens", pieces.each_ref().map(String::as_bytes), Some(TOOLS_TEMPLATE));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.gguf");
    std::fs::write(&path, model.to_bytes()).unwrap();
    let call = |function: TokenFunction, mut request: Value| {
        request["model_path"] = path.to_str().unwrap().into();
        let request = CString::new(request.to_string()).unwrap();
        // SAFETY: the request is NUL-terminated.
        take(unsafe { function(request.as_ptr()) })
    };
    let text =
        |id: usize, count: usize| call(ffi::llb_detokenize, json!({ "ids": vec![id; count] }));
    let id = (0..).find(|id| text(*id, 1)["text"] == *pieces[0]).unwrap();
    // 8 MiB are 419.4 times 20,000 bytes.
    assert_eq!(text(id, 419)["text"].as_str().map(str::len), Some(419 * 20_000));
    check_error(&text(id, 420), "INVALID_REQUEST", "ids: spell a text of more than 8388608 bytes");
}

#[test]
fn a_time_out_ends_the_tokenization_of_a_long_prompt() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let long = "a few words ".repeat(150_000);
    let messages = json!([{ "role": "user", "content": long }]);
    // Without the time-out, the prompt would be tokenized to its end and be too long.
    let reply = chat.infer(&json!({ "messages": messages, "timeout_ms": 1 }));
    assert_eq!(reply["finish_reason"], "cancelled", "{reply}");
    assert_eq!(reply["text"], "");
    let reply = chat.infer(&ask(json!({})));
    assert_eq!(reply["finish_reason"], "stop", "{reply}");
}

#[test]
fn a_prompt_that_cannot_be_tokenized_in_pieces_is_too_long() {
    let chat = Chat::open(&scripted_model("text.gguf"));
    let reply = chat.infer(&ask(json!({
        "messages": [{ "role": "user", "content": "x".repeat(1_100_000) }],
    })));
    assert_eq!(reply["error"]["code"], "CONTEXT_OVERFLOW", "{reply}");
    assert_eq!(chat.infer(&ask(json!({})))["finish_reason"], "stop");
}
