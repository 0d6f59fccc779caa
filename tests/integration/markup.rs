//! Control tokens of the vocabulary in replies: no part of a message has one, but text that spells
//! one is text.

use llb::ffi;
use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask, template};
use crate::scripted::{Model, PLAIN_TEMPLATE};

/// A model whose tokens are these pieces, and the folder that its file is in.
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
    check(&["The answer.", "\n<|im", "_end|>"], "The answer.", &["eog_text_removed"]);
}

#[test]
fn text_with_a_model_file_spells_control_tokens() {
    let (_folder, path) = model(&["unused"]);
    let request = json!({ "gguf": path, "output": "The <|im_start|>answer.<|im_end|>\n" });
    let reply = template(ffi::llb_template_parse, &request);
    assert_eq!(reply["message"]["content"], "The answer.", "{reply}");
    assert_eq!(codes(&reply), ["control_token_removed", "eog_text_removed"], "{reply}");
    // Without the file, nothing is known to be a token.
    let request = json!({ "chat_template": PLAIN_TEMPLATE, "output": "The <|im_start|>answer." });
    let reply = template(ffi::llb_template_parse, &request);
    assert_eq!(reply["message"]["content"], "The <|im_start|>answer.", "{reply}");
}
