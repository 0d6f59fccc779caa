//! Finds members of arguments that no schema lists, and members that come twice.
//!
//! In: the arguments of finished calls, and the schemas of their tools. Out: diagnostics. JSON
//! Schema allows both, but a host that passes the members on as parameters of a function fails.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::api::{function_name, function_parameters};
use crate::diagnostic::Diagnostic;
use crate::json;
use crate::json_schema::{ArgumentsSchema, SchemaPointers, child};
use crate::output::{ParsedReply, ToolCall};

/// The maximum number of values of one call that are visited.
const MAX_VISITED: usize = 10_000;
/// The maximum number of diagnostics for one call.
const MAX_REPORTED: usize = 16;

/// The diagnostics `arg_unknown` and `arg_duplicate` for the calls of a message, unless the reply
/// parser has already reported the member. `{"code","message","tool","call","path"}`; a member that
/// comes twice has no `path`.
pub fn check_members(parsed: &ParsedReply, tools: &[Value]) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    for (index, call) in parsed.tool_calls.iter().enumerate() {
        let about = |code, message: String| {
            let diagnostic = Diagnostic::new(code, format!("{}: {message}", call.name));
            diagnostic.with("tool", call.name.as_str()).with("call", index)
        };
        let tool = tools.iter().find(|tool| function_name(tool) == call.name);
        let unlisted = tool.map_or_else(Vec::new, |tool| unlisted(tool, call));
        let unlisted = unlisted.into_iter().filter(|(name, _)| !is_reported(parsed, name));
        diagnostics.extend(unlisted.map(|(_, path)| {
            about("arg_unknown", format!("{path}: no schema lists this member")).with("path", path)
        }));
        let repeated = json::from_str::<RepeatedNames>(&call.arguments);
        let names = repeated.map_or_else(|_| Vec::new(), |repeated| repeated.0);
        let names = names.into_iter().take(MAX_REPORTED);
        diagnostics.extend(names.map(|name| {
            about("arg_duplicate", format!("`{name}` is given more than once in one object"))
        }));
    }
    diagnostics
}

/// Whether the reply parser has reported an unknown parameter of this name.
fn is_reported(parsed: &ParsedReply, name: &str) -> bool {
    let quoted = format!("`{name}`");
    let mut diagnostics = parsed.diagnostics.iter();
    diagnostics.any(|known| known.code == "arg_unknown" && known.message.contains(&quoted))
}

/// The names and paths of the members that no schema lists.
fn unlisted(tool: &Value, call: &ToolCall) -> Vec<(String, String)> {
    let Ok(arguments @ Value::Object(_)) = json::from_str(&call.arguments) else {
        return Vec::new();
    };
    let schema = ArgumentsSchema::new(function_parameters(tool));
    let mut found = Vec::new();
    let mut visited = 0;
    let mut pending: Vec<(String, SchemaPointers, &Value)> =
        vec![(String::new(), schema.root(), &arguments)];
    while let Some((path, pointers, value)) = pending.pop() {
        visited += 1;
        if visited > MAX_VISITED || found.len() >= MAX_REPORTED {
            break;
        }
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    let member = schema.member(&pointers, name);
                    let path = child(&path, name);
                    if member.unknown {
                        found.push((name.clone(), path));
                    } else if !member.pointers.is_empty() {
                        pending.push((path, member.pointers, value));
                    }
                }
            }
            Value::Array(items) => {
                let pointers = schema.items(&pointers);
                if !pointers.is_empty() {
                    let items = items.iter().enumerate();
                    pending.extend(
                        items.map(|(index, item)| {
                            (format!("{path}/{index}"), pointers.clone(), item)
                        }),
                    );
                }
            }
            _ => {}
        }
    }
    found
}

/// The names that occur more than once in one object of a JSON text.
struct RepeatedNames(Vec<String>);

impl<'de> Deserialize<'de> for RepeatedNames {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RepeatedNames, D::Error> {
        deserializer.deserialize_any(RepeatedNamesVisitor)
    }
}

struct RepeatedNamesVisitor;

impl<'de> Visitor<'de> for RepeatedNamesVisitor {
    type Value = RepeatedNames;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<RepeatedNames, E> {
        Ok(RepeatedNames(Vec::new()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<RepeatedNames, E> {
        Ok(RepeatedNames(Vec::new()))
    }

    fn visit_i64<E>(self, _: i64) -> Result<RepeatedNames, E> {
        Ok(RepeatedNames(Vec::new()))
    }

    fn visit_u64<E>(self, _: u64) -> Result<RepeatedNames, E> {
        Ok(RepeatedNames(Vec::new()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<RepeatedNames, E> {
        Ok(RepeatedNames(Vec::new()))
    }

    fn visit_str<E>(self, _: &str) -> Result<RepeatedNames, E> {
        Ok(RepeatedNames(Vec::new()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RepeatedNames, A::Error> {
        let mut repeated = Vec::new();
        while let Some(RepeatedNames(inner)) = items.next_element()? {
            repeated.extend(inner);
        }
        Ok(RepeatedNames(repeated))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<RepeatedNames, A::Error> {
        let mut repeated = Vec::new();
        let mut names = HashSet::new();
        while let Some((name, RepeatedNames(inner))) = members.next_entry::<String, _>()? {
            if !names.insert(name.clone()) && !repeated.contains(&name) {
                repeated.push(name);
            }
            repeated.extend(inner);
        }
        Ok(RepeatedNames(repeated))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(parameters: Value, arguments: &str, expected: &[(&str, &str)]) {
        let tools = [json!({"function": {"name": "f", "parameters": parameters}})];
        let arguments = arguments.to_owned();
        let call = ToolCall { id: String::new(), name: "f".into(), arguments };
        let parsed = ParsedReply { tool_calls: vec![call], ..ParsedReply::default() };
        let found: Vec<_> = check_members(&parsed, &tools)
            .into_iter()
            .map(|diagnostic| {
                let json = diagnostic.to_json();
                assert_eq!((&json["tool"], &json["call"]), (&json!("f"), &json!(0)));
                (diagnostic.code, diagnostic.message)
            })
            .collect();
        let found: Vec<(&str, &str)> =
            found.iter().map(|(code, message)| (*code, message.as_str())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn unlisted_members() {
        let inner = json!({"type": "object", "properties": {"x": {}}});
        let schema =
            json!({"properties": {"a": {}, "list": {"items": inner}, "free": {"type": "object"}}});
        check(schema.clone(), r#"{"a": {"any": 1}, "free": {"b": 1}, "list": [{"x": 1}]}"#, &[]);
        check(
            schema.clone(),
            r#"{"a": 1, "b": 2}"#,
            &[("arg_unknown", "f: /b: no schema lists this member")],
        );
        check(
            schema,
            r#"{"list": [{"x": 1}, {"y": {"z": 1}}]}"#,
            &[("arg_unknown", "f: /list/1/y: no schema lists this member")],
        );
        for open in [json!(true), json!({"type": "integer"})] {
            check(
                json!({"properties": {"a": {}}, "additionalProperties": open}),
                r#"{"b": 2}"#,
                &[],
            );
        }
        check(
            json!({"allOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}),
            r#"{"b": 2}"#,
            &[],
        );
        check(json!({"properties": {"a": {}}, "required": ["b"]}), r#"{"b": 2}"#, &[]);
        check(json!({"type": "object"}), r#"{"b": 2}"#, &[]);
        check(json!({"properties": {}}), "not JSON", &[]);
    }

    #[test]
    fn members_that_come_twice() {
        let twice = "f: `a` is given more than once in one object";
        let text = r#"{"a": 1, "b": [{"a": 1}], "a": "x", "a": null}"#;
        check(json!({}), text, &[("arg_duplicate", twice)]);
        check(
            json!({}),
            r#"{"b": [true, 1.5, -1, {"a": 1, "a": 1}]}"#,
            &[("arg_duplicate", twice)],
        );
        check(json!({}), r#"{"b": {"a": 1}, "a": 1}"#, &[]);
    }
}
