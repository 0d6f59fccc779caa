//! Fuzzes a request to a chat, and the options of a create, by their structure.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb::api::{ChatRequest, CreateOptions, ReplyShape, RequestDefaults};
use llb_fuzz::{in_time, schemas, sound};
use serde_json::{Map, Value, json};

const MEMBERS: [&str; 41] = [
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "seed",
    "stop",
    "logit_bias",
    "max_tokens",
    "max_completion_tokens",
    "logprobs",
    "top_logprobs",
    "tool_choice",
    "parallel_tool_calls",
    "untagged_calls",
    "response_format",
    "grammar",
    "chat_template_kwargs",
    "enable_thinking",
    "reasoning_effort",
    "reasoning_budget",
    "reasoning_budget_message",
    "n_keep",
    "continue_final_message",
    "schema_in_prompt",
    "bound_schema",
    "parse_special_in_messages",
    "now",
    "add_generation_prompt",
    "cache_prompt",
    "stream_format",
    "stream_options",
    "timeout_ms",
    "polyfills",
    "documents",
    "skills",
    "n",
    "model",
    "user",
    "repeat_penalty",
    "penalty_last_n",
];
const OPTIONS: [&str; 37] = [
    "n_ctx",
    "n_batch",
    "n_threads",
    "n_parallel",
    "n_gpu_layers",
    "n_cpu_moe",
    "override_tensor",
    "split_mode",
    "main_gpu",
    "tensor_split",
    "devices",
    "flash_attn",
    "cache_type_k",
    "use_mmap",
    "lora",
    "speculative",
    "draft_model",
    "state_file",
    "cache_dir",
    "cache_bytes",
    "chat_template",
    "components",
    "tool_policy",
    "defaults",
    "polyfills",
    "template_limits",
    "media_folders",
    "media_limits",
    "media_urls",
    "context_overflow",
    "log",
    "isolation",
    "engine",
    "isolatoin",
    "on_tools_unsupported",
    "use_mlock",
    "model",
];

#[derive(Debug)]
struct Input {
    messages: Vec<Value>,
    members: Map<String, Value>,
    options: Map<String, Value>,
}

fn message(u: &mut Unstructured<'_>) -> arbitrary::Result<Value> {
    if u.ratio(1, 16)? {
        return schemas::value(u, 0);
    }
    let roles = ["system", "user", "assistant", "tool", "developer", "", "x"];
    let mut message = json!({ "role": u.choose(&roles)? });
    let call = json!({ "id": u.choose(&["a", "b", ""])?, "type": "function",
        "function": { "name": "f", "arguments": schemas::value(u, 0)? } });
    let parts =
        json!([{ "type": u.choose(&["text", "image_url", "x"])?, "text": schemas::value(u, 4)? }]);
    let contents = [json!("text"), json!(""), Value::Null, parts, schemas::value(u, 0)?];
    message["content"] = u.choose(&contents)?.clone();
    for (key, value) in [
        ("tool_calls", json!([call])),
        ("tool_call_id", json!("a")),
        ("reasoning_content", json!("r")),
        ("name", json!("f")),
        ("x", schemas::value(u, 2)?),
    ] {
        if u.ratio(1, 4)? {
            message[key] = if u.ratio(1, 8)? { schemas::value(u, 0)? } else { value };
        }
    }
    Ok(message)
}

fn members(u: &mut Unstructured<'_>, names: &[&str]) -> arbitrary::Result<Map<String, Value>> {
    let mut members = Map::new();
    for _ in 0..u.int_in_range(0..=5)? {
        let value = match u.int_in_range(0..=5)? {
            0 => json!(u.arbitrary::<i64>()?),
            1 => json!(u.arbitrary::<f64>()?),
            2 => json!(u.arbitrary::<bool>()?),
            3 => json!(*u.choose(&["auto", "none", "on", "required", "text", "error", "process"])?),
            _ => schemas::value(u, 0)?,
        };
        members.insert((*u.choose(names)?).to_owned(), value);
    }
    Ok(members)
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Input> {
        let (members, options) = (members(u, &MEMBERS)?, members(u, &OPTIONS)?);
        let mut messages = Vec::new();
        for _ in 0..u.int_in_range(0..=4)? {
            messages.push(message(u)?);
        }
        Ok(Input { messages, members, options })
    }
}

fn text(messages: &[Value], members: &Map<String, Value>) -> String {
    let mut request = members.clone();
    request.insert("messages".to_owned(), messages.into());
    Value::Object(request).to_string()
}

fuzz_target!(|input: Input| {
    let defaults = RequestDefaults::default();
    let text = text(&input.messages, &input.members);
    if let Err(error) = in_time(|| ChatRequest::parse(&text, ReplyShape::Current, &defaults)) {
        sound(&error);
    }
    if let Err(error) = in_time(|| CreateOptions::read(&Value::Object(input.options))) {
        sound(&error);
    }
});
