//! Tests violations by path and keyword, and hostile schemas.

use super::*;

fn problems_of(schema: &Value, value: &Value) -> Vec<String> {
    let problems = SchemaChecker::new().check(schema, value);
    let text = |problem: &KeywordProblem| {
        let mark = if problem.unchecked { "?" } else { "" };
        format!("{mark}{}:{}", problem.path, problem.keyword)
    };
    problems.iter().map(text).collect()
}

/// Each expected item is `path:keyword` for a violation or `?path:keyword` for an unchecked
/// keyword.
#[track_caller]
fn check(schema: Value, value: Value, expected: &[&str]) {
    assert_eq!(problems_of(&schema, &value), expected, "{value} in {schema}");
}

#[test]
fn types_and_constants() {
    check(json!({"type": "integer"}), json!(1), &[]);
    check(json!({"type": "integer"}), serde_json::from_str("1.0").unwrap(), &[]);
    check(json!({"type": "integer"}), json!(1.5), &[":type"]);
    check(json!({"type": ["string", "null"]}), json!(null), &[]);
    check(json!({"type": ["string", "null"]}), json!(false), &[":type"]);
    check(json!({"type": "any"}), json!(1), &["?:type"]);
    check(
        json!({"enum": [1, "a", {"b": [1]}]}),
        serde_json::from_str(r#"{"b": [1.0]}"#).unwrap(),
        &[],
    );
    check(json!({"enum": ["a"]}), json!("b"), &[":enum"]);
    check(json!({"type": "array", "enum": ["a"]}), json!(["a"]), &["?:enum"]);
    check(json!({"type": "string", "enum": ["a", 1]}), json!("b"), &[":enum"]);
    check(json!({"const": {"a": 1, "b": 2}}), json!({"b": 2, "a": 1}), &[]);
    check(json!({"const": 1}), json!("1"), &[":const"]);
    check(json!(true), json!(1), &[]);
    check(json!(false), json!(1), &[":"]);
    check(json!({"properties": {"a": 3}}), json!({"a": 1}), &["?/properties/a:"]);
}

#[test]
fn objects() {
    let schema = json!({"properties": {"a": {"type": "integer"}, "b/c": {"type": "string"}}, "required": ["a", "x"],
        "additionalProperties": false});
    check(schema.clone(), json!({"a": 1, "x": 2}), &["/x:additionalProperties"]);
    check(schema, json!({"a": "1", "b/c": 2}), &["/a:type", "/b~1c:type", ":required"]);
    check(
        json!({"patternProperties": {"^x": {"type": "null"}}, "additionalProperties": {"type": "string"}}),
        json!({"xa": 1, "y": 1}),
        &["/xa:type", "/y:type"],
    );
    check(json!({"propertyNames": {"maxLength": 1}}), json!({"ab": 1}), &["/ab:maxLength"]);
    check(json!({"minProperties": 1}), json!({}), &[":minProperties"]);
    check(json!({"dependentRequired": {"a": ["b"]}}), json!({"a": 1}), &[":dependentRequired"]);
    check(json!({"dependencies": {"a": {"required": ["b"]}}}), json!({"a": 1}), &[":required"]);
    check(json!({"dependentSchemas": {"b": false}}), json!({"a": 1}), &[]);
}

#[test]
fn arrays() {
    check(json!({"items": {"type": "integer"}}), json!([1, "a", 2, null]), &["/1:type", "/3:type"]);
    check(json!({"prefixItems": [{"type": "string"}], "items": false}), json!(["a", 1]), &["/1:"]);
    check(
        json!({"items": [{"type": "string"}], "additionalItems": {"type": "null"}}),
        json!([1, null, 2]),
        &["/0:type", "/2:type"],
    );
    check(json!({"additionalItems": false}), json!([1]), &[]);
    check(
        json!({"uniqueItems": true}),
        serde_json::from_str("[1, 2, 1.0]").unwrap(),
        &[":uniqueItems"],
    );
    check(json!({"contains": {"const": 1}}), json!([2, 3]), &[":contains"]);
    check(json!({"contains": {"const": 1}, "minContains": 0}), json!([2]), &[]);
    check(json!({"contains": {"const": 1}, "maxContains": 1}), json!([1, 1]), &[":maxContains"]);
    check(json!({"minItems": 2, "maxItems": 3}), json!([1]), &[":minItems"]);
}

#[test]
fn numbers_and_text() {
    check(json!({"multipleOf": 0.01}), json!(19.99), &[]);
    check(json!({"multipleOf": 0}), json!(1), &["?:multipleOf"]);
    check(json!({"minimum": 0, "exclusiveMaximum": 10}), json!(10), &[":exclusiveMaximum"]);
    check(json!({"minimum": 0, "exclusiveMinimum": true}), json!(0), &[":minimum"]);
    check(json!({"maximum": 1}), serde_json::from_str("1e999999").unwrap(), &["?:maximum"]);
    check(
        json!({"minimum": serde_json::from_str::<Value>("12345678901234567890123").unwrap()}),
        json!(1),
        &[":minimum"],
    );
    check(json!({"minLength": 2, "maxLength": 2}), json!("äö"), &[]);
    check(json!({"pattern": "^a"}), json!("ba"), &[":pattern"]);
    check(json!({"pattern": "(?=a)"}), json!("ba"), &["?:pattern"]);
    check(json!({"format": "email"}), json!("x"), &[]);
    check(json!({"minLength": 2}), json!(1), &[]);
}

#[test]
fn combinations() {
    check(json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), json!(1), &[":anyOf"]);
    check(json!({"oneOf": [{"type": "number"}, {"type": "integer"}]}), json!(1), &[":oneOf"]);
    check(json!({"allOf": [{"type": "string"}, {"minLength": 3}]}), json!("a"), &[":minLength"]);
    check(json!({"not": {"type": "string"}}), json!("a"), &[":not"]);
    let conditional = json!({"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"required": ["c"]}});
    check(conditional.clone(), json!({"a": 1}), &[":required"]);
    check(conditional, json!({"c": 1}), &[]);
    // An undecided keyword is neither valid nor invalid.
    check(json!({"not": {"pattern": "(?=a)"}}), json!("b"), &["?/not:pattern"]);
    check(
        json!({"anyOf": [{"type": "null"}, {"pattern": "(?=a)"}]}),
        json!("b"),
        &["?/anyOf/1:pattern"],
    );
    check(
        json!({"oneOf": [{"type": "string"}, {"pattern": "(?=a)"}]}),
        json!("b"),
        &["?/oneOf/1:pattern"],
    );
}

#[test]
fn unevaluated() {
    let schema = json!({"allOf": [{"properties": {"a": true}}], "anyOf": [{"properties": {"b": {"const": 1}}}, true],
        "unevaluatedProperties": false});
    check(schema.clone(), json!({"a": 1, "b": 1}), &[]);
    check(
        schema,
        json!({"b": 2, "c": 1}),
        &["/b:unevaluatedProperties", "/c:unevaluatedProperties"],
    );
    check(
        json!({"prefixItems": [true], "unevaluatedItems": {"type": "string"}}),
        json!([1, 2]),
        &["/1:type"],
    );
    check(
        json!({"$ref": "#/$defs/a", "unevaluatedItems": false, "$defs": {"a": {"items": true}}}),
        json!([1]),
        &[],
    );
}

#[test]
fn references() {
    let tree = json!({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties":
        {"next": {"$ref": "#/$defs/node"}}, "required": ["v"]}}});
    check(tree, json!({"v": 1, "next": {"next": 3}}), &["/next/next:type", "/next:required"]);
    check(json!({"$ref": "http://127.0.0.1/x"}), json!(1), &["?:$ref"]);
    check(json!({"$ref": "#/nowhere"}), json!(1), &["?:$ref"]);
    check(json!({"$ref": "#name"}), json!(1), &["?:$ref"]);
    check(json!({"$dynamicRef": "#name"}), json!(1), &["?:$dynamicRef"]);
}

/// Checks that validation ends and reports something unchecked, because its steps are used up or a
/// part of the schema is skipped.
#[track_caller]
fn check_hostile(schema: Value, value: Value) {
    let found = problems_of(&schema, &value);
    assert!(found.iter().any(|found| found.starts_with('?')), "{found:?}");
}

#[test]
fn hostile_schemas() {
    check_hostile(json!({"$ref": "#"}), json!(1));
    check_hostile(json!({"not": {"$ref": "#"}}), json!(1));
    let twice = json!({"$ref": "#"});
    check_hostile(json!({"allOf": [twice, twice]}), json!(1));
    check_hostile(json!({"unevaluatedProperties": {}, "allOf": [twice, twice]}), json!({"a": 1}));
    let mut definitions = serde_json::Map::new();
    for level in 0..40 {
        let next = json!({"$ref": format!("#/$defs/{}", level + 1)});
        definitions.insert(level.to_string(), json!({"anyOf": [next, next]}));
    }
    definitions.insert(
        "40".to_owned(),
        json!({"required": (0..1000).map(|n| n.to_string()).collect::<Vec<_>>()}),
    );
    check_hostile(json!({"$ref": "#/$defs/0", "$defs": definitions}), json!({}));
    let deeper = json!({"properties": {"a": {"$ref": "#"}}, "required": ["a"]});
    let nested = (0..100).fold(json!(1), |inner, _| json!({"a": inner}));
    check_hostile(json!({"allOf": [deeper, deeper]}), nested);
    check_hostile(json!({"pattern": "((a{1000}){1000}){1000}"}), json!("a"));
    check_hostile(json!({"pattern": "(a|b|ab)*c{500}"}), json!("ab".repeat(100_000)));
    let patterns = (0..2000).map(|n| (format!("\\p{{L}}{{{n}}}"), json!({})));
    check_hostile(
        json!({"patternProperties": patterns.collect::<serde_json::Map<_, _>>()}),
        json!({"é": 1}),
    );
    check_hostile(json!({"uniqueItems": true}), (0..10_000).collect());
    check_hostile(
        json!({"multipleOf": serde_json::from_str::<Value>("1e-300000000").unwrap()}),
        json!(1),
    );
}

fn call(name: &str, arguments: &str) -> crate::output::ToolCall {
    crate::output::ToolCall {
        id: "1".to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
    }
}

#[test]
fn messages() {
    let parameters = json!({"properties": {"city": {"type": "string"}}, "required": ["city"]});
    let tools =
        [json!({"type": "function", "function": {"name": "weather", "parameters": parameters}})];
    let calls = vec![
        call("weather", r#"{"city": 3}"#),
        call("other", "{}"),
        call("weather", "{\"ci"),
        call("weather", "{}"),
    ];
    let parsed = ParsedReply { tool_calls: calls, ..ParsedReply::default() };
    let found: Vec<Value> = check_message(&parsed, "", &tools, Some(&ResponseFormat::JsonObject))
        .iter()
        .map(|violation| Diagnostic::from(violation).to_json())
        .collect();
    let violation = |call: usize, message: &str, path: &str, keyword: &str| json!({"code": "schema_violation", "message": message, "tool": "weather", "call": call, "path": path, "keyword": keyword});
    let expected = [
        violation(0, "weather: /city: type: it is not of type string", "/city", "type"),
        violation(3, "weather: /: required: \"city\" is missing", "", "required"),
    ];
    assert_eq!(found, expected);
    let text = |content: &str, response: &ResponseFormat| {
        let parsed = ParsedReply { content: content.to_owned(), ..ParsedReply::default() };
        check_message(&parsed, "", &[], Some(response))
            .iter()
            .map(Violation::to_string)
            .collect::<Vec<_>>()
    };
    let list =
        ResponseFormat::JsonSchema { schema: json!({"items": {"type": "null"}}), strict: true };
    assert_eq!(text(" [null, 1]\n", &list), ["response_format: /1: type: it is not of type null"]);
    assert_eq!(text("[null", &list), ["response_format: /: the text is not JSON"]);
    assert_eq!(
        text("[]", &ResponseFormat::JsonObject),
        ["response_format: /: type: it is not of type object"]
    );
    assert_eq!(text("{}", &ResponseFormat::JsonObject), [""; 0]);
    let rest = ParsedReply { content: "null]".to_owned(), ..ParsedReply::default() };
    assert_eq!(check_message(&rest, "[null, ", &[], Some(&list)), []);
    assert_eq!(check_message(&rest, "[1, ", &[], Some(&list)).len(), 1);
}

#[test]
fn required_calls() {
    let parsed = ParsedReply { tool_calls: vec![call("f", "{}")], ..ParsedReply::default() };
    let unmet = |parsed: &ParsedReply, required: ToolChoice| {
        check_tool_choice(parsed, &required).map(|diagnostic| diagnostic.code)
    };
    for (tool_choice, with_call, without) in [
        (ToolChoice::Auto, None, None),
        (ToolChoice::None, None, None),
        (ToolChoice::Required, None, Some("required_not_met")),
        (ToolChoice::Function("f".into()), None, Some("required_not_met")),
        (ToolChoice::Function("g".into()), Some("required_not_met"), Some("required_not_met")),
    ] {
        assert_eq!(
            (unmet(&parsed, tool_choice.clone()), unmet(&ParsedReply::default(), tool_choice)),
            (with_call, without)
        );
    }
}
