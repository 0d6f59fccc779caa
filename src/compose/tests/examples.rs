//! Specs for tests: forms of calls and results that chat-bricks does not support.

use serde_json::{Value, json};

/// Each entry has a name, whether a reply in this form is parsed as calls, and the spec.
pub(crate) fn calls() -> Vec<(&'static str, bool, Value)> {
    let invoke = json!({ "tool_calls_template": "\n<calls>\n{tool_calls}</calls>",
        "single_tool_call_template": "<invoke name=\"{name}\">\n{arguments}</invoke>\n",
        "argument_template": "<parameter name=\"{key}\">{value}</parameter>\n",
        "assistant_template": "<a>\n{content}</a>\n",
        "assistant_template_with_calls": "<a>\n{content}{tool_calls}<end_of_calls>\n",
        "stop_words": ["</a>", "<end_of_calls>"],
        "tool_policy": { "tool_call_content_processor": { "kind": "object_arguments" } } });
    let lines = json!({ "single_tool_call_template": "<tool_call>\n<function={name}>\n{arguments}</function>\n</tool_call>",
        "argument_template": "<parameter={key}>\n{value}\n</parameter>\n",
        "tool_policy": { "call_joiner": "\n", "call_separator": "\n\n", "argument_values": "python",
            "tool_call_content_processor": { "kind": "object_arguments" } } });
    let separated = json!({ "tool_calls_template": "<|calls|>{tool_calls}<|calls_end|>",
        "single_tool_call_template": "<|call|>{name}<|sep|>{arguments}<|call_end|>",
        "single_observation_template": "<|result|>{tool_call_id}: {name}<|sep|>{observation}<|result_end|>",
        "tool_policy": { "text_arguments": "as_is", "observation_content_processor": { "kind": "json" },
            "observation_joiner": ", " } });
    let members = json!({ "single_tool_call_template": "<call>{{\"name\": \"{name}\", \"parameters\": {arguments}}}</call>",
        "assistant_policy": { "null_content": "None" },
        "tool_policy": { "observations_end": "<go on>" } });
    let list = json!({ "tool_calls_template": "<calls>[{tool_calls}]</calls>",
        "single_tool_call_template": "{{\"name\": \"{name}\", \"arguments\": {arguments}, \"id\": \"{id}\"}}",
        "assistant_template_with_empty_calls": "<a>\n{content}<calls>[]</calls></a>\n",
        "tool_policy": { "call_joiner": ", " } });
    let python = json!({ "tool_calls_template": "<calls>[{tool_calls}]</calls>",
        "single_tool_call_template": "{name}({arguments})", "argument_template": "{key}={value}",
        "tool_policy": { "call_joiner": ", ", "argument_joiner": ", ", "argument_values": "json",
            "without_observations_template": "drop" } });
    let apart = json!({ "single_tool_call_template": "<call name=\"{name}\">{arguments}</call>",
        "argument_template": "<p name=\"{key}\" type=\"json\">{value}</p>",
        "text_argument_template": "<p name=\"{key}\" type=\"text\">{value}</p>" });
    let bare = json!({ "single_tool_call_template": "<call>call:{name}{{{arguments}}}</call>",
        "argument_template": "{key}:{value}",
        "tool_policy": { "argument_joiner": ",", "argument_values": "bare", "argument_quote": "<q>", "argument_null": "None" } });
    let specs = [
        ("invoke", true, invoke),
        ("a parameter a line", true, lines),
        ("name and arguments apart", true, separated),
        ("other members", true, members),
        ("a list", true, list),
        ("as Python calls functions", true, python),
        ("strings apart", false, apart),
        ("bare values", true, bare),
    ];
    specs.into_iter().map(|(name, read, spec)| (name, read, with_common_fields(spec))).collect()
}

/// Adds the fields that all specs have in common.
fn with_common_fields(spec: Value) -> Value {
    let mut all = json!({ "system_template": "<s>{system_message}{tools}</s>\n", "user_template": "<u>{content}</u>\n",
        "assistant_template": "<a>\n{content}{tool_calls}</a>\n", "tools_template": "\nTools: {tools}", "stop_words": ["</a>"] });
    if spec["tool_policy"]["without_observations_template"].is_null() {
        all["observations_template"] = "<o>{observations}</o>\n".into();
    }
    if let (Some(all), Value::Object(own)) = (all.as_object_mut(), spec) {
        all.extend(own);
    }
    all
}
