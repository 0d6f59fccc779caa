//! `response_format`: the format of a reply's text.

use serde_json::Value;

use super::fields::{Fields, expected};
use crate::error::Result;

/// The member `response_format`.
#[derive(Debug, Clone, PartialEq)]
pub enum ResponseFormat {
    /// Any JSON object.
    JsonObject,
    /// JSON that matches this schema.
    JsonSchema(Value),
}

/// Reads `response_format`; None is text.
pub(crate) fn read_response_format(fields: &mut Fields) -> Result<Option<ResponseFormat>> {
    let Some(value) = fields.get("response_format") else { return Ok(None) };
    let mut format = Fields::new("response_format", value)?;
    let kinds = [("text", 0), ("json_object", 1), ("json_schema", 2)];
    match format.one_of("type", &kinds)?.ok_or_else(|| format.invalid("type", "missing"))? {
        0 => Ok(None),
        1 => Ok(Some(ResponseFormat::JsonObject)),
        _ => {
            let mut json_schema = format.inner("json_schema")?;
            match json_schema.required("schema")? {
                schema @ (Value::Object(_) | Value::Bool(_)) => {
                    Ok(Some(ResponseFormat::JsonSchema(schema.clone())))
                }
                other => Err(json_schema.invalid("schema", expected("a JSON Schema", other))),
            }
        }
    }
}
