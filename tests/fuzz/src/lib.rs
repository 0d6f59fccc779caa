//! Fixed conversations, and the properties that every target checks.

pub mod grammar;
pub mod lark;
pub mod peer;
pub mod replies;
pub mod schemas;
pub mod vocabulary;

use std::time::{Duration, Instant};

use arbitrary::Unstructured;
use llb::error::{Code, Error, Result};
use llb::template::{Limits, LocalTime, Prompt, RenderInput, Sources, Templates};
use serde_json::{Map, Value, json};

/// The maximum time of a call, with debug assertions and coverage counters. The limits of a render
/// end it long before.
const MAX_CALL: Duration = Duration::from_secs(30);

/// A conversation.
pub struct Conversation {
    pub messages: Vec<Value>,
    pub tools: Vec<Value>,
    pub documents: Vec<Value>,
    pub kwargs: Map<String, Value>,
    pub add_generation_prompt: bool,
    pub raw: bool,
}

/// A conversation with everything that templates look for: system message, question, reasoning,
/// calls, results, parts.
pub fn conversation() -> Conversation {
    let call = |id: &str, arguments: Value| {
        let function = json!({ "name": "add", "arguments": arguments });
        json!({ "id": id, "type": "function", "function": function })
    };
    let parts = json!([{ "type": "text", "text": "and " }, { "type": "image" }, { "type": "text", "text": "now?" }]);
    let messages = vec![
        json!({ "role": "system", "content": "Be brief. <b>\"é\"</b>" }),
        json!({ "role": "user", "content": "1 + 2?\n" }),
        json!({ "role": "assistant", "content": null, "reasoning_content": "let me add",
            "tool_calls": [call("call_1", json!({ "a": 1, "b": 2.5 })), call("call_2", json!("{\"a\": [null, true]}"))] }),
        json!({ "role": "tool", "tool_call_id": "call_1", "name": "add", "content": "3" }),
        json!({ "role": "tool", "tool_call_id": "call_2", "name": "add", "content": [{ "type": "text", "text": "x" }] }),
        json!({ "role": "assistant", "content": "<think>hm</think>3" }),
        json!({ "role": "user", "content": parts }),
    ];
    let properties = json!({ "a": { "type": "number" }, "b": { "type": ["integer", "null"] } });
    let parameters = json!({ "type": "object", "properties": properties,
        "required": ["a"] });
    let function = json!({ "name": "add", "description": "Adds.", "parameters": parameters });
    let kwargs = json!({ "enable_thinking": true, "reasoning_effort": "low", "n": -3, "x": 0.1, "list": [3, 1, 2],
        "deep": { "a": { "b": [] } } });
    Conversation {
        messages,
        tools: vec![json!({ "type": "function", "function": function })],
        documents: vec![json!({ "title": "a title", "text": "a text" })],
        kwargs: kwargs.as_object().cloned().unwrap_or_default(),
        add_generation_prompt: true,
        raw: false,
    }
}

/// Small limits, or the default limits.
pub fn limits(small: bool) -> Limits {
    if small {
        Limits { fuel: 20_000, output_bytes: 4096, recursion: 60, ..Limits::default() }
    } else {
        Limits::default()
    }
}

pub fn sources(template: &str) -> Sources {
    Sources {
        default: Some(template.to_owned()),
        bos_token: "<s>".to_owned(),
        eos_token: "</s>".to_owned(),
        ..Sources::default()
    }
}

/// Compiles a template. An error must be sound.
pub fn compile(template: &str) -> Option<Templates> {
    in_time(|| Templates::compile(&sources(template))).map_err(|error| sound(&error)).ok()
}

/// Renders a template and checks the result.
pub fn render(
    templates: &Templates,
    conversation: &Conversation,
    limits: &Limits,
) -> Option<Prompt> {
    let now = LocalTime::parse("2026-01-31T09:30:00").expect("this is a date");
    let rendered = in_time(|| {
        templates.render(&RenderInput {
            tools: Some(&conversation.tools),
            documents: Some(&conversation.documents),
            add_generation_prompt: conversation.add_generation_prompt,
            kwargs: Some(&conversation.kwargs),
            raw: conversation.raw,
            spans: true,
            limits: *limits,
            ..RenderInput::new(&conversation.messages, now)
        })
    });
    match rendered {
        Ok(text) => {
            assert!(text.text.len() <= limits.output_bytes, "{} bytes", text.text.len());
            Some(text)
        }
        Err(error) => {
            sound(&error);
            None
        }
    }
}

/// Calls one of the `llb_template_*` functions.
pub fn request(call: fn(&str) -> Result<Value>, request: &str) -> Option<Value> {
    match in_time(|| call(request)) {
        Ok(reply) => {
            assert!(reply["type"].is_string(), "{reply}");
            no_fault_inside(&reply["evidence"]);
            Some(reply)
        }
        Err(error) => {
            sound(&error);
            None
        }
    }
}

/// Checks that a caller can handle the error, so that it is not a caught panic.
pub fn sound(error: &Error) {
    assert_ne!(error.code(), Code::InternalBridgeError, "{error}");
    let kind = error.details().and_then(|details| details.get("kind"));
    assert!(kind.is_none_or(|kind| kind != "engine"), "a panic was caught: {error}");
    // A template may raise an empty message, which is kept.
    let raised = kind.is_some_and(|kind| kind == "raised");
    assert!(raised || !error.message().is_empty(), "an error has a message");
}

/// Checks that no probe has panicked. The evidence of its capability would contain the error.
fn no_fault_inside(evidence: &Value) {
    for (flag, evidence) in evidence.as_object().into_iter().flatten() {
        assert!(evidence["error"]["kind"] != "engine", "a panic was caught: {flag}: {evidence}");
    }
}

/// Runs a call and fails if it takes too long.
pub fn in_time<T>(run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    assert!(start.elapsed() < MAX_CALL, "took {:?}", start.elapsed());
    result
}

/// True in one of `n` cases. False if no bytes are left: short inputs then get the usual case.
pub fn rarely(u: &mut Unstructured<'_>, n: u8) -> arbitrary::Result<bool> {
    Ok(!u.ratio(n - 1, n)?)
}
