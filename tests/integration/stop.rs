//! Tests where stop strings are searched, and that the reply names the one that ended it.

use serde_json::{Value, json};

use crate::abi::{Chat, Recorder, ask, scripted_model, weather_tool};
use crate::scripted::{Model, REASONING, TOOL_CALL, TOOLS_TEMPLATE};

/// Checks a streamed reply: text, reasoning, finish reason, stop string and number of tokens.
#[track_caller]
fn check(
    chat: &Chat,
    members: Value,
    text: &str,
    reasoning: Option<&str>,
    stop: Option<&str>,
    tokens: usize,
) {
    let recorder = Recorder::default();
    let reply = chat.stream(&ask(members), &recorder);
    assert_eq!(
        (&reply["text"], &reply["finish_reason"]),
        (&json!(text), &json!("stop")),
        "{reply}"
    );
    assert_eq!(reply["stop_sequence"], json!(stop), "{reply}");
    assert_eq!(reply["reasoning_content"], json!(reasoning), "{reply}");
    assert_eq!(recorder.lines().concat(), text);
    assert_eq!(reply["usage"]["completion_tokens"], tokens, "{reply}");
    assert_eq!(reply["diagnostics"].as_array().map(Vec::len), Some(0), "{reply}");
}

#[test]
fn reasoning_is_not_searched() {
    let chat = Chat::open(&scripted_model("reasoning.gguf"));
    let [reasoning, text] = REASONING;
    check(&chat, json!({ "stop": ["two", "<think>"] }), text, Some(reasoning), None, 8);
    check(&chat, json!({ "stop": ["two", " answer"] }), "The", Some(reasoning), Some(" answer"), 8);
    check(&chat, json!({ "stop": "nowhere" }), text, Some(reasoning), None, 8);
    let all = |stop: Value| json!({ "stop": stop, "stop_scope": "all" });
    let reply = chat.infer(&ask(all(json!(["zzz", "two"]))));
    assert_eq!((&reply["text"], &reply["stop_sequence"]), (&json!(""), &json!("two")), "{reply}");
    assert_eq!(reply["reasoning_content"], "One, ");
    check(&chat, all(json!(["zzz", " answer"])), "The", Some(reasoning), Some(" answer"), 8);
    check(&chat, all(json!("zzz")), text, Some(reasoning), None, 8);
}

#[test]
fn calls_are_not_searched() {
    let chat = Chat::open(&scripted_model("tool_call.gguf"));
    let request = |members: Value| {
        let mut request =
            ask(json!({ "tools": [weather_tool()], "stop": ["Paris", "\n", "<tool"] }));
        request.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        request
    };
    let reply = chat.infer(&request(json!({})));
    assert_eq!(reply["tool_calls"][0]["arguments"], "{\"city\": \"Paris\"}", "{reply}");
    assert_eq!(
        (&reply["finish_reason"], &reply["stop_sequence"]),
        (&json!("tool_calls"), &Value::Null)
    );
    let reply = chat.infer(&request(json!({ "stop_scope": "all" })));
    assert_eq!(reply["tool_calls"], json!([]), "{reply}");
    assert_eq!(reply["stop_sequence"], "<tool", "{reply}");
    // Without tools the markup of a call is text.
    let reply = chat.infer(&ask(json!({ "stop": "Paris" })));
    assert_eq!(reply["text"].as_str(), TOOL_CALL.split("Paris").next(), "{reply}");
    assert_eq!(reply["stop_sequence"], "Paris");
}

/// The engine may be ahead of the search, but the reply never shows that.
#[test]
fn the_count_of_tokens_is_exact() {
    let chat = Chat::open(&scripted_model("long.gguf"));
    for _ in 0..20 {
        let text = "Counting: 1 2 3 4 5 6 7 8 9 10 11";
        check(
            &chat,
            json!({ "stop": [" 12 ", "none"], "max_tokens": 1000 }),
            text,
            None,
            Some(" 12 "),
            14,
        );
    }
    let limited = chat.infer(&ask(json!({ "stop": " 12 ", "max_tokens": 5 })));
    assert_eq!(
        (&limited["finish_reason"], &limited["stop_sequence"]),
        (&json!("length"), &Value::Null)
    );
}

#[test]
fn a_plain_reply_is_streamed_token_by_token() {
    let pieces: &[&[u8]] =
        &[b"Dear", b"  ", b"Ann,", b"\n\n", b"\n\n\n", b"all ", b" well", b"?\n", b"   ", b" Bob"];
    let model = Model::new("Scripted whitespace", pieces, Some(TOOLS_TEMPLATE));
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    std::fs::write(file.path(), model.to_bytes()).unwrap();
    let chat = Chat::open(file.path().to_str().unwrap());
    let streamed = |members: Value| {
        let recorder = Recorder::default();
        let reply = chat.stream(&ask(members), &recorder);
        assert_eq!(reply["text"], "Dear  Ann,\n\n\n\n\nall  well?\n    Bob", "{reply}");
        recorder.lines()
    };
    let expected: Vec<String> =
        pieces.iter().map(|piece| String::from_utf8(piece.to_vec()).unwrap()).collect();
    assert_eq!(streamed(json!({})), expected);
    // A call may follow, whose markup includes the whitespace before it.
    assert_eq!(streamed(json!({ "tools": [weather_tool()] })).concat(), expected.concat());
}
