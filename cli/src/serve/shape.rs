//! The types of members that the server ignores or passes on unread. They are checked so that
//! clients notice their mistakes.

use serde_json::Value;

use super::error::ApiError;
use super::fields::wrong;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Boolean,
    Text,
    Count,
    Array,
    Object,
}

/// The types of members by path. `a[].b` means `b` in each item of `a`. Source: the types of the
/// package `openai` 3.54.
pub(crate) const CHAT: &[(&str, Kind)] = &[
    ("metadata", Kind::Object),
    ("prediction", Kind::Object),
    ("prompt_cache_key", Kind::Text),
    ("response_format.json_schema.description", Kind::Text),
    ("response_format.json_schema.name", Kind::Text),
    ("response_format.json_schema.strict", Kind::Boolean),
    ("safety_identifier", Kind::Text),
    ("service_tier", Kind::Text),
    ("store", Kind::Boolean),
    ("tools[].function.strict", Kind::Boolean),
    ("user", Kind::Text),
    ("verbosity", Kind::Text),
];

/// Source: as above.
pub(crate) const RESPONSES: &[(&str, Kind)] = &[
    ("include[]", Kind::Text),
    ("input[].content[].annotations", Kind::Array),
    ("input[].id", Kind::Text),
    ("input[].status", Kind::Text),
    ("input[].summary", Kind::Array),
    ("max_tool_calls", Kind::Count),
    ("metadata", Kind::Object),
    ("prompt_cache_key", Kind::Text),
    ("reasoning.summary", Kind::Text),
    ("safety_identifier", Kind::Text),
    ("service_tier", Kind::Text),
    ("text.format.description", Kind::Text),
    ("text.format.name", Kind::Text),
    ("text.format.strict", Kind::Boolean),
    ("text.verbosity", Kind::Text),
    ("tools[].strict", Kind::Boolean),
    ("user", Kind::Text),
];

/// Source: the types of the package `anthropic` 2.12.
pub(crate) const MESSAGES: &[(&str, Kind)] = &[
    ("messages[].content[].cache_control", Kind::Object),
    ("messages[].content[].cache_control.type", Kind::Text),
    ("messages[].content[].is_error", Kind::Boolean),
    ("messages[].content[].signature", Kind::Text),
    ("metadata", Kind::Object),
    ("metadata.user_id", Kind::Text),
    ("output_config", Kind::Object),
    ("output_config.effort", Kind::Text),
    ("output_config.format", Kind::Object),
    ("output_format", Kind::Object),
    ("service_tier", Kind::Text),
    ("stop_sequences", Kind::Array),
    ("system[].cache_control", Kind::Object),
    ("system[].cache_control.type", Kind::Text),
    ("tools[].cache_control", Kind::Object),
    ("tools[].strict", Kind::Boolean),
];

/// Checks the members of a table, except absent and null ones.
pub(crate) fn check(body: &Value, members: &[(&str, Kind)]) -> Result<(), ApiError> {
    members.iter().try_for_each(|(path, kind)| check_member(body, "", path, *kind))
}

fn check_member(value: &Value, above: &str, path: &str, kind: Kind) -> Result<(), ApiError> {
    if path.is_empty() {
        return if is_kind(value, kind) { Ok(()) } else { Err(wrong(above, name(kind), value)) };
    }
    if let Some(rest) = path.strip_prefix("[]") {
        let mut items = value.as_array().into_iter().flatten().enumerate();
        let rest = rest.strip_prefix('.').unwrap_or(rest);
        return items.try_for_each(|(index, item)| {
            check_member(item, &format!("{above}[{index}]"), rest, kind)
        });
    }
    let end = path.find(['.', '[']).unwrap_or(path.len());
    let (member, rest) = path.split_at(end);
    let rest = rest.strip_prefix('.').unwrap_or(rest);
    let Some(child) = value.get(member).filter(|child| !child.is_null()) else { return Ok(()) };
    let dot = if above.is_empty() { "" } else { "." };
    check_member(child, &format!("{above}{dot}{member}"), rest, kind)
}

fn is_kind(value: &Value, kind: Kind) -> bool {
    match kind {
        Kind::Boolean => value.is_boolean(),
        Kind::Text => value.is_string(),
        Kind::Count => value.is_u64(),
        Kind::Array => value.is_array(),
        Kind::Object => value.is_object(),
    }
}

fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::Boolean => "a boolean",
        Kind::Text => "a string",
        Kind::Count => "a whole number from 0",
        Kind::Array => "an array",
        Kind::Object => "an object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_message_has_the_path() {
        let table = &[("a[].b.c[]", Kind::Text)];
        let check = |body: Value| check(&body, table).map_err(|error| error.message);
        for good in [json!({}), json!({ "a": null }), json!({ "a": 1 }), json!({ "a": [1, {}] })] {
            assert_eq!(check(good), Ok(()));
        }
        let bad = json!({ "a": [{}, { "b": { "c": ["x", 1] } }] });
        assert_eq!(check(bad), Err("a[1].b.c[1]: expected a string, not 1".to_owned()));
    }
}
