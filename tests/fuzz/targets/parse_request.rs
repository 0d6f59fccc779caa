//! Fuzzes `llb_template_parse` with any JSON in its members, for templates with known call formats.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb::template_requests;
use llb_fuzz::replies::{self, families};
use llb_fuzz::schemas;
use serde_json::{Map, Value, json};

const TEMPLATES: [&str; 3] = [
    include_str!("../templates/chatml.jinja"),
    include_str!("../templates/calls.jinja"),
    include_str!("../templates/reasoning.jinja"),
];

#[derive(Debug)]
struct Input(Map<String, Value>);

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Input> {
        let mut request = Map::new();
        request.insert("chat_template".into(), json!(u.choose(&TEMPLATES)?));
        let mut tools = Vec::new();
        for name in ["f", "get_weather"] {
            tools.push(json!({ "type": "function", "function": { "name": name, "parameters": schemas::schema(u, 0)? } }));
        }
        request.insert("tools".into(), tools.into());
        let schema = schemas::schema(u, 0)?;
        let formats = [
            Value::Null,
            json!({ "type": "text" }),
            json!({ "type": "json_object" }),
            json!({ "type": "json_schema", "json_schema": { "schema": schema } }),
            schemas::value(u, 0)?,
        ];
        request.insert("response_format".into(), u.choose(&formats)?.clone());
        let choices = [
            json!("auto"),
            json!("none"),
            json!("required"),
            json!({ "function": { "name": "f" } }),
            schemas::value(u, 0)?,
        ];
        request.insert("tool_choice".into(), u.choose(&choices)?.clone());
        for key in [
            "parallel_tool_calls",
            "untagged_calls",
            "partial",
            "reasoning_format",
            "enable_thinking",
            "bos_token",
            "prompt",
            "x",
        ] {
            match u.int_in_range(0..=5)? {
                0 => request.insert(key.into(), schemas::value(u, 0)?),
                1 => request.insert(key.into(), u.arbitrary::<bool>()?.into()),
                2 => request.insert(key.into(), "auto".into()),
                _ => None,
            };
        }
        if u.ratio(1, 8)? {
            for key in ["tools", "output"] {
                request.insert(key.into(), schemas::value(u, 0)?);
            }
        }
        let family = &families()[u.choose_index(families().len())?];
        let mut output = String::new();
        while !u.is_empty() && output.len() < 4096 {
            replies::piece(u, family, &mut output)?;
        }
        request.entry("output").or_insert(output.into());
        Ok(Input(request))
    }
}

fuzz_target!(|input: Input| {
    let request = Value::Object(input.0).to_string();
    if let Some(reply) = llb_fuzz::request(template_requests::parse, &request) {
        let text = reply.to_string();
        assert_eq!(serde_json::from_str::<Value>(&text).ok(), Some(reply), "a reply is JSON");
    }
});
