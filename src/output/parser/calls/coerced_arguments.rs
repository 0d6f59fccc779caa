//! Arguments with strings in place of other values -> arguments that may match the schema: `"5"` for
//! a number is `5`.
//!
//! It is only for whole calls that count if they match their schema. Strings inside other values
//! stay as they are.

use serde_json::Value;

use crate::json;
use crate::json_schema::ArgumentsSchema;
use crate::output::call_writer;
use crate::output::read::text_as;

/// The arguments with the values that their strings spell, where the schema excludes strings. None
/// if there are no such strings.
pub(crate) fn coerced_arguments(text: &str, schema: &ArgumentsSchema) -> Option<String> {
    let mut members = json::object(text)?;
    let mut changed = false;
    for (name, value) in &mut members {
        let types = schema.types(&schema.member(&schema.root(), name).pointers);
        if let (Value::String(text), Some(types)) = (&*value, types)
            && let Some(spelled) = text_as(types, text).and_then(|text| json::value(text).ok())
        {
            *value = spelled;
            changed = true;
        }
    }
    let mut written = String::new();
    call_writer::json(&Value::Object(members), false, &mut written);
    changed.then_some(written)
}
