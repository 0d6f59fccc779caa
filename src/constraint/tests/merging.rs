//! Schemas with several parts for one value, in encodings that write each property separately.

use super::families::{gemma4, minimax_m3, qwen_xml, required};
use super::*;

fn with(format: Format, schema: Value) -> GrammarCase {
    let mut case = required(format);
    case.tools = vec![tool("f", schema)];
    case.tools[0]["function"]["strict"] = true.into();
    case
}

/// A call of `f` in Gemma's format.
fn call(arguments: &str) -> String {
    format!("<|tool_call>call:f{{{arguments}}}<tool_call|>")
}

/// A tool whose parameter `a` has this schema.
fn gemma(schema: Value) -> GrammarCase {
    let schema = json!({"type": "object", "properties": {"a": schema}, "required": ["a"]});
    with(gemma4(), schema)
}

#[track_caller]
fn check(schema: Value, accepted: &[&str], refused: &[&str]) {
    let case = gemma(schema);
    accepted.iter().for_each(|value| {
        case.accepts(&call(&format!("a:{value}")));
    });
    refused.iter().for_each(|value| {
        case.refuses(&call(&format!("a:{value}")));
    });
}

#[test]
fn types_and_values() {
    check(
        json!({"allOf": [{"type": ["number", "string"]}, {"type": ["integer", "null"]}]}),
        &["1"],
        &["¦null"],
    );
    check(
        json!({"allOf": [{"enum": [1, 2, 30, null]}, {"enum": [30, 2, 4]}, {"minimum": 3}]}),
        &["30"],
        &["¦2"],
    );
    check(
        json!({"type": "integer", "allOf": [{"minimum": 3}, {"maximum": 5}]}),
        &["3", "5"],
        &["¦2", "¦6"],
    );
    check(
        json!({"allOf": [{"enum": ["a", "bb"]}, {"type": "string", "minLength": 2}]}),
        &["<|\"|>bb<|\"|>"],
        &["<|\"|>¦a<|\"|>"],
    );
    check(
        json!({"allOf": [{"type": "string", "pattern": "^[a-c]*$"}, {"pattern": "b$"}, {"pattern": "^a"}]}),
        &["<|\"|>acb<|\"|>"],
        &["<|\"|>¦b<|\"|>", "<|\"|>ab¦d<|\"|>"],
    );
}

#[test]
fn properties_and_items() {
    let part =
        |name: &str, schema: Value| json!({"properties": {name: schema}, "required": [name]});
    let string = json!({"type": "string", "maxLength": 3});
    let integer = part("x", json!({"type": "integer"}));
    let both = json!({"type": "object", "allOf": [integer, part("y", string)]});
    check(
        both,
        &["{x:1,y:<|\"|>abc<|\"|>}"],
        &["{x:1¦}", "{x:1,y:<|\"|>abc¦d<|\"|>}", "{x:¦<|\"|>1<|\"|>}"],
    );
    // A property that both parts describe.
    let most = part("x", json!({"type": "integer", "maximum": 4}));
    let twice = json!({"allOf": [part("x", json!({"minimum": 2})), most]});
    check(twice, &["{x:2}"], &["{x:¦1}", "{x:¦5}", "{¦}"]);
    // What a closed part does not list is excluded.
    let closed = json!({"type": "object", "properties": {"x": {"type": "integer"}},
        "additionalProperties": false});
    let open = json!({"properties": {"x": {"minimum": 3}, "z": {"type": "integer"}}});
    check(json!({"allOf": [closed, open]}), &["{x:3}", "{}"], &["{x:3¦,z:1}", "{x:2¦}"]);
    let lists = json!({"type": "array",
        "allOf": [{"items": {"type": "integer"}}, {"items": {"minimum": 7}, "maxItems": 2}]});
    check(lists, &["[7,8]", "[]"], &["[6¦]", "[7,8¦,9]"]);
}

#[test]
fn references_and_alternatives() {
    let schema = json!({"type": "object", "required": ["n"],
        "properties": {"n": {"$ref": "#/$defs/node", "required": ["id"]}},
        "$defs": {
            "base": {"type": "object",
                "properties": {"id": {"type": "integer"}, "next": {"$ref": "#/$defs/base"}}},
            "node": {"allOf": [{"$ref": "#/$defs/base"},
                {"properties": {"next": {"$ref": "#/$defs/node"}, "on": {"type": "boolean"}}}]}}});
    for format in [gemma4(), qwen_xml(), minimax_m3()] {
        with(format, schema.clone()).compile();
    }
    // A base refers to bases, which have no other properties.
    with(gemma4(), schema)
        .accepts(&call("n:{id:1,next:{id:2,next:{next:{id:3}}},on:false}"))
        .refuses(&call("n:{¦next:{id:1}}"))
        .refuses(&call("n:{id:1,next:{id:2,¦on:true}}"))
        .refuses(&call("n:{id:1,on:¦1}"));
    let alternatives = json!({"type": "object", "required": ["k"],
        "properties": {"k": {"type": "string"}, "v": {"type": "integer"}},
        "anyOf": [
            {"properties": {"k": {"const": "p"}, "v": {"maximum": 3}}},
            {"properties": {"k": {"const": "q"}}, "required": ["v"]},
            {"properties": {"k": {"type": "integer"}}}]});
    check(
        alternatives,
        &["{k:<|\"|>p<|\"|>}", "{k:<|\"|>p<|\"|>,v:3}", "{k:<|\"|>q<|\"|>,v:9}"],
        &["{k:<|\"|>p<|\"|>,v:¦9}", "{k:<|\"|>q<|\"|>¦}", "{k:<|\"|>¦r<|\"|>}", "{k:¦1}"],
    );
}

#[test]
fn parameters_in_elements() {
    let schema = json!({"allOf": [
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        {"properties": {"a": {"maximum": 5}, "b": {"type": "string"}}}]});
    let call =
        |values: &str| format!("<tool_call>\n<function=f>\n{values}</function>\n</tool_call>");
    let a = |value: &str| format!("<parameter=a>\n{value}\n</parameter>\n");
    with(qwen_xml(), schema)
        .accepts(&call(&format!("{}<parameter=b>\nx\n</parameter>\n", a("5"))))
        .refuses(&call(&a("¦6")))
        .refuses(&call("<parameter=¦c>\n"));
}

#[test]
fn contradictions_are_refused_by_name() {
    let error =
        |schema: Value| gemma(schema).build().expect_err("a contradiction").message().to_owned();
    let at = "tools[0].function.parameters (f): /properties/a";
    assert_eq!(
        error(json!({"allOf": [{"type": "string"}, {"type": "integer"}]})),
        format!("{at}/type: \"integer\" contradicts \"string\" of another schema of this value")
    );
    assert_eq!(
        error(json!({"allOf": [{"enum": [1]}, {"const": 2}]})),
        format!("{at}/enum: [2] contradicts [1] of another schema of this value")
    );
    assert_eq!(
        error(json!({"allOf": [{"type": "integer", "minimum": 3}, {"maximum": 2}]})),
        format!("{at}/maximum: contradicts the lower bound of another schema of this value")
    );
    let closed = json!({"type": "object", "properties": {"x": {}}, "additionalProperties": false});
    assert_eq!(
        error(json!({"allOf": [closed, {"required": ["y"]}]})),
        format!("{at}/required: another schema of this value excludes the property \"y\"")
    );
    let inside = |kind: &str| json!({"type": "object", "properties": {"x": {"type": kind}}, "required": ["x"]});
    assert_eq!(
        error(json!({"allOf": [inside("string"), inside("array")]})),
        format!(
            "{at}/properties/x/type: \"array\" contradicts \"string\" of another schema of this value"
        )
    );
    // Without `strict` it is reported, and a property that may be left out is never written.
    let mut case = with(
        gemma4(),
        json!({"type": "object", "properties": {
        "a": {"allOf": [{"type": "string"}, {"type": "integer"}]}, "b": {"type": "integer"}}}),
    );
    case.tools[0]["function"]["strict"] = false.into();
    case.accepts(&call("b:1")).refuses(&call("¦a:1"));
    let relaxed = case.build().unwrap().relaxed;
    assert_eq!(relaxed.iter().map(|relaxed| &*relaxed.keyword).collect::<Vec<_>>(), ["type"]);
}

/// Alternatives multiply, and so do copies of a schema for all other properties. Beyond a limit they
/// are not merged, in bounded time.
#[test]
fn what_is_too_large_is_not_merged() {
    let choice = |index: usize| {
        let required = |name: String| json!({"required": [name]});
        json!({"anyOf": [required(format!("a{index}")), required(format!("b{index}"))]})
    };
    let all: Vec<Value> = (0..40).map(choice).collect();
    let mut case = gemma(json!({"type": "object", "allOf": all}));
    let error = case.build().expect_err("too many").message().to_owned();
    assert!(error.contains("/properties/a/allOf: cannot be merged"), "{error}");
    case.tools[0]["function"]["strict"] = false.into();
    assert_eq!(case.build().unwrap().relaxed.len(), 1);
    let values: Vec<u32> = (0..9_000).collect();
    let names = (0..1_900).map(|index| (format!("n{index}"), json!({})));
    let others = json!({"properties": {"x": {}}, "additionalProperties": {"enum": values}});
    let listing = json!({"properties": names.collect::<serde_json::Map<_, _>>()});
    let case = gemma(json!({"type": "object", "allOf": [others, listing]}));
    let error = case.build().expect_err("too large").message().to_owned();
    assert!(error.contains("/properties/a/allOf: cannot be merged"), "{error}");
}
