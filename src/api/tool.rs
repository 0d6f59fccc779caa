//! The members `tools` and `tool_choice`.

use std::collections::HashSet;

use serde_json::Value;

use super::fields::{Fields, JsonPath, expected};
use crate::error::{Error, Result};

/// The member `tool_choice`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// No call is allowed, even if the request has tools.
    None,
    /// At least one call is required.
    Required,
    /// A call of this function is required.
    Function(String),
}

impl ToolChoice {
    /// Whether the reply must contain a call.
    pub fn forces_call(&self) -> bool {
        matches!(self, ToolChoice::Required | ToolChoice::Function(_))
    }
}

/// The name of a checked tool.
pub fn function_name(tool: &Value) -> &str {
    tool["function"]["name"].as_str().unwrap_or_default()
}

/// The JSON Schema of a checked tool's arguments. None if the tool takes no arguments.
pub fn function_parameters(tool: &Value) -> Option<&Value> {
    tool["function"].get("parameters").filter(|schema| !schema.is_null())
}

/// Whether a checked tool is `"strict": true`: its schema is enforced completely, or refused.
pub fn is_strict(tool: &Value) -> bool {
    tool["function"]["strict"] == true
}

/// Checks `tools` and returns them; empty if absent.
pub(crate) fn check_tools<'a>(fields: &mut Fields<'a>) -> Result<&'a [Value]> {
    let Some(tools) = fields.array("tools")? else { return Ok(&[]) };
    let mut names = HashSet::with_capacity(tools.len());
    for (index, tool) in tools.iter().enumerate() {
        let name = check_tool(JsonPath::Element("tools", index), tool)?;
        if !names.insert(name) {
            return Err(Error::invalid(
                format!("tools[{index}].function.name"),
                format!("duplicate name {name:?}"),
            ));
        }
    }
    Ok(tools)
}

fn check_tool(path: JsonPath, tool: &Value) -> Result<&str> {
    let mut fields = Fields::new(path, tool)?;
    fields.one_of("type", &[("function", ())])?;
    let mut function = fields.inner("function")?;
    function.string("description")?;
    function.object("parameters")?;
    match function.string("name")? {
        Some("") => Err(function.invalid("name", "is empty")),
        Some(name) => Ok(name),
        None => Err(function.invalid("name", "missing")),
    }
}

/// Reads `tool_choice`, and checks it against the tools.
pub(crate) fn read_tool_choice(fields: &mut Fields, tools: &[Value]) -> Result<ToolChoice> {
    let choice = match fields.get("tool_choice") {
        None => return Ok(ToolChoice::Auto),
        Some(Value::String(text)) => match text.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            _ => {
                let problem = format!(
                    r#"unknown value {text:?}; expected "auto", "none", "required" or a function"#
                );
                return Err(fields.invalid("tool_choice", problem));
            }
        },
        Some(value @ Value::Object(_)) => {
            let mut choice = Fields::new(fields.path("tool_choice"), value)?;
            choice.one_of("type", &[("function", ())])?;
            let mut function = choice.inner("function")?;
            let name = function.required_string("name")?;
            if !tools.iter().any(|tool| function_name(tool) == name) {
                return Err(function.invalid("name", format!("unknown tool {name:?}")));
            }
            ToolChoice::Function(name.to_owned())
        }
        Some(other) => {
            return Err(fields.invalid("tool_choice", expected("a string or an object", other)));
        }
    };
    if choice.forces_call() && tools.is_empty() {
        return Err(fields.invalid("tool_choice", "requires a call, but `tools` is empty"));
    }
    Ok(choice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(request: Value, expected: Result<ToolChoice, &str>) {
        let mut fields = Fields::new("", &request).expect("an object");
        let got = check_tools(&mut fields).and_then(|tools| read_tool_choice(&mut fields, tools));
        assert_eq!(got.as_ref().map_err(|e| e.message()), expected.as_ref().map_err(|e| *e));
    }

    #[test]
    fn choices() {
        let tools = json!([{"type": "function", "function": {"name": "f"}}]);
        check(json!({}), Ok(ToolChoice::Auto));
        check(json!({"tools": tools, "tool_choice": "none"}), Ok(ToolChoice::None));
        check(json!({"tools": tools, "tool_choice": "required"}), Ok(ToolChoice::Required));
        check(
            json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "f"}}}),
            Ok(ToolChoice::Function("f".into())),
        );
        check(
            json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "g"}}}),
            Err(r#"tool_choice.function.name: unknown tool "g""#),
        );
        check(
            json!({"tool_choice": "required"}),
            Err("tool_choice: requires a call, but `tools` is empty"),
        );
        check(
            json!({"tools": tools, "tool_choice": "any"}),
            Err(
                r#"tool_choice: unknown value "any"; expected "auto", "none", "required" or a function"#,
            ),
        );
    }

    #[test]
    fn errors_name_the_tool() {
        check(json!({"tools": {}}), Err("tools: expected an array, got {}"));
        check(
            json!({"tools": [{"type": "retrieval"}]}),
            Err(r#"tools[0].type: unknown value "retrieval"; expected one of "function""#),
        );
        check(json!({"tools": [{"function": {}}]}), Err("tools[0].function.name: missing"));
        check(
            json!({"tools": [{"function": {"name": "f", "parameters": "x"}}]}),
            Err(r#"tools[0].function.parameters: expected an object, got "x""#),
        );
        check(
            json!({"tools": [{"function": {"name": "f"}}, {"function": {"name": "f"}}]}),
            Err(r#"tools[1].function.name: duplicate name "f""#),
        );
    }
}
