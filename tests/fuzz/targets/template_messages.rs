//! Fuzzes messages, tools and variables, for templates of ours that read all of them.
#![no_main]

use std::sync::LazyLock;

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb::template::Templates;
use llb::template_requests;
use llb_fuzz::Conversation;
use serde_json::{Map, Value, json};

const TEMPLATES: [&str; 7] = [
    include_str!("../templates/chatml.jinja"),
    include_str!("../templates/parts.jinja"),
    include_str!("../templates/calls.jinja"),
    include_str!("../templates/schema.jinja"),
    include_str!("../templates/reasoning.jinja"),
    include_str!("../templates/documents.jinja"),
    include_str!("../templates/printed.jinja"),
];

static COMPILED: LazyLock<Vec<Templates>> = LazyLock::new(|| {
    let compile = |template| llb_fuzz::compile(template).expect("our own template compiles");
    TEMPLATES.into_iter().map(compile).collect()
});

/// Words that templates compare with, so that their branches are taken.
const WORDS: [&str; 24] = [
    "system",
    "user",
    "assistant",
    "tool",
    "developer",
    "text",
    "image",
    "function",
    "object",
    "array",
    "string",
    "integer",
    "add",
    "call_1",
    "low",
    "<think>",
    "</think>",
    "{\"a\": 1}",
    "{",
    "",
    "\r\n",
    "é\u{301}🦀",
    "{{ 1 }}",
    "null",
];

const KEYS: [&str; 28] = [
    "role",
    "content",
    "tool_calls",
    "tool_call_id",
    "name",
    "id",
    "type",
    "function",
    "arguments",
    "text",
    "image",
    "reasoning_content",
    "thinking",
    "reasoning",
    "parameters",
    "properties",
    "required",
    "items",
    "enum",
    "anyOf",
    "description",
    "title",
    "enable_thinking",
    "reasoning_effort",
    "keys",
    "items",
    "update",
    "__class__",
];

/// JSON that is mostly like what clients send.
#[derive(Debug)]
struct Json(Value);

impl<'a> Arbitrary<'a> for Json {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Json> {
        json_value(u, 0).map(Json)
    }
}

fn json_value(u: &mut Unstructured<'_>, depth: usize) -> arbitrary::Result<Value> {
    if depth > 200 || u.is_empty() {
        return Ok(Value::Null);
    }
    Ok(match u.int_in_range(0..=13)? {
        0 => Value::Null,
        1 => u.arbitrary::<bool>()?.into(),
        2 => u.arbitrary::<i8>()?.into(),
        3 => u.arbitrary::<i64>()?.into(),
        4 => u.arbitrary::<u64>()?.into(),
        5 => u.arbitrary::<f64>()?.into(),
        6..=8 => text(u)?.into(),
        9 => u.arbitrary::<&str>()?.into(),
        10 => nested(u)?,
        11 => {
            let mut items = Vec::new();
            for _ in 0..u.int_in_range(0..=4)? {
                items.push(json_value(u, depth + 1)?);
            }
            items.into()
        }
        _ => {
            let mut members = Map::new();
            for _ in 0..u.int_in_range(0..=5)? {
                members.insert(key(u)?, json_value(u, depth + 1)?);
            }
            members.into()
        }
    })
}

/// A deeply nested value; JSON read from text is limited to 128 levels.
fn nested(u: &mut Unstructured<'_>) -> arbitrary::Result<Value> {
    let mut value = json!("bottom");
    for _ in 0..u.int_in_range(1..=120)? {
        value =
            if u.arbitrary()? { json!([value]) } else { json!({ "properties": { "a": value } }) };
    }
    Ok(value)
}

fn text(u: &mut Unstructured<'_>) -> arbitrary::Result<String> {
    Ok((*u.choose(&WORDS)?).to_owned())
}

fn key(u: &mut Unstructured<'_>) -> arbitrary::Result<String> {
    if u.ratio(7, 8)? { Ok((*u.choose(&KEYS)?).to_owned()) } else { u.arbitrary() }
}

/// A message: an object with a role and content, or with other values in their place.
#[derive(Debug)]
struct Message(Value);

impl<'a> Arbitrary<'a> for Message {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Message> {
        let mut message = json!({ "role": *u.choose(&WORDS[..5])?, "content": text(u)? });
        for _ in 0..u.int_in_range(0..=3)? {
            message[key(u)?] = json_value(u, 0)?;
        }
        if u.ratio(1, 4)? {
            let function = json!({ "name": text(u)?, "arguments": json_value(u, 0)? });
            message["tool_calls"] = json!([{ "id": text(u)?, "type": "function", "function": function }, json_value(u, 0)?]);
        }
        Ok(Message(message))
    }
}

#[derive(Debug, Arbitrary)]
struct Input {
    template: u8,
    messages: Vec<Message>,
    odd_messages: Vec<Json>,
    parameters: Vec<Json>,
    odd_tools: Vec<Json>,
    documents: Vec<Json>,
    kwargs: Vec<(String, Json)>,
    known_kwargs: [Option<Json>; 2],
    add_generation_prompt: bool,
    raw: bool,
    request: bool,
}

impl Input {
    fn conversation(self) -> Conversation {
        let bare = |json: Vec<Json>| json.into_iter().map(|json| json.0);
        let tool = |parameters: Json| json!({ "type": "function", "function": { "name": "add", "parameters": parameters.0 } });
        let mut kwargs: Map<String, Value> =
            self.kwargs.into_iter().map(|(name, json)| (name, json.0)).collect();
        for (name, json) in
            ["enable_thinking", "reasoning_effort"].into_iter().zip(self.known_kwargs)
        {
            kwargs.extend(json.map(|json| (name.to_owned(), json.0)));
        }
        Conversation {
            messages: self
                .messages
                .into_iter()
                .map(|message| message.0)
                .chain(bare(self.odd_messages))
                .collect(),
            tools: self.parameters.into_iter().map(tool).chain(bare(self.odd_tools)).collect(),
            documents: bare(self.documents).collect(),
            kwargs,
            add_generation_prompt: self.add_generation_prompt,
            raw: self.raw,
        }
    }
}

fuzz_target!(|input: Input| {
    let which = usize::from(input.template) % TEMPLATES.len();
    let as_request = input.request;
    let conversation = input.conversation();
    llb_fuzz::render(&COMPILED[which], &conversation, &llb_fuzz::limits(false));
    if as_request {
        let request = json!({
            "chat_template": TEMPLATES[which],
            "messages": conversation.messages,
            "tools": conversation.tools,
            "documents": conversation.documents,
            "chat_template_kwargs": conversation.kwargs,
            "raw": conversation.raw,
            "now": "2026-01-31T09:30:00",
        });
        llb_fuzz::request(template_requests::render, &request.to_string());
    }
});
