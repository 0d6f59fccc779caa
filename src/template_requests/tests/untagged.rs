//! `llb_template_parse` reads calls without tags, and checks their arguments.

use serde_json::{Value, json};

use crate::template_requests::parse;

/// ChatML, without calls.
const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
                        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// Checks the content and the number of calls of an output.
#[track_caller]
fn check(member: &str, value: &Value, output: &str, content: &str, calls: usize) {
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
    let reply = parse(&request.to_string()).unwrap();
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
