//! Tests models with learned positions. llama.cpp fails an assertion for a token at any other
//! position.

use serde_json::{Value, json};

use crate::abi::{Chat, Refused, ask};
use crate::scripted::learned::learned;

/// Not a multiple of 256, because llama.cpp rounds a context up to one.
const POSITIONS: u32 = 300;

struct Files {
    _folder: tempfile::TempDir,
    model: String,
    draft: String,
}

/// A model, and another one with the same vocabulary and half as many positions.
fn files() -> Files {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, positions| {
        let path = folder.path().join(name);
        std::fs::write(&path, learned(positions)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (model, draft) = (write("model.gguf", POSITIONS), write("draft.gguf", POSITIONS / 2));
    Files { _folder: folder, model, draft }
}

fn open(model: &str, options: Value) -> Result<Chat, Refused> {
    let mut all = json!({ "model": model, "n_threads": 2 });
    for (key, value) in options.as_object().unwrap() {
        all[key] = value.clone();
    }
    Chat::open_with(&all)
}

#[track_caller]
fn is_refused(refused: Result<Chat, Refused>, parts: &[&str]) {
    let refused = refused.err().expect("refused");
    assert_eq!(refused.events.last().unwrap(), "create_failure:invalid_options");
    assert_eq!(refused.code(), "INVALID_REQUEST");
    for part in parts {
        assert!(refused.message().contains(part), "{}", refused.message());
    }
}

#[test]
fn a_context_beyond_the_positions_is_refused() {
    let Files { _folder, model, draft } = files();
    for n_ctx in [301, 512, 100_000] {
        let got = format!("got {n_ctx}");
        let parts = ["n_ctx: ", "300 positions", got.as_str(), "set n_ctx to 300 or less"];
        is_refused(open(&model, json!({ "n_ctx": n_ctx })), &parts);
    }
    let drafted = json!({ "draft_model": draft });
    is_refused(open(&model, drafted), &["draft_model: n_ctx: ", "150 positions", "got 300"]);
    assert!(open(&model, json!({ "draft_model": draft, "n_ctx": 150 })).is_ok());
}

#[test]
fn every_position_can_be_used() {
    let Files { _folder, model, .. } = files();
    for (options, n_ctx) in
        [(json!({}), 300), (json!({ "n_ctx": 300 }), 300), (json!({ "n_ctx": 200 }), 200)]
    {
        let chat = open(&model, options).unwrap();
        let reply = chat.infer(&ask(json!({ "max_tokens": 1000 })));
        assert_eq!(reply["finish_reason"], "length", "{reply}");
        // The last token is not computed, so it needs no position.
        assert_eq!(reply["usage"]["total_tokens"], n_ctx + 1, "{reply}");
        let long = json!({ "messages": [{ "role": "user", "content": "x".repeat(400) }] });
        let reply = chat.infer(&long);
        assert_eq!(reply["error"]["code"], "CONTEXT_OVERFLOW", "{reply}");
        let message = reply["error"]["message"].as_str().unwrap();
        assert_eq!(message.contains("raise n_ctx"), n_ctx < 300, "{message}");
    }
}
