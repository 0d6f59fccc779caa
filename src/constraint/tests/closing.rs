//! Tests which members the grammar allows in an object: those that its schemas list, unless they
//! say otherwise.

use super::families::{gemma4, hermes, qwen_xml};
use super::*;

/// The grammar of a JSON reply with this schema.
fn reply(schema: Value) -> GrammarCase {
    let mut case = GrammarCase::new(hermes(), ToolChoice::None);
    (case.response, case.strict) = (Some(schema), true);
    case
}

fn listing(name: &str) -> Value {
    json!({"type": "object", "properties": {name: {"type": "integer"}}})
}

fn requiring(name: &str) -> Value {
    json!({"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]})
}

#[test]
fn a_call_has_only_the_parameters_of_the_tool() {
    let mut case = GrammarCase::new(hermes(), ToolChoice::Required);
    let city =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    case.tools = vec![tool("get", city)];
    let call = |arguments: &str| {
        format!("<tool_call>\n{{\"name\": \"get\", \"arguments\": {arguments}}}\n</tool_call>")
    };
    case.accepts(&call(r#"{"city": "Paris"}"#))
        .refuses(&call(r#"{"city": "Paris"¦, "temperature": "10"}"#))
        .refuses(&call(r#"{"city": "Paris"¦, "city": "Rome"}"#));
    for (parameters, open) in
        [(json!({"type": "object", "properties": {}}), false), (json!({"type": "object"}), true)]
    {
        case.tools = vec![tool("get", parameters)];
        case.accepts(&call("{}"));
        match open {
            true => case.accepts(&call(r#"{"a": 1}"#)),
            false => case.refuses(&call(r#"{¦"a": 1}"#)),
        };
    }
}

#[test]
fn additional_properties_say_otherwise() {
    let mut schema = listing("a");
    reply(schema.clone()).accepts(r#"{"a": 1}"#).refuses(r#"{"a": 1¦, "b": 2}"#);
    schema["additionalProperties"] = true.into();
    reply(schema.clone()).accepts(r#"{"a": 1, "b": 2}"#);
    schema["additionalProperties"] = json!({"type": "boolean"});
    reply(schema.clone()).accepts(r#"{"a": 1, "b": true}"#).refuses(r#"{"a": 1, "b": ¦2}"#);
    reply(json!({"type": "object"})).accepts(r#"{"b": 2}"#);
    reply(json!({"type": "object", "required": ["b"]})).accepts(r#"{"b": 2, "c": 3}"#);
    reply(json!({"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]}))
        .accepts(r#"{"a": {"x": 1}}"#)
        .refuses(r#"{"a": {"x": 1}¦, "x": 1}"#);
    reply(json!(true)).accepts(r#"{"b": 2}"#);
}

#[test]
fn nested_objects_are_closed() {
    let list = json!({"type": "array", "items": requiring("a"), "minItems": 1});
    reply(list).accepts(r#"[{"a": 1}, {"a": 2}]"#).refuses(r#"[{"a": 1¦, "b": 1}]"#);
    let nested = json!({"type": "object", "additionalProperties": requiring("a")});
    reply(nested).accepts(r#"{"k": {"a": 1}}"#).refuses(r#"{"k": {"a": 1¦, "b": 1}}"#);
    let nullable = json!({"type": ["object", "null"], "properties": {"a": {"type": "integer"}}});
    reply(nullable).accepts("null").accepts(r#"{"a": 1}"#).refuses(r#"{"¦b": 1}"#);
}

#[test]
fn patterns_and_required_names_are_listed_too() {
    let mut schema = listing("a");
    schema["patternProperties"] = json!({"^x-": {"type": "string"}});
    reply(schema)
        .accepts(r#"{"a": 1, "x-b": "c"}"#)
        .refuses(r#"{"a": 1, "¦b": "c"}"#)
        .refuses(r#"{"a": 1, "x-b": ¦1}"#);
    let only = json!({"type": "object", "patternProperties": {"^x-": {"type": "string"}}});
    reply(only).accepts(r#"{"b": 1}"#);
    let mut schema = listing("a");
    schema["required"] = json!(["b"]);
    reply(schema).accepts(r#"{"a": 1, "b": []}"#).refuses(r#"{"a": 1, "¦c": 1}"#);
}

#[test]
fn all_schemas_of_a_value_list_together() {
    let both = json!({"allOf": [requiring("a"), listing("b")]});
    reply(both.clone())
        .accepts(r#"{"a": 1, "b": 2}"#)
        .accepts(r#"{"a": 1}"#)
        .refuses(r#"{"a": 1, "b": ¦"x"}"#)
        .refuses(r#"{"a": 1, "¦c": 2}"#);
    let mut with_own = both;
    with_own["properties"] = json!({"own": {"type": "integer"}});
    reply(with_own).accepts(r#"{"a": 1, "b": 2, "own": 3}"#).refuses(r#"{"a": 1, "¦c": 2}"#);
    let mut open = listing("b");
    open["additionalProperties"] = true.into();
    reply(json!({"allOf": [requiring("a"), open]})).accepts(r#"{"a": 1, "c": 2}"#);
    let one = json!({"allOf": [requiring("a")], "description": "d"});
    reply(one).accepts(r#"{"a": 1}"#).refuses(r#"{"a": 1¦, "c": 2}"#);
}

#[test]
fn each_alternative_has_its_own_names() {
    reply(json!({"anyOf": [requiring("a"), requiring("b"), {"type": "null"}]}))
        .accepts("null")
        .accepts(r#"{"a": 1}"#)
        .accepts(r#"{"b": 1}"#)
        .refuses(r#"{"a": 1¦, "b": 1}"#)
        .refuses(r#"{"¦c": 1}"#);
    // The names beside the alternatives count in each of them.
    let mut schema = requiring("k");
    schema["anyOf"] = json!([requiring("a"), requiring("b"), true]);
    reply(schema)
        .accepts(r#"{"k": 0, "a": 1}"#)
        .accepts(r#"{"k": 0, "b": 1}"#)
        .accepts(r#"{"k": 0}"#)
        .refuses(r#"{"k": 0, "a": 1¦, "b": 1}"#)
        .refuses(r#"{"k": 0, "¦c": 1}"#);
    let mut schema = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}});
    schema["anyOf"] = json!([{"required": ["a"]}, {"required": ["b"]}]);
    reply(schema)
        .accepts(r#"{"a": 1, "b": 2}"#)
        .accepts(r#"{"b": 2}"#)
        .refuses(r#"{¦}"#)
        .refuses(r#"{"a": 1, "¦c": 1}"#);
    let mut open = requiring("b");
    open["additionalProperties"] = true.into();
    reply(json!({"anyOf": [requiring("a"), open]}))
        .accepts(r#"{"a": 1}"#)
        .accepts(r#"{"b": 1, "c": 1}"#)
        .refuses(r#"{"a": 1¦, "c": 1}"#);
    let kind = |name: &str| {
        let kind = json!({"const": name});
        json!({"type": "object", "properties": {"kind": kind, name: {"type": "integer"}}, "required": ["kind"]})
    };
    reply(json!({"oneOf": [kind("a"), kind("b")]}))
        .accepts(r#"{"kind": "a", "a": 1}"#)
        .refuses(r#"{"kind": "a", "¦b": 1}"#);
}

#[test]
fn references_are_closed_where_they_are_used() {
    let definitions = json!({"a": requiring("a"), "b": requiring("b"),
        "list": {"type": "object", "required": ["value"], "properties": {
            "value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/$defs/list"}, {"type": "null"}]}}}});
    let with = |mut schema: Value| {
        schema["$defs"] = definitions.clone();
        reply(schema)
    };
    with(json!({"$ref": "#/$defs/a"})).accepts(r#"{"a": 1}"#).refuses(r#"{"a": 1¦, "b": 1}"#);
    with(json!({"allOf": [{"$ref": "#/$defs/a"}, listing("c")]}))
        .accepts(r#"{"a": 1, "c": 2}"#)
        .refuses(r#"{"a": 1, "¦b": 1}"#);
    // The same target alone and as a part.
    with(json!({"type": "object", "required": ["x", "y"], "properties": {
            "x": {"$ref": "#/$defs/a"},
            "y": {"$ref": "#/$defs/a", "properties": {"d": {"type": "integer"}}}}}))
    .accepts(r#"{"x": {"a": 1}, "y": {"a": 1, "d": 2}}"#)
    .refuses(r#"{"x": {"a": 1¦, "d": 2}}"#)
    .refuses(r#"{"x": {"a": 1}, "y": {"a": 1, "¦b": 2}}"#);
    with(json!({"properties": {"k": {"type": "integer"}}, "type": "object", "required": ["k"],
            "anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}))
    .accepts(r#"{"k": 0, "a": 1}"#)
    .refuses(r#"{"k": 0, "a": 1¦, "b": 1}"#);
    with(json!({"$ref": "#/$defs/list"}))
        .accepts(r#"{"value": 1, "next": {"value": 2, "next": null}}"#)
        .refuses(r#"{"value": 1, "next": {"value": 2, "next": null¦, "more": 1}}"#);
}

#[test]
fn unevaluated_properties() {
    let both = json!({"allOf": [requiring("a"), listing("b")]});
    let mut schema = both.clone();
    schema["unevaluatedProperties"] = false.into();
    reply(schema).accepts(r#"{"a": 1, "b": 2}"#).refuses(r#"{"a": 1, "¦c": 1}"#);
    let mut schema = both;
    schema["unevaluatedProperties"] = true.into();
    reply(schema).accepts(r#"{"a": 1, "c": 1}"#);
    reply(json!({"type": "object", "unevaluatedProperties": false}))
        .accepts("{}")
        .refuses(r#"{¦"a": 1}"#);
}

/// A keyword that is not enforced may need the names that it lists.
#[test]
fn names_in_dropped_keywords_are_allowed() {
    let mut schema = requiring("kind");
    schema["if"] = json!({"properties": {"kind": {"const": 1}}});
    schema["then"] = json!({"properties": {"more": {"type": "string"}}, "required": ["more"]});
    schema["dependentRequired"] = json!({"kind": ["other"]});
    let mut case = reply(schema.clone());
    case.strict = false;
    case.accepts(r#"{"kind": 1, "other": 1, "more": "x"}"#).refuses(r#"{"kind": 1, "¦x": 1}"#);
    schema["allOf"] = json!([{"$ref": "https://example.com/schema"}]);
    case.response = Some(schema);
    case.accepts(r#"{"kind": 1, "x": 1}"#);
}

#[test]
fn other_encodings() {
    let schema = json!({"type": "object", "required": ["o"], "properties": {"o": requiring("a")}});
    let mut case = GrammarCase::new(qwen_xml(), ToolChoice::Required);
    case.tools = vec![tool("f", schema.clone())];
    let call = |value: &str| {
        format!(
            "<tool_call>\n<function=f>\n<parameter=o>\n{value}\n</parameter>\n</function>\n</tool_call>"
        )
    };
    case.accepts(&call(r#"{"a": 1}"#)).refuses(&call(r#"{"a": 1¦, "b": 2}"#));
    let mut case = GrammarCase::new(gemma4(), ToolChoice::Required);
    case.tools = vec![tool("f", json!({"allOf": [requiring("a"), listing("b")]}))];
    case.compile();
}

/// Closing takes time linear in the size of common schemas, and is given up for others.
#[test]
fn many_names() {
    let names = |prefix: &str| -> Value {
        let names =
            (0..1_000).map(|index| (format!("{prefix}{index}"), json!({"type": "integer"})));
        Value::Object(names.collect())
    };
    let definitions = json!({"many": {"type": "object", "properties": names("a")}});
    let part =
        json!({"allOf": [{"$ref": "#/$defs/many"}, {"properties": {"own": {"type": "integer"}}}]});
    let members = (0..1_000).map(|index| (format!("m{index}"), part.clone()));
    let members = Value::Object(members.collect());
    let mut case = reply(json!({"type": "object", "properties": members, "$defs": definitions}));
    assert_eq!(
        case.build().expect_err("too many").details().unwrap()["reason"],
        "too many properties are listed to exclude all others"
    );
    case.strict = false;
    let relaxed = case.build().unwrap().relaxed;
    assert!(relaxed.iter().take(200).all(|relaxed| relaxed.keyword == "properties"));
    assert!(relaxed.len() < 300, "{}", relaxed.len());
}
