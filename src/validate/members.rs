//! Finds members of arguments that no schema lists, and members that come twice.
//!
//! In: the arguments of finished calls, and the schemas of their tools. Out: diagnostics. JSON
//! Schema allows both, but a host that passes the members on as parameters of a function fails.

use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::by_name;
use crate::api::function_parameters;
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
    let (tools, reported) = (by_name(tools), reported(parsed));
    let mut schemas: HashMap<&str, ArgumentsSchema> = HashMap::new();
    for (index, call) in parsed.tool_calls.iter().enumerate() {
        let about = |code, message: String| {
            let diagnostic = Diagnostic::new(code, format!("{}: {message}", call.name));
            diagnostic.with("tool", call.name.as_str()).with("call", index)
        };
        if let Some(tool) = tools.get(&*call.name) {
            let schema = || ArgumentsSchema::new(function_parameters(tool));
            let schema = schemas.entry(&call.name).or_insert_with(schema);
            let unlisted = unlisted(schema, call);
            let unlisted = unlisted.into_iter().filter(|(name, _)| !reported.contains(&**name));
            diagnostics.extend(unlisted.map(|(_, path)| {
                let message = format!("{path}: no schema lists this member");
                about("arg_unknown", message).with("path", path)
            }));
        }
        let repeated = json::typed::<RepeatedNames>(&call.arguments);
        let names = repeated.map_or_else(|_| Vec::new(), |repeated| repeated.0);
        let names = names.into_iter().take(MAX_REPORTED);
        diagnostics.extend(names.map(|name| {
            about("arg_duplicate", format!("`{name}` is given more than once in one object"))
        }));
    }
    diagnostics
}

/// The names in backquotes of the unknown parameters that the reply parser has reported.
fn reported(parsed: &ParsedReply) -> HashSet<&str> {
    let unknown = parsed.diagnostics.iter().filter(|known| known.code == "arg_unknown");
    unknown.flat_map(|known| known.message.split('`').skip(1).step_by(2)).collect()
}

/// A value of the arguments. Its path is only written if it is reported, because a name may be as
/// long as the arguments.
struct VisitedValue<'a> {
    /// The index of the value that it is in, and its name or its index there.
    step: Option<(usize, MemberStep<'a>)>,
    pointers: SchemaPointers,
    value: &'a Value,
}

#[derive(Clone, Copy)]
enum MemberStep<'a> {
    Name(&'a str),
    Index(usize),
}

/// The path of a step from the value at an index.
fn path(visited: &[VisitedValue<'_>], from: usize, step: MemberStep<'_>) -> String {
    let (mut steps, mut next) = (Vec::new(), Some((from, step)));
    while let Some((from, step)) = next {
        steps.push(step);
        next = visited[from].step;
    }
    steps.iter().rev().fold(String::new(), |path, step| match step {
        MemberStep::Name(name) => child(&path, name),
        MemberStep::Index(index) => format!("{path}/{index}"),
    })
}

/// The names and paths of the members that no schema lists.
fn unlisted(schema: &ArgumentsSchema, call: &ToolCall) -> Vec<(String, String)> {
    let Some(arguments) = json::object(&call.arguments).map(Value::Object) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let root = VisitedValue { step: None, pointers: schema.root(), value: &arguments };
    let mut visited = vec![root];
    let (mut pending, mut left) = (vec![0], MAX_VISITED);
    while let Some(at) = pending.pop() {
        let VisitedValue { pointers, value, .. } = &visited[at];
        let (value, pointers) = (*value, pointers.clone());
        let before = visited.len();
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    if left == 0 || found.len() >= MAX_REPORTED {
                        return found;
                    }
                    left -= 1;
                    let (member, step) =
                        (schema.member(&pointers, name), MemberStep::Name(name.as_str()));
                    if member.unknown {
                        found.push((name.clone(), path(&visited, at, step)));
                    } else if !member.pointers.is_empty() {
                        let (step, pointers) = (Some((at, step)), member.pointers);
                        visited.push(VisitedValue { step, pointers, value });
                    }
                }
            }
            Value::Array(items) => {
                let pointers = schema.items(&pointers);
                let items = items.iter().enumerate().take(left);
                if !pointers.is_empty() {
                    left -= items.len();
                    visited.extend(items.map(|(index, value)| VisitedValue {
                        step: Some((at, MemberStep::Index(index))),
                        pointers: pointers.clone(),
                        value,
                    }));
                }
            }
            _ => {}
        }
        pending.extend(before..visited.len());
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
        // Whether a name has been found to be repeated.
        let mut names: HashMap<String, bool> = HashMap::new();
        while let Some((name, RepeatedNames(inner))) = members.next_entry::<String, _>()? {
            if let Some(is_known) = names.get_mut(&name) {
                if !std::mem::replace(is_known, true) {
                    repeated.push(name);
                }
            } else {
                names.insert(name, false);
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
