//! Fuzzes schemas. The grammar of every family is built from them, and values are checked against
//! them.
#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb::api::{ResponseFormat, ToolChoice};
use llb::constraint::{self, ReplyRequirements};
use llb::diagnostic::Diagnostic;
use llb::output::{ParsedReply, ToolCall};
use llb::validate;
use llb_fuzz::replies::families;
use llb_fuzz::{in_time, schemas, sound};
use serde_json::{Value, json};

#[derive(Debug)]
struct Input {
    family: usize,
    schemas: [Value; 3],
    values: [Value; 3],
    choice: u8,
    flags: [bool; 3],
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Input> {
        let mut three = [const { Value::Null }; 3];
        for schema in &mut three {
            *schema = schemas::schema(u, 0)?;
        }
        let mut values = [const { Value::Null }; 3];
        for value in &mut values {
            *value = schemas::value(u, 0)?;
        }
        Ok(Input {
            family: u.choose_index(families().len() + 1)?,
            schemas: three,
            values,
            choice: u.arbitrary()?,
            flags: u.arbitrary()?,
        })
    }
}

fuzz_target!(|input: Input| {
    let tool = |name: &str, parameters: &Value, strict: bool| json!({ "type": "function", "function": { "name": name, "parameters": parameters, "strict": strict } });
    let tools = [
        tool("f", &input.schemas[0], false),
        tool("get_weather", &input.schemas[1], input.flags[0]),
    ];
    let choice = match input.choice % 4 {
        0 => ToolChoice::Auto,
        1 => ToolChoice::None,
        2 => ToolChoice::Required,
        _ => ToolChoice::Function("f".to_owned()),
    };
    let response = ResponseFormat::JsonSchema { schema: input.schemas[2].clone(), strict: false };
    let requirements = ReplyRequirements {
        tools: &tools,
        choice: &choice,
        parallel: input.flags[1],
        untagged: input.choice & 16 != 0,
        response_format: (input.choice & 4 != 0).then_some(&response),
        bounded: input.choice & 32 != 0,
        grammar: None,
        reasoning_open: input.flags[2],
        content_open: input.choice & 8 != 0,
        reasons: input.flags[2],
    };
    let make = || {
        in_time(|| {
            constraint::reply_grammar(families().get(input.family), &requirements, &|_| Vec::new())
        })
    };
    match make() {
        Ok(grammar) => assert_eq!(make().ok(), Some(grammar), "the second answer equals the first"),
        Err(error) => sound(&error),
    }
    let calls = ["f", "get_weather"].into_iter().zip(&input.values);
    let calls = calls.map(|(name, value)| ToolCall {
        id: "1".to_owned(),
        name: name.to_owned(),
        arguments: value.to_string(),
    });
    let parsed = ParsedReply {
        tool_calls: calls.collect(),
        content: input.values[2].to_string(),
        ..ParsedReply::default()
    };
    let found = in_time(|| validate::check_message(&parsed, "", &tools, Some(&response)));
    assert_eq!(
        validate::check_message(&parsed, "", &tools, Some(&response)),
        found,
        "the second answer equals the first"
    );
    for violation in &found {
        assert!(Diagnostic::from(violation).to_json()["message"].is_string());
    }
});
