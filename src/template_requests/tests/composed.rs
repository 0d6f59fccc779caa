//! Tests replies in composed formats: calls that the template of a spec writes are parsed with the
//! same spec.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use crate::compose::Composed;
use crate::compose::tests::examples;
use crate::template::Templates;
use crate::template_requests::parse_by;
use crate::template_requests::render;

fn tools() -> Value {
    let properties = json!({ "city": { "type": "string" }, "days": { "type": "integer" }, "deep": { "type": "object" } });
    let parameters = json!({ "type": "object", "properties": properties, "required": ["city"] });
    json!([{ "type": "function", "function": { "name": "get_weather", "description": "W", "parameters": parameters } }])
}

fn call(id: &str, arguments: &Value) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": "get_weather", "arguments": arguments } })
}

#[test]
fn a_reply_in_a_composed_form_is_read_as_calls() {
    for (name, read, components) in examples::calls() {
        let composed = Composed::parse(&components, "components").unwrap();
        let again = Composed::parse(&composed.spec(), "components").unwrap();
        assert_eq!(
            (again.chat_template(), again.spec()),
            (composed.chat_template(), composed.spec()),
            "{name}"
        );
        assert!(composed.ignored().is_empty(), "{name}");
        let measured = Templates::compile(&composed.sources()).unwrap().traits().caps.to_json();
        for (flag, declared) in composed.declared() {
            assert_eq!(measured[flag], declared, "{name}: {flag}");
        }

        let arguments =
            json!({ "city": "Zürich \"West\"", "days": 2, "deep": { "a": [1, true], "b": "x" } });
        for (content, count) in [("Let me look.", 1), ("", 1), ("", 2)] {
            let calls: Vec<Value> =
                (0..count).map(|at| call(&format!("call_{at}"), &arguments)).collect();
            let messages = json!([{ "role": "user", "content": "q" }, { "role": "assistant", "content": content, "tool_calls": calls }]);
            let request = json!({ "components": components, "messages": messages, "mask": "all",
                "polyfills": { "apply_polyfills": false } });
            let rendered = render(&request.to_string()).unwrap();
            let prompt = rendered["prompt"].as_str().unwrap();
            let range =
                |key: &str| usize::try_from(rendered["mask"][0][key].as_u64().unwrap()).unwrap();
            let reply = &prompt[range("start")..range("end")];
            // A stop string ends a reply and is not part of it.
            let reply = composed
                .stop_words()
                .iter()
                .find_map(|word| reply.strip_suffix(word.as_str()))
                .unwrap();

            let request =
                json!({ "components": components, "tools": tools(), "output": reply }).to_string();
            let whole = parse_by(&request, |mut parser, output| {
                parser.push(output);
                parser.finish().1
            });
            let pieces = parse_by(&request, |mut parser, output| {
                output.chars().for_each(|c| drop(parser.push(&c.to_string())));
                parser.finish().1
            });
            let found = |reply: Value| {
                let calls = reply["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
                let read = |call: &Value| {
                    let arguments: Value =
                        serde_json::from_str(call["function"]["arguments"].as_str().unwrap())
                            .unwrap();
                    assert_eq!(call["function"]["name"], "get_weather");
                    arguments
                };
                let text =
                    reply["message"]["content"].as_str().unwrap_or_default().trim().to_owned();
                (calls.iter().map(read).collect::<Vec<_>>(), text)
            };
            let expected =
                if read { (vec![arguments.clone(); count], content.to_owned()) } else { continue };
            for parsed in [whole, pieces] {
                assert_eq!(found(parsed.unwrap()), expected, "{name}: {reply}");
            }
        }
    }
}
