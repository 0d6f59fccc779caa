//! `llb_template_parse` reads calls without tags, and checks their arguments.

use serde_json::{Value, json};

use crate::template_requests::parse;

/// ChatML, without calls.
const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
                        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// The reply about an output, in a request with this member.
fn read(member: &str, value: &Value, output: &str) -> Value {
    let tool = json!({ "type": "function", "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": { "city": { "type": "string" } },
            "required": ["city"],
        },
    } });
    let mut request = json!({ "chat_template": TEMPLATE, "tools": [tool], "output": output });
    request[member] = value.clone();
    parse(&request.to_string()).unwrap()
}

/// Checks the content and the number of calls of an output.
#[track_caller]
fn check(member: &str, value: &Value, output: &str, content: &str, calls: usize) {
    let reply = read(member, value, output);
    let found = reply["message"]["tool_calls"].as_array().map_or(0, Vec::len);
    assert_eq!((&reply["message"]["content"], found), (&content.into(), calls), "{reply}");
}

#[test]
fn calls_without_tags_are_checked() {
    let call = |arguments: &str| {
        format!("<json>\n{{\"name\": \"get_weather\", \"arguments\": {arguments}}}\n</json>")
    };
    let (fit, unfit) = (call("{\"city\": \"Bergen\"}"), call("{\"place\": \"Bergen\"}"));
    check("untagged_calls", &Value::Null, &fit, "", 1);
    check("untagged_calls", &true.into(), &unfit, &unfit, 0);
    check("untagged_calls", &false.into(), &fit, &fit, 0);
    check("tool_choice", &"none".into(), &fit, &fit, 0);
    check("tool_choice", &"required".into(), &fit, "", 1);
    let value = fit.lines().nth(1).unwrap();
    check("response_format", &json!({ "type": "json_object" }), value, value, 0);
}

#[test]
fn the_diagnostic_of_a_lost_call_has_the_violated_keyword() {
    let call = |name: &str, arguments: &str| {
        format!("```json\n{{\"name\": \"{name}\", \"arguments\": {arguments}}}\n```")
    };
    let cases = [
        (
            call("get_weather", "{\"city\": 5}"),
            json!({
                "code": "call_like_content",
                "message": "get_weather: /city: type: it is not of type string; the call was kept \
                            as text",
                "tool": "get_weather", "path": "/city", "keyword": "type",
            }),
        ),
        (
            call("get_weather", "{\"place\": \"Bergen\"}"),
            json!({
                "code": "call_like_content",
                "message": "get_weather: /: required: \"city\" is missing; the call was kept as text",
                "tool": "get_weather", "path": "", "keyword": "required",
            }),
        ),
        (
            call("weather", "{\"city\": \"Bergen\"}"),
            json!({
                "code": "call_like_content",
                "message": "`weather` is not among the tools `get_weather`; the call was kept as text",
                "name": "weather",
            }),
        ),
    ];
    for (output, expected) in cases {
        let reply = read("untagged_calls", &Value::Null, &output);
        assert_eq!(reply["diagnostics"], json!([expected]), "{output}");
    }
}
