//! `continue_final_message`, as a caller sends it.

use serde_json::Value;

use super::fields::{Fields, expected};
use crate::error::Result;

/// The member of the last message that goes on: `content` for true, or its name; None for false.
pub(crate) fn read_continued<'a>(fields: &mut Fields<'a>) -> Result<Option<&'a str>> {
    match fields.get("continue_final_message") {
        None | Some(Value::Bool(false)) => Ok(None),
        Some(Value::Bool(true)) => Ok(Some("content")),
        Some(Value::String(member)) if !member.is_empty() => Ok(Some(member)),
        Some(other) => Err(fields.invalid("continue_final_message", expected("true, false or the name of a member", other))),
    }
}
