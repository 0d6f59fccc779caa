//! Tests control tokens in replies. No part of a message contains one, but text that spells one is
//! text.

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask, call, weather_tool};
use crate::scripted::{Model, PLAIN_TEMPLATE, TOOLS_TEMPLATE};

/// A model whose tokens are these pieces, and the folder of its file.
fn model(pieces: &[&str]) -> (tempfile::TempDir, String) {
    let model =
        Model::new("Markup", pieces.iter().map(|piece| piece.as_bytes()), Some(PLAIN_TEMPLATE));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("markup.gguf");
    std::fs::write(&path, model.to_bytes()).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (folder, path)
}

fn codes(reply: &Value) -> Vec<&str> {
    let diagnostics = reply["diagnostics"].as_array().unwrap().iter();
    diagnostics.map(|diagnostic| diagnostic["code"].as_str().unwrap()).collect()
}

#[track_caller]
fn check(pieces: &[&str], text: &str, expected: &[&str]) {
    let (_folder, path) = model(pieces);
    let chat = Chat::open_with(&json!({ "model": path, "tool_policy": "any" })).unwrap();
    for extra in [json!({}), json!({ "logprobs": true, "stop": ["zz", "<|im_x"] })] {
        let recorder = Recorder::default();
        let reply = chat.stream(&ask(extra), &recorder);
        assert_eq!((&reply["text"], &*recorder.lines().concat()), (&json!(text), text), "{reply}");
        assert_eq!(codes(&reply), expected, "{reply}");
    }
}

#[test]
fn a_control_token_is_not_text_but_text_may_spell_one() {
    check(
        &["The answer", "<|im_start|>", " is here."],
        "The answer is here.",
        &["control_token_removed"],
    );
    check(
        &["<|im_start|>", "assistant", "\nThe tag <|im", "_start|> opens", " a turn."],
        "The tag <|im_start|> opens a turn.",
        &["role_header_removed"],
    );
    // Without tools, whitespace inside the content is streamed at once, so it stays.
    check(&["The answer.", "\n<|im", "_end|>"], "The answer.\n", &["eog_text_removed"]);
}

/// The reply of a model of the Hermes family that writes control tokens of another family.
fn reply_with_controls(pieces: &[&str], recorder: Option<&Recorder>) -> Value {
    let controls = ["[TOOL_CALLS]", "[ARGS]"].map(str::to_owned).to_vec();
    let bytes = pieces.iter().map(|piece| piece.as_bytes());
    let model = Model { controls, ..Model::new("Controls", bytes, Some(TOOLS_TEMPLATE)) };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("controls.gguf");
    std::fs::write(&path, model.to_bytes()).unwrap();
    let chat = Chat::open(path.to_str().unwrap());
    let request = ask(json!({ "tools": [weather_tool()] }));
    match recorder {
        Some(recorder) => chat.stream(&request, recorder),
        None => chat.infer(&request),
    }
}

#[test]
fn control_tokens_of_another_family_open_a_call() {
    let call = |name: &'static str| {
        ["Let me look.", "[TOOL_CALLS]", name, "[ARGS]", "{\"city\": ", "\"Paris\"}"]
    };
    let recorder = Recorder::default();
    for reply in [
        reply_with_controls(&call("get_weather"), None),
        reply_with_controls(&call("get_weather"), Some(&recorder)),
    ] {
        assert_eq!(reply["type"], "tool_call", "{reply}");
        assert_eq!(reply["text"], "Let me look.", "{reply}");
        let calls = reply["tool_calls"].as_array().unwrap();
        assert_eq!(calls.len(), 1, "{reply}");
        assert_eq!(calls[0]["name"], "get_weather");
        assert_eq!(calls[0]["arguments"], "{\"city\": \"Paris\"}");
        assert_eq!(codes(&reply), ["call_in_foreign_format"], "{reply}");
    }
    assert_eq!(recorder.lines().concat(), "Let me look.");
    // A call of another tool violates the request, and its control tokens are not text.
    let reply = reply_with_controls(&call("get_time"), None);
    assert_eq!(reply["type"], "assistant_text", "{reply}");
    assert!(!reply["text"].as_str().unwrap().contains("[TOOL_CALLS]"), "{reply}");
}

#[test]
fn text_with_a_model_file_spells_control_tokens() {
    let (_folder, path) = model(&["unused"]);
    let request = json!({ "gguf": path, "output": "The <|im_start|>answer.<|im_end|>\n" });
    let reply = call(ffi::llb_template_parse, &request);
    assert_eq!(reply["message"]["content"], "The answer.", "{reply}");
    assert_eq!(codes(&reply), ["control_token_removed", "eog_text_removed"], "{reply}");
    // Without the model file, no text is known to be a token.
    let request = json!({ "chat_template": PLAIN_TEMPLATE, "output": "The <|im_start|>answer." });
    let reply = call(ffi::llb_template_parse, &request);
    assert_eq!(reply["message"]["content"], "The <|im_start|>answer.", "{reply}");
}
