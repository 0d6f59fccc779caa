//! Custom tools of chat completions: their tools, choices and calls as functions of the library, and
//! the model's calls of them back in OpenAI's form.
//!
//! Source: the types of the package `openai` 3.54.

use std::collections::{BTreeMap, HashSet};
use std::mem;

use serde_json::{Value, json};

use super::custom_tool;
use super::error::ApiError;
use super::fields::{self, join, required_string};
use super::left_out::LeftOut;

/// The type, and the member with the rest, of tools, choices and calls.
const CUSTOM: &str = "custom";

/// The custom tools of a request, and the calls of them that a stream is in the middle of.
#[derive(Default)]
pub(super) struct CustomCalls {
    names: HashSet<String>,
    /// The arguments so far, by choice and call. The input of a call is sent as a whole.
    open: BTreeMap<(u64, u64), String>,
}

impl CustomCalls {
    /// Turns the custom tools of a request into functions. Members of the wrong type are left to
    /// the library.
    pub(super) fn read(request: &mut Value, left_out: &mut LeftOut) -> Result<Self, ApiError> {
        let mut names = HashSet::new();
        let tools = request.get_mut("tools").and_then(Value::as_array_mut);
        for (index, tool) in tools.into_iter().flatten().enumerate() {
            if tool["type"] == CUSTOM {
                let path = format!("tools[{index}].{CUSTOM}");
                let name = required_string(&tool[CUSTOM], &path, "name")?.to_owned();
                *tool = function(&tool[CUSTOM], &name, &path, left_out);
                names.insert(name);
            }
        }
        let choice = &request["tool_choice"];
        if choice["type"] == CUSTOM {
            let path = format!("tool_choice.{CUSTOM}");
            let name = required_string(&choice[CUSTOM], &path, "name")?;
            let choice = json!({ "type": "function", "function": { "name": name } });
            request["tool_choice"] = choice;
        }
        let messages = request.get_mut("messages").and_then(Value::as_array_mut);
        for (index, message) in messages.into_iter().flatten().enumerate() {
            let path = format!("messages[{index}].tool_calls");
            let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
            for (index, call) in calls.into_iter().flatten().enumerate() {
                if call["type"] == CUSTOM {
                    read_call(call, &format!("{path}[{index}].{CUSTOM}"))?;
                }
            }
        }
        Ok(CustomCalls { names, open: BTreeMap::new() })
    }

    fn is_custom(&self, call: &Value) -> bool {
        call["function"]["name"].as_str().is_some_and(|name| self.names.contains(name))
    }

    /// Writes the calls of a whole message.
    pub(super) fn write(&self, message: &mut Value) {
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten().filter(|call| self.is_custom(call)) {
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            let input = custom_tool::input(arguments);
            write_call(call, Some(input));
        }
    }

    /// Writes the calls in the choice of a chunk. Returns false if nothing of the choice is left.
    pub(super) fn write_delta(&mut self, choice: &mut Value) -> bool {
        if self.names.is_empty() {
            return true;
        }
        let place = choice["index"].as_u64().unwrap_or_default();
        let is_last = !choice["finish_reason"].is_null();
        let Some(delta) = choice["delta"].as_object_mut() else { return true };
        let mut calls = match delta.remove("tool_calls") {
            Some(Value::Array(calls)) => calls,
            _ => Vec::new(),
        };
        let had_calls = !calls.is_empty();
        for call in &mut calls {
            let key = (place, call["index"].as_u64().unwrap_or_default());
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default().to_owned();
            if self.is_custom(call) {
                self.open.insert(key, arguments);
                write_call(call, None);
            } else if let Some(open) = self.open.get_mut(&key) {
                *open += &arguments;
                *call = Value::Null;
            }
        }
        calls.retain(|call| !call.is_null());
        if is_last {
            let open = mem::take(&mut self.open).into_iter();
            let (ended, open) = open.partition(|((choice, _), _)| *choice == place);
            self.open = open;
            let ended: BTreeMap<(u64, u64), String> = ended;
            calls.extend(ended.into_iter().map(|((_, index), arguments)| {
                let custom = json!({ "input": custom_tool::input(&arguments) });
                json!({ "index": index, "type": CUSTOM, CUSTOM: custom })
            }));
        }
        let is_empty = calls.is_empty();
        if !is_empty {
            delta.insert("tool_calls".to_owned(), calls.into());
        }
        is_last || !had_calls || !is_empty
    }
}

/// The library's tool.
fn function(tool: &Value, name: &str, path: &str, left_out: &mut LeftOut) -> Value {
    let mut function = json!({ "name": name });
    fields::copy(tool, &["description"], &mut function);
    function["parameters"] = custom_tool::parameters();
    let format = &tool["format"];
    if format["type"] == "grammar" {
        let path = join(path, "format.grammar");
        custom_tool::add_grammar(&format["grammar"], &mut function, &path, left_out);
    }
    json!({ "type": "function", "function": function })
}

/// An earlier call, for the library.
fn read_call(call: &mut Value, path: &str) -> Result<(), ApiError> {
    let custom = &call[CUSTOM];
    let name = required_string(custom, path, "name")?;
    let arguments = custom_tool::arguments(required_string(custom, path, "input")?);
    let function = json!({ "name": name, "arguments": arguments });
    call["type"] = "function".into();
    call["function"] = function;
    call.as_object_mut().map(|members| members.shift_remove(CUSTOM));
    Ok(())
}

/// A call of the model, for the client. Without an input it has just begun.
fn write_call(call: &mut Value, input: Option<String>) {
    let custom = json!({ "name": call["function"]["name"], "input": input.unwrap_or_default() });
    call["type"] = CUSTOM.into();
    call[CUSTOM] = custom;
    call.as_object_mut().map(|members| members.shift_remove("function"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls() -> CustomCalls {
        let mut request = json!({ "tools": [{ "type": "custom", "custom": { "name": "sql" } }] });
        CustomCalls::read(&mut request, &mut LeftOut::default()).unwrap()
    }

    #[test]
    fn a_request_has_functions() {
        let grammar = json!({ "syntax": "regex", "definition": "select .*" });
        let format = json!({ "type": "grammar", "grammar": grammar });
        let tool = json!({ "name": "sql", "description": "d", "format": format });
        let call =
            json!({ "id": "a", "type": "custom", "custom": { "name": "sql", "input": "x" } });
        let mut request = json!({
            "tools": [{ "type": "custom", "custom": tool }],
            "tool_choice": { "type": "custom", "custom": { "name": "sql" } },
            "messages": [{ "role": "assistant", "tool_calls": [call] }],
        });
        CustomCalls::read(&mut request, &mut LeftOut::default()).unwrap();
        let function = &request["tools"][0]["function"];
        assert_eq!((&function["name"], &function["description"]), (&json!("sql"), &json!("d")));
        let pattern = &function["parameters"]["properties"]["input"]["pattern"];
        assert_eq!(pattern, "^(?:select .*)$");
        let choice = json!({ "type": "function", "function": { "name": "sql" } });
        assert_eq!(request["tool_choice"], choice);
        let function = json!({ "name": "sql", "arguments": "{\"input\":\"x\"}" });
        let call = json!({ "id": "a", "type": "function", "function": function });
        assert_eq!(request["messages"][0]["tool_calls"], json!([call]));
    }

    #[test]
    fn what_is_missing_is_named() {
        let check = |mut request: Value, expected: &str| {
            let error = CustomCalls::read(&mut request, &mut LeftOut::default()).err().unwrap();
            assert_eq!(error.message, expected);
        };
        let custom = json!({ "type": "custom", "custom": { "name": "sql" } });
        let nameless = json!({ "type": "custom", "custom": {} });
        check(json!({ "tools": [nameless] }), "tools[0].custom.name: is missing");
        check(json!({ "tool_choice": nameless }), "tool_choice.custom.name: is missing");
        check(
            json!({ "messages": [{ "tool_calls": [custom] }] }),
            "messages[0].tool_calls[0].custom.input: is missing",
        );
    }

    #[test]
    fn a_message_has_custom_calls() {
        let function = json!({ "name": "sql", "arguments": "{\"input\": \"select 1\"}" });
        let mut message =
            json!({ "tool_calls": [{ "id": "a", "type": "function", "function": function }] });
        calls().write(&mut message);
        let custom = json!({ "name": "sql", "input": "select 1" });
        let expected = json!([{ "id": "a", "type": "custom", "custom": custom }]);
        assert_eq!(message["tool_calls"], expected);
    }

    #[test]
    fn a_stream_has_the_input_as_a_whole() {
        let mut calls = calls();
        let mut written = |choice: u64, call: Value, reason: Value| {
            let delta = if call.is_null() { json!({}) } else { json!({ "tool_calls": [call] }) };
            let mut choice = json!({ "index": choice, "delta": delta, "finish_reason": reason });
            let is_sent = calls.write_delta(&mut choice);
            is_sent.then(|| choice["delta"]["tool_calls"].take())
        };
        let begin = |name: &str| json!({ "index": 0, "id": "a", "type": "function", "function": { "name": name, "arguments": "" } });
        let rest = |text: &str| json!({ "index": 0, "function": { "arguments": text } });
        let custom = json!({ "name": "sql", "input": "" });
        let begun = json!([{ "index": 0, "id": "a", "type": "custom", "custom": custom }]);
        assert_eq!(written(0, begin("sql"), Value::Null), Some(begun.clone()));
        assert_eq!(written(1, begin("f"), Value::Null), Some(json!([begin("f")])));
        assert_eq!(written(2, begin("sql"), Value::Null), Some(begun));
        assert_eq!(written(0, rest("{\"input\":\"sel"), Value::Null), None);
        assert_eq!(written(1, rest("{}"), Value::Null), Some(json!([rest("{}")])));
        assert_eq!(written(2, rest("{\"input\":\"x\"}"), Value::Null), None);
        assert_eq!(written(0, rest("ect\"}"), Value::Null), None);
        let ended =
            |input: &str| json!([{ "index": 0, "type": "custom", "custom": { "input": input } }]);
        assert_eq!(written(0, Value::Null, json!("tool_calls")), Some(ended("select")));
        assert_eq!(written(1, Value::Null, json!("tool_calls")), Some(Value::Null));
        assert_eq!(written(2, Value::Null, json!("length")), Some(ended("x")));
    }
}
