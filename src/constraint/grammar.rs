//! Lark grammars, in llguidance's dialect, for forced tool calls and JSON replies.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::api::{ToolChoice, function_name, function_parameters};
use crate::error::{Code, Error, Result};
use crate::output::Format;

/// One or more calls in the model's own format and nothing else. `marker_token` gives the id of a marker that is one token
/// of the vocabulary; other markers are plain text.
pub fn forced_calls(
    format: &Format,
    tools: &[Value],
    choice: &ToolChoice,
    parallel: bool,
    marker_token: &dyn Fn(&str) -> Option<i32>,
) -> Result<String> {
    let _ = (format, tools, choice, parallel, marker_token);
    Err(Error::new(Code::SchemaUnsupported, "on its way"))
}

/// Any JSON object.
pub fn json_object() -> String {
    r#"start: %json {"type": "object"}"#.to_owned()
}

/// JSON that obeys a schema.
pub fn json_schema(schema: &Value) -> String {
    format!("start: %json {schema}")
}

/// The schema of a tool's arguments: always an object, printed compactly as chat templates print it, so that a small model
/// cannot fill its reply with white space.
fn arguments_schema(parameters: Option<&Value>, path: &str) -> Result<Value> {
    let mut schema = match parameters {
        None => no_arguments(),
        Some(Value::Object(schema)) if schema.is_empty() => no_arguments(),
        Some(Value::Object(schema)) => schema.clone(),
        Some(other) => return Err(Error::invalid(path, format!("expected an object, got {other}"))),
    };
    match schema.get("type") {
        None => {
            schema.insert("type".into(), "object".into());
        }
        Some(kind) if kind == "object" => {}
        Some(kind) => {
            return Err(Error::new(Code::SchemaUnsupported, format!("{path}.type: arguments are an object, not {kind}")));
        }
    }
    schema.insert("x-guidance".into(), json!({ "whitespace_flexible": false, "item_separator": ", ", "key_separator": ": " }));
    Ok(Value::Object(schema))
}

fn no_arguments() -> Map<String, Value> {
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), json!({}));
    schema.insert("additionalProperties".into(), false.into());
    schema
}

/// A Lark string; its escapes are JSON's.
fn literal(text: &str) -> String {
    Value::from(text).to_string()
}

fn line(text: &mut String, arguments: std::fmt::Arguments) {
    let _ = writeln!(text, "{arguments}");
}
