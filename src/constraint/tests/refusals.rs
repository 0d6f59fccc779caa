//! Tests schemas that cannot be enforced. With `strict` they are refused before anything is
//! generated, otherwise they are relaxed.

use super::families::{gemma4, hermes, minimax_m3, qwen_xml};
use super::*;

/// Strict: the error has this message. Otherwise only this keyword is dropped, and the rest
/// compiles, whether a call is forced or not.
#[track_caller]
fn check(format: Format, schema: Value, expected: &str, keyword: &str) {
    for choice in [ToolChoice::Required, ToolChoice::Auto] {
        let mut case = GrammarCase::new(format.clone(), choice);
        case.tools = vec![two_tools().remove(0), tool("f", schema.clone())];
        assert_eq!(dropped(&case), [(Some("f".to_owned()), keyword.to_owned())]);
        case.compile();
        case.tools[1]["function"]["strict"] = true.into();
        let error = case.build().expect_err("strict");
        assert_eq!(error.code(), Code::SchemaUnsupported);
        assert_eq!(error.message(), format!("tools[1].function.parameters (f): {expected}"));
    }
}

/// The dropped keywords, each with its tool.
fn dropped(case: &GrammarCase) -> Vec<(Option<String>, String)> {
    let relaxed = case.build().unwrap().relaxed;
    relaxed.into_iter().map(|relaxed| (relaxed.tool, relaxed.keyword)).collect()
}

fn property(schema: Value) -> Value {
    json!({"type": "object", "properties": {"a": schema}})
}

#[test]
fn keywords() {
    let json = |schema: Value, path: &str, reason: &str, keyword: &str| {
        check(hermes(), property(schema), &format!("/properties/a{path}: {reason}"), keyword);
    };
    const NEVER: &str = "keyword cannot be enforced";
    for keyword in ["not", "contains", "propertyNames", "unevaluatedProperties", "if"] {
        json(json!({ keyword: {"type": "string"} }), &format!("/{keyword}"), NEVER, keyword);
    }
    json(json!({"uniqueItems": true, "type": "array"}), "/uniqueItems", NEVER, "uniqueItems");
    json(
        json!({"dependentRequired": {"a": ["b"]}}),
        "/dependentRequired",
        NEVER,
        "dependentRequired",
    );
    json(json!({"type": "any"}), "/type", "is not a JSON type", "type");
    json(json!({"enum": []}), "/enum", "it has no values", "enum");
    json(
        json!({"type": "array", "items": {"type": "string"}, "enum": ["a"]}),
        "/enum",
        "none of its values has the schema's type; the values of items belong into `items`",
        "enum",
    );
    json(
        json!({"type": "string", "pattern": "(?=a)b"}),
        "/pattern",
        "it has a look-around",
        "pattern",
    );
    json(
        json!({"type": "string", "pattern": "\\bfoo"}),
        "/pattern",
        "it has a word boundary",
        "pattern",
    );
    json(
        json!({"type": "string", "pattern": "(a)\\1"}),
        "/pattern",
        "it has a back-reference",
        "pattern",
    );
    json(json!({"$ref": "https://example.com/a"}), "/$ref", "refers to another document", "$ref");
    json(json!({"$ref": "#/$defs/none"}), "/$ref", "refers to nothing", "$ref");
    json(
        json!({"$ref": "#anchor"}),
        "/$ref",
        "refers to an anchor; only `#/…` is followed",
        "$ref",
    );
    json(
        json!({"minLength": 3, "maxLength": 2}),
        "/maxLength",
        "contradicts the lower bound",
        "maxLength",
    );
    json(
        json!({"oneOf": [{"minimum": 1}, {"maximum": 2}]}),
        "/oneOf",
        "its alternatives may overlap",
        "oneOf",
    );
    let counted = "cannot be enforced if a listed property is optional";
    json(
        json!({"minProperties": 1, "properties": {"x": {}}}),
        "/minProperties",
        counted,
        "minProperties",
    );
    let missing = json!({"properties": {"x": false}, "required": ["x"]});
    json(missing, "/required", "a required property is not allowed", "required");
}

#[test]
fn references_without_end() {
    let endless = "refers to itself, and has no finite value";
    let schema =
        json!({"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}});
    check(hermes(), schema, &format!("/$defs/a: {endless}"), "");
    let schema = json!({"properties": {"a": {"$ref": "#/$defs/a"}},
                        "$defs": {"a": {"properties": {"b": {"$ref": "#/$defs/a"}}, "required": ["b"], "type": "object"}}});
    check(hermes(), schema, &format!("/$defs/a: {endless}"), "");
}

#[test]
fn size() {
    let deep = (0..200).fold(json!({}), |inner, _| json!({"properties": {"a": inner}}));
    let place = "/properties/a".repeat(65);
    check(hermes(), deep, &format!("{place}: is nested more than 64 levels deep"), "");
    let large = json!({"properties": {"a": {"enum": (0..60_000).collect::<Vec<_>>()}}});
    check(hermes(), large, "/: has more than 50000 schemas and values", "");
    let mut case = GrammarCase::new(hermes(), ToolChoice::Required);
    case.tools = vec![tool("f", json!({"type": "string"}))];
    let expected =
        "tools[0].function.parameters (f): /type: arguments must be an object, not \"string\"";
    assert_eq!(case.build().expect_err("no object").message(), expected);
}

#[test]
fn other_encodings() {
    let other = "cannot be merged in this model's argument encoding";
    let named = |pattern: &str| json!({"type": "object", "patternProperties": {pattern: {}}});
    let all_of = json!({"allOf": [named("^a"), named("^b")]});
    check(gemma4(), property(all_of), &format!("/properties/a/allOf: {other}"), "allOf");
    let anchors = json!({"type": "string", "pattern": "^a|b$"});
    for format in [gemma4(), qwen_xml(), minimax_m3()] {
        check(
            format,
            property(anchors.clone()),
            "/properties/a/pattern: it has an anchor in one alternative",
            "pattern",
        );
    }
    let long = json!({"type": "string", "maxLength": 2001});
    check(
        qwen_xml(),
        property(long),
        "/properties/a/maxLength: more than 2000 characters cannot be counted",
        "maxLength",
    );
    let mixed = json!({"type": ["string", "array"], "pattern": "^x$"});
    check(
        qwen_xml(),
        property(mixed),
        &format!(
            "/properties/a/type: {} in this model's argument encoding",
            super::super::raw_text::MIXED
        ),
        "type",
    );
}

/// An unknown format is an annotation, so it is never refused. A known one is reported where it
/// cannot be enforced.
#[test]
fn formats() {
    for format in ["path", "password", "binary", "uuid4", "regex", "uri-reference", "int32"] {
        let schema = json!({"type": "string", "format": format});
        for strict in [false, true] {
            for model in [hermes(), qwen_xml(), gemma4()] {
                let mut case = GrammarCase::new(model, ToolChoice::Required);
                case.tools = vec![tool("f", property(schema.clone()))];
                case.tools[0]["function"]["strict"] = strict.into();
                assert_eq!(dropped(&case), [], "{format}");
                case.compile();
            }
            let mut case = GrammarCase::new(hermes(), ToolChoice::None);
            (case.response, case.strict) = (Some(property(schema.clone())), strict);
            assert_eq!(dropped(&case), []);
            case.accepts(r#"{"a": "any text"}"#);
        }
    }
    let mut case = GrammarCase::new(qwen_xml(), ToolChoice::Required);
    case.tools = vec![tool("f", property(json!({"type": "string", "format": "email"})))];
    case.tools[0]["function"]["strict"] = true.into();
    assert_eq!(dropped(&case), [(Some("f".to_owned()), "format".to_owned())]);
    case.compile();
    let mut case = GrammarCase::new(hermes(), ToolChoice::None);
    case.response = Some(property(json!({"type": "string", "format": "date"})));
    case.accepts(r#"{"a": "2026-01-31"}"#).refuses(r#"{"a": "¦now"}"#);
}

/// The schema of a response is relaxed unless it is strict.
#[test]
fn responses() {
    let list = json!({"type": "array", "items": {"type": "integer"}, "uniqueItems": true});
    let mut case = GrammarCase::new(hermes(), ToolChoice::None);
    case.response = Some(property(list));
    assert_eq!(dropped(&case), [(None, "uniqueItems".to_owned())]);
    case.accepts(r#"{"a": [1, 1]}"#).refuses(r#"{"a": [¦"x"]}"#);
    case.strict = true;
    assert_eq!(
        case.build().expect_err("strict").message(),
        "response_format.json_schema.schema: /properties/a/uniqueItems: keyword cannot be enforced"
    );
}

/// Arguments that are one of several lists of parameters, in an encoding that writes each parameter
/// separately.
#[test]
fn several_lists_of_parameters() {
    let list = |name: &str, kind: &str| {
        json!({"type": "object", "required": [name, "k"],
        "properties": {name: {"type": kind}, "k": {"type": "integer"}}})
    };
    let schema = json!({"type": "object", "anyOf": [list("a", "boolean"), list("b", "integer")]});
    check(qwen_xml(), schema.clone(), "/: its parameters are not one list of properties", "");
    let mut case = GrammarCase::new(qwen_xml(), ToolChoice::Required);
    case.tools = vec![tool("f", schema)];
    let call = |parameters: &str| {
        format!("<tool_call>\n<function=f>\n{parameters}</function>\n</tool_call>")
    };
    let parameter =
        |name: &str, value: &str| format!("<parameter={name}>\n{value}\n</parameter>\n");
    let k = parameter("k", "1");
    case.accepts(&call(&format!("{}{k}", parameter("a", "true"))));
    case.accepts(&call(&format!("{}{k}", parameter("b", "2"))));
    case.refuses(&call(&format!("{}{k}", "<parameter=¦c>\n")));
}

/// Every keyword that the table allows must compile in llguidance and compute its first mask.
#[test]
fn allowed_keywords_compile() {
    let schemas = [
        json!({"type": "array", "items": {"$ref": "#"}}),
        json!({"properties": {"a": {"$ref": "#"}}, "type": "object"}),
        json!({"properties": {"a~b": {"type": "string"}, "c": {"$ref": "#/properties/a~0b"}}}),
        json!({"items": [{"type": "string"}], "additionalItems": false, "type": "array"}),
        json!({"prefixItems": [{"type": "string"}], "items": false, "type": "array"}),
        json!({"properties": {"a": true, "b": false}}),
        json!({"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"required": ["a"]}]}),
        json!({"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "object", "properties": {"k": {"const": 1}}, "required": ["k"]},
               {"type": "object", "properties": {"k": {"const": 2}}, "required": ["k"]}]}),
        json!({"type": "string", "pattern": "a|\\d+", "maxLength": 100000}),
        json!({"type": "number", "exclusiveMinimum": 0, "maximum": 10.5, "multipleOf": 0.5}),
        json!({"type": "object", "patternProperties": {"^x-": {"type": "string"}}, "additionalProperties": false}),
        json!({"type": "object", "minProperties": 1, "maxProperties": 3}),
        json!({"type": "string", "format": "uuid", "x-mine": 1, "nullable": true, "title": "t", "default": 3}),
        json!({"enum": (0..5000).collect::<Vec<_>>()}),
        json!({"type": "integer", "format": "int32"}),
        json!(true),
    ];
    for schema in schemas {
        let mut case = GrammarCase::new(hermes(), ToolChoice::None);
        case.response = Some(schema.clone());
        case.compile();
        let mut case = GrammarCase::new(hermes(), ToolChoice::Required);
        // References are relative to the outermost schema.
        if !schema.to_string().contains("#/") {
            case.tools = vec![tool("f", json!({"properties": {"a": schema}}))];
            case.compile();
        }
    }
}

/// The reasons for the table: llguidance fails on these schemas, or would reach a dead end.
#[test]
fn refused_keywords_fail_in_llguidance() {
    let grammars = grammars();
    let compiles = |schema: Value| {
        grammars.compile(&format!("start: %json {schema}"), &CompileTime::unlimited()).is_ok()
    };
    for keyword in ["not", "contains", "propertyNames", "unevaluatedProperties", "if"] {
        assert!(!compiles(json!({ keyword: {"type": "string"} })), "{keyword}");
    }
    assert!(!compiles(json!({"enum": []})));
    assert!(!compiles(json!({"type": "any"})));
    assert!(!compiles(json!({"type": "string", "format": "colour"})));
    assert!(!compiles(json!({"type": "string", "pattern": "(?=a)b"})));
    assert!(!compiles(json!({"type": "string", "pattern": "\\bfoo"})));
    assert!(!compiles(json!({"$ref": "#/$defs/none"})));
    assert!(!compiles(json!({"$ref": "https://example.com/a"})));
    assert!(!compiles(
        json!({"oneOf": [{"type": "string", "minLength": 1}, {"type": "string", "maxLength": 2}]})
    ));
    assert!(!compiles(json!({"minLength": 3, "maxLength": 2, "type": "string"})));
    assert!(!compiles(
        json!({"minProperties": 1, "type": "object", "properties": {"x": {}, "y": {}}})
    ));
    assert!(!compiles(json!({"properties": {"c": {"$ref": "#/properties/a~0b"}, "a~b": {}}})));
}

#[test]
fn replies_that_cannot_be_expressed() {
    let mut case = GrammarCase::new(hermes(), ToolChoice::Required);
    case.format.calls = None;
    let expected = "tool_choice: a call cannot be forced, because the tool-call format of this model is unknown";
    assert_eq!(case.build().expect_err("no format").message(), expected);
    case.choice = ToolChoice::Auto;
    assert_eq!(case.build().unwrap(), ReplyGrammar::default());
    let mut case = GrammarCase::new(gemma4(), ToolChoice::Required);
    case.tools = vec![tool("f", json!({"properties": {"a:b": {}}, "required": ["a:b"]}))];
    let error = case.build().expect_err("a key with a colon");
    assert_eq!(
        error.message(),
        "tools[0].function.parameters (f): /properties/a:b: the key \"a:b\" cannot be written in \
         this model's call format; rename it"
    );
    case.choice = ToolChoice::Auto;
    let grammar = case.build().unwrap();
    assert!(grammar.lark.is_none() && grammar.relaxed.len() == 1, "{grammar:?}");
    case.tools = two_tools();
    case.grammar = Some("start: \"x\"");
    assert_eq!(case.build().expect_err("a grammar and tools").code(), Code::InvalidRequest);
}

/// Where names are strings of JSON, they have JSON's escapes.
#[test]
fn names_with_quotes_and_backslashes() {
    let mut case = GrammarCase::new(hermes(), ToolChoice::Required);
    case.tools = vec![tool("say \"hi\"\\n", json!({"properties": {"k\"": {"type": "integer"}}}))];
    case.tools[0]["function"]["strict"] = true.into();
    case.accepts(
        "<tool_call>\n{\"name\": \"say \\\"hi\\\"\\\\n\", \"arguments\": {\"k\\\"\": 1}}\n</tool_call>",
    );
    case.refuses("<tool_call>\n{\"name\": \"say ¦\"hi\"");
}

/// An error that only llguidance finds names the tool or the response. Unless its schema is strict,
/// everything else is still enforced.
#[test]
fn errors_of_the_compiler() {
    let bad =
        json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "(unclosed"}}});
    let mut case = GrammarCase::new(hermes(), ToolChoice::Required);
    case.tools.push(tool("bad", bad.clone()));
    case.tools[2]["function"]["strict"] = true.into();
    let error = case.try_compile().err().expect("strict");
    assert_eq!(error.code(), Code::SchemaUnsupported);
    assert!(
        error.message().starts_with("tools[2].function.parameters (bad): cannot be enforced: "),
        "{}",
        error.message()
    );
    case.tools[2]["function"]["strict"] = false.into();
    let relaxed_paths = |case: &GrammarCase| {
        let relaxed = case.try_compile().unwrap().relaxed;
        relaxed.into_iter().map(|relaxed| relaxed.path).collect::<Vec<_>>()
    };
    for choice in [ToolChoice::Required, ToolChoice::Auto] {
        case.choice = choice;
        assert_eq!(relaxed_paths(&case), ["tools[2].function.parameters: /properties/a"]);
    }
    // The other parameters are still enforced.
    let properties = &mut case.tools[2]["function"]["parameters"]["properties"];
    properties["b"] = json!({"enum": ["x"]});
    case.tools[2]["function"]["parameters"]["required"] = json!(["a", "b"]);
    assert_eq!(relaxed_paths(&case), ["tools[2].function.parameters: /properties/a"]);
    let lark = case.try_compile().unwrap().lark.expect("a grammar");
    assert!(lark.contains(r#""b":{"enum":["x"]}"#), "{lark}");
    case.tools.truncate(2);
    case.response = Some(bad);
    assert_eq!(relaxed_paths(&case), ["response_format.json_schema.schema: /"]);
    case.strict = true;
    let error = case.try_compile().err().expect("a schema");
    assert!(
        error.message().starts_with("response_format.json_schema.schema: cannot be enforced: "),
        "{}",
        error.message()
    );
    case.response = None;
    case.choice = ToolChoice::None;
    case.grammar = Some("start: nothing");
    let error = case.try_compile().err().expect("a grammar");
    assert!(error.message().starts_with("grammar: cannot be enforced: "), "{}", error.message());
}

/// Many tools with different schemas.
#[test]
fn many_tools() {
    for format in [hermes(), qwen_xml(), gemma4(), minimax_m3()] {
        let mut case = GrammarCase::new(format, ToolChoice::Auto);
        let properties = |tool: usize| {
            let kinds = ["string", "number", "boolean"].into_iter().cycle().take(10).enumerate();
            let names =
                kinds.map(|(name, kind)| (format!("p{tool}_{name}"), json!({ "type": kind })));
            Value::Object(names.collect())
        };
        case.tools = (0..128)
            .map(|index| {
                tool(
                    &format!("t{index}"),
                    json!({"properties": properties(index), "required": [format!("p{index}_0")]}),
                )
            })
            .collect();
        // The second grammar is a copy of the cached one, in its start state.
        let lark = case.build().unwrap().lark.unwrap();
        let grammars = grammars();
        for _ in 0..2 {
            let mut constraint = grammars.compile(&lark, &CompileTime::unlimited()).unwrap();
            constraint.accept(i32::from(b'x')).unwrap();
            assert!(constraint.may_end().unwrap());
        }
    }
}

/// A grammar can be too large at a place that only the reply reaches.
#[test]
fn a_grammar_that_fails_within_a_reply_does_not_end_it() {
    let rules = |write: &dyn Fn(usize) -> String, between: &str| {
        (0..2_100).map(write).collect::<Vec<_>>().join(between)
    };
    let lark = format!(
        "start: \"a\" rest\nrest: {}\n{}",
        rules(&|rule| format!("r{rule}"), " | "),
        rules(&|rule| format!("r{rule}: \"{rule}\" \"x\" start?"), "\n"),
    );
    let mut constraint = grammars().compile(&lark, &CompileTime::unlimited()).unwrap();
    constraint.mask().unwrap();
    let error = constraint.accept(i32::from(b'a')).unwrap_err();
    assert_eq!(error.code(), Code::InferenceFailed);
    assert_eq!(error.details().unwrap()["kind"], "grammar_failed");
    let message = "the grammar failed while sampling, use a simpler one: Parser Error: Current row has 2101 items";
    assert!(error.message().starts_with(message), "{}", error.message());
    // Nothing that asks later takes the text for a complete one.
    assert!(!constraint.is_finished());
    assert!(constraint.may_end().is_err() && constraint.mask().is_err());
    assert!(constraint.validate(i32::from(b'1')).is_err());
}
