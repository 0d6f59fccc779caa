//! How a prompt ends: the members `add_generation_prompt` and `continue_final_message`.

use serde_json::Value;

use super::fields::{Fields, expected};
use crate::error::Result;

/// Reads both members. Returns whether the prompt ends with a generation prompt, and the name of
/// the member of the last message that the reply continues, if any.
pub(crate) fn read_ending<'a>(fields: &mut Fields<'a>) -> Result<(bool, Option<&'a str>)> {
    let continued = read_continued(fields)?;
    let add_generation_prompt = fields.boolean("add_generation_prompt")?;
    if continued.is_some() && add_generation_prompt == Some(true) {
        let problem = "cannot be used together with `add_generation_prompt`: true";
        return Err(fields.invalid("continue_final_message", problem));
    }
    Ok((add_generation_prompt.unwrap_or(continued.is_none()), continued))
}

/// Reads the name of a member; true means `content`, and false means None.
fn read_continued<'a>(fields: &mut Fields<'a>) -> Result<Option<&'a str>> {
    match fields.get("continue_final_message") {
        None | Some(Value::Bool(false)) => Ok(None),
        Some(Value::Bool(true)) => Ok(Some("content")),
        Some(Value::String(member)) if !member.is_empty() => Ok(Some(member)),
        Some(other) => Err(fields.invalid(
            "continue_final_message",
            expected("true, false or the name of a member", other),
        )),
    }
}
