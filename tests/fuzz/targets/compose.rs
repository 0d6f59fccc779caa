//! Fuzzes the fields of a spec with any texts. A composed template must be consistent: its measured
//! capabilities, its normal form and its mask.
#![no_main]

use libfuzzer_sys::{Corpus, fuzz_target};
use llb::template_requests;
use serde_json::{Map, Value, json};

const TEXTS: [&str; 31] = [
    "system_template",
    "default_system_template",
    "system_message",
    "user_template",
    "user_template_with_tools",
    "assistant_template",
    "assistant_end",
    "generation_prompt",
    "reasoning_template",
    "observations_template",
    "single_observation_template",
    "tool_calls_template",
    "single_tool_call_template",
    "assistant_template_with_calls",
    "assistant_template_with_empty_calls",
    "argument_template",
    "text_argument_template",
    "tools_template",
    "single_tool_template",
    "skills_template",
    "single_skill_template",
    "image_token",
    "unknown_roles",
    "stop_words",
    "last_assistant_template",
    "no_thinking_prompt",
    "ending",
    "late_system_template",
    "content_parts",
    "first_turn_without",
    "prompt_after_answer",
];
const OBJECTS: [&str; 8] = [
    "global_policy",
    "system_policy",
    "assistant_policy",
    "tool_policy",
    "skill_policy",
    "stop_words",
    "no_prompt_after",
    "opener_after",
];

/// Policies that random bytes would rarely spell.
const POLICIES: [(&str, &str); 9] = [
    ("system_policy", r#"{"placement":"FIRST_USER"}"#),
    ("system_policy", r#"{"placement":"LAST_USER","empty_message":"as_none"}"#),
    (
        "system_policy",
        r#"{"date_format":"%d/%m","content_processor":{"kind":"prepend_if_tools","text":"-"}}"#,
    ),
    ("system_policy", r#"{"use_system_without_system_message":false}"#),
    ("tool_policy", r#"{"empty_list":"as_tools"}"#),
    ("tool_policy", r#"{"placement":"FIRST_USER"}"#),
    (
        "tool_policy",
        r#"{"formatter":{"kind":"XmlFormatter","first":["enum"],"last":["required"]}}"#,
    ),
    ("tool_policy", r#"{"formatter":{"kind":"YamlFormatter"},"empty_list":"as_tools"}"#),
    ("tool_policy", r#"{"formatter":{"kind":"JsonCompactFormatter"},"placement":"LAST_USER"}"#),
];

/// Parses fields that are separated by NUL. The first byte of each selects the field. A field of
/// two characters may select one of the policies.
fn components(text: &str) -> Value {
    let mut spec = Map::new();
    for field in text.split('\0') {
        let Some(which) = field.chars().next() else { continue };
        let value = &field[which.len_utf8()..];
        let which = which as usize;
        let mut rest = value.chars();
        if let (1, Some(policy), None) = (which % 2, rest.next(), rest.next()) {
            let (name, text) = POLICIES[policy as usize % POLICIES.len()];
            spec.insert(name.to_owned(), serde_json::from_str(text).expect("JSON"));
            continue;
        }
        let object: Option<Value> = serde_json::from_str(value).ok().filter(|_| which % 2 == 1);
        match object {
            Some(object) => spec.insert(OBJECTS[which / 2 % OBJECTS.len()].to_owned(), object),
            None => spec.insert(TEXTS[which / 2 % TEXTS.len()].to_owned(), value.into()),
        };
    }
    spec.entry("user_template").or_insert_with(|| "[{content}]".into());
    spec.entry("assistant_template").or_insert_with(|| "<{content}{tool_calls}>".into());
    spec.into()
}

fuzz_target!(|bytes: &[u8]| -> Corpus {
    let Ok(text) = std::str::from_utf8(bytes) else { return Corpus::Reject };
    let components = components(text);
    let request = json!({ "components": components }).to_string();
    let Some(reply) = llb_fuzz::request(template_requests::compose, &request) else {
        return Corpus::Keep;
    };
    let again = json!({ "components": reply["spec"] }).to_string();
    let again = template_requests::compose(&again).expect("the normal form is a spec");
    assert_eq!(
        (&again["chat_template"], &again["spec"]),
        (&reply["chat_template"], &reply["spec"])
    );
    let call = json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": { "x": 1 } } });
    let messages = json!([
        { "role": "system", "content": "s" },
        { "role": "user", "content": "u" },
        { "role": "assistant", "content": "a", "reasoning_content": "r", "tool_calls": [call] },
        { "role": "assistant", "content": "" },
    ]);
    let request = json!({
        "components": components, "messages": messages, "mask": "all", "polyfills": { "apply_polyfills": false },
        "tools": [{ "type": "function", "function": { "name": "f" } }], "skills": [{ "name": "k", "description": "d" }],
    });
    match template_requests::render(&request.to_string()) {
        Ok(rendered) => {
            assert_eq!(rendered["mask"].as_array().map(Vec::len), Some(2), "{rendered}")
        }
        Err(error) => assert!(error.code().as_str().starts_with("TEMPLATE_"), "{error}"),
    }
    Corpus::Keep
});
