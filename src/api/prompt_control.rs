//! The member `chat_template_kwargs`: additional variables of the chat template.

use serde_json::{Map, Value};

use super::fields::Fields;
use crate::error::Result;

/// Template variables that `chat_template_kwargs` must not set, because members of the request set
/// them.
pub const RESERVED_VARIABLES: [&str; 3] = ["messages", "tools", "add_generation_prompt"];

/// Checks `chat_template_kwargs`. Returns an empty map: [`take_template_kwargs`] moves the values
/// later.
pub(super) fn check_template_kwargs(fields: &mut Fields) -> Result<Map<String, Value>> {
    let given = fields.object("chat_template_kwargs")?;
    for name in RESERVED_VARIABLES {
        if given.is_some_and(|given| given.contains_key(name)) {
            return Err(fields.invalid(
                &format!("chat_template_kwargs.{name}"),
                format!("set `{name}` of the request instead"),
            ));
        }
    }
    Ok(Map::new())
}

/// Moves the checked `chat_template_kwargs` out of a request.
pub(super) fn take_template_kwargs(request: &mut Value) -> Map<String, Value> {
    match request.get_mut("chat_template_kwargs").map(Value::take) {
        Some(Value::Object(kwargs)) => kwargs,
        _ => Map::new(),
    }
}
