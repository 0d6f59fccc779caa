//! Tests schemas and grammars that are deep, long or expensive, from a thread with a small stack.
//! Each case runs in a child process, because a case that fails may end its process.

use std::process::Command;

use super::families::{gemma4, hermes, qwen_xml};
use super::random::WalkRandom;
use super::*;

/// The stack of a host's thread. It is larger here, because the code under test is not fully
/// optimized.
const STACK: usize = 192 << 10;

/// Runs a test again in a child process, on a thread with a small stack.
#[track_caller]
fn in_child(name: &str, run: fn()) {
    const CHILD: &str = "LLB_TEST_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(run).unwrap();
        return thread.join().unwrap();
    }
    let name = format!("constraint::tests::large::{name}");
    let output = Command::new(std::env::current_exe().unwrap())
        .args([name.as_str(), "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {text}{errors}", output.status);
    assert!(text.contains("1 passed"), "{name} did not run: {text}");
}

/// How a large case may end.
#[derive(PartialEq)]
enum Outcome {
    Compiles,
    /// `SCHEMA_UNSUPPORTED` with a message that contains this text.
    Refused(&'static str),
    /// Either.
    Any,
}

#[track_caller]
fn check_case(name: &str, case: &GrammarCase, outcome: &Outcome) {
    match (case.try_compile(), outcome) {
        (Ok(compiled), Outcome::Compiles | Outcome::Any) => {
            let mut constraint = compiled.constraint.expect("a grammar");
            constraint.mask().unwrap();
        }
        (Err(error), Outcome::Refused(text)) => {
            assert_eq!(error.code(), Code::SchemaUnsupported, "{name}");
            assert!(error.message().contains(text), "{name}: {}", error.message());
            assert!(error.message().len() < 5_000, "{name}");
        }
        (Err(error), Outcome::Any) => assert_eq!(error.code(), Code::SchemaUnsupported, "{name}"),
        (Ok(_), Outcome::Refused(_)) => panic!("{name} compiles"),
        (Err(error), Outcome::Compiles) => panic!("{name}: {}", error.message()),
    }
}

/// A chain of definitions. `link` makes the schema of each from the reference to the next.
fn chain(length: usize, link: fn(Value) -> Value) -> Value {
    let reference = |index: usize| json!({ "$ref": format!("#/$defs/r{index}") });
    let mut defs: serde_json::Map<String, Value> =
        (0..length).map(|index| (format!("r{index}"), link(reference(index + 1)))).collect();
    defs.insert(format!("r{length}"), json!({"type": "string"}));
    json!({"type": "object", "properties": {"a": reference(0)}, "required": ["a"], "$defs": defs})
}

fn nested(levels: usize, wrap: fn(Value) -> Value) -> Value {
    (0..levels).fold(json!({"type": "integer"}), |inner, _| wrap(inner))
}

#[test]
fn schemas() {
    in_child("schemas", || {
        let properties = |count: usize| {
            let properties = (0..count).map(|index| (format!("p{index}"), json!({})));
            json!({"type": "object", "properties": Value::Object(properties.collect())})
        };
        let object = |next: Value| {
            let properties = json!({"next": next, "count": {"type": "integer"}});
            json!({"type": "object", "properties": properties})
        };
        let cases = [
            ("plain references", chain(1_000, |next| next), Outcome::Compiles),
            ("objects by reference", chain(1_000, object), Outcome::Compiles),
            ("5,000 references", chain(5_000, |next| next), Outcome::Any),
            ("5,000 objects", chain(5_000, object), Outcome::Any),
            (
                "references in lists",
                chain(
                    500,
                    |next| json!({"anyOf": [{"type": "null"}, {"type": "array", "items": next}]}),
                ),
                Outcome::Any,
            ),
            ("60,000 references", chain(60_000, |next| next), Outcome::Refused("more than 50000")),
            (
                "60 objects",
                nested(60, |inner| json!({"type": "object", "properties": {"a": inner}})),
                Outcome::Any,
            ),
            (
                "60 arrays",
                nested(60, |inner| json!({"type": "array", "items": inner})),
                Outcome::Any,
            ),
            (
                "60 anyOf",
                nested(60, |inner| json!({"anyOf": [inner, {"type": "null"}]})),
                Outcome::Any,
            ),
            ("60 allOf", nested(60, |inner| json!({"allOf": [inner]})), Outcome::Any),
            (
                "70 arrays",
                nested(70, |inner| json!({"type": "array", "items": inner})),
                Outcome::Refused("nested more than 64 levels deep"),
            ),
            ("1,000 properties", properties(1_000), Outcome::Compiles),
            ("3,000 properties", properties(3_000), Outcome::Refused("more than 2000 properties")),
            (
                "values",
                json!({"enum": (0..10_000).map(|n| format!("value {n}")).collect::<Vec<_>>()}),
                Outcome::Any,
            ),
            (
                "prefixes",
                json!({"enum": (1..1_000).map(|n| "a".repeat(n)).collect::<Vec<_>>()}),
                Outcome::Any,
            ),
            (
                "100,000 values",
                json!({"enum": (0..100_000).collect::<Vec<_>>()}),
                Outcome::Refused("more than 50000"),
            ),
            (
                "counts",
                json!({"type": "array", "items": {"type": "string", "maxLength": 1_000_000_000}, "maxItems": 1_000_000_000}),
                Outcome::Any,
            ),
            (
                "least counts",
                json!({"type": "array", "items": {"type": "string", "minLength": 1_000_000_000}, "minItems": 1_000_000_000}),
                Outcome::Any,
            ),
            (
                "a pattern",
                json!({"type": "string", "pattern": format!("^{}a{}$", "(".repeat(2_000), ")".repeat(2_000))}),
                Outcome::Any,
            ),
            (
                "repetitions",
                json!({"type": "string", "pattern": format!("^{}a{}$", "(".repeat(9), "){2,5}".repeat(9)), "maxLength": 500}),
                Outcome::Any,
            ),
            (
                "a long name",
                json!({"type": "object", "properties": {"n".repeat(5_000): {"type": "object", "properties": {"a": {"not": {}}}}}}),
                Outcome::Refused("a path has more than 4096 bytes"),
            ),
        ];
        for (name, schema, outcome) in cases {
            // The schema of an object adds a level of nesting.
            let parameters = json!({"type": "object", "properties": {"v": {"type": "string"}}});
            for format in [hermes(), gemma4(), qwen_xml()] {
                let mut case = GrammarCase::new(format, ToolChoice::Required);
                let is_object = schema["type"] == "object";
                let parameters = if is_object { schema.clone() } else { parameters.clone() };
                case.tools = vec![tool("f", parameters)];
                case.tools[0]["function"]["strict"] = true.into();
                let outcome = if is_object && outcome != Outcome::Compiles {
                    &outcome
                } else {
                    &Outcome::Any
                };
                check_case(name, &case, outcome);
            }
            let mut case = GrammarCase::new(hermes(), ToolChoice::None);
            (case.response, case.strict) = (Some(schema), true);
            check_case(name, &case, &outcome);
        }
    });
}

#[test]
fn grammars_in_lark() {
    in_child("grammars_in_lark", || {
        let rules = |count: usize, body: &str| {
            let line = |index: usize| {
                let name = if index == 0 { "start".to_owned() } else { format!("r{index}") };
                format!("{name}: {}\n", body.replace('N', &format!("r{}", index + 1)))
            };
            (0..count).map(line).collect::<String>() + &format!("r{count}: \"a\"\n")
        };
        let large = "more than 10000";
        const ALTERNATIVES: &str = "too many alternatives";
        const WAYS: &str = "in too many ways";
        let joined = |count: usize, between: &str, item: fn(usize) -> String| {
            (0..count).map(item).collect::<Vec<_>>().join(between)
        };
        let objects = |count: usize, patterns: usize| {
            let names = |object: usize| -> Value {
                (0..patterns).map(|n| (format!("^k{object}_{n}[ab]+$"), json!({}))).collect()
            };
            let object = |n| (format!("o{n}"), json!({ "patternProperties": names(n) }));
            json!({ "properties": (0..count).map(object).collect::<Value>() })
        };
        let optional: Vec<String> = (0..3_000).map(|index| format!("U{index}")).collect();
        let optional_terminals = joined(3_000, "\n", |n| format!("U{n}: \"k{n}\"?"));
        let cases = [
            (rules(4_000, "N"), Outcome::Compiles),
            (rules(4_000, "\"x\" N | \"y\""), Outcome::Compiles),
            (rules(500, "((((((((((((N))))))))))))"), Outcome::Compiles),
            (rules(4_000, "N").replace('r', "T").replace("staTt", "start"), Outcome::Compiles),
            (rules(9_000, "N"), Outcome::Compiles),
            (rules(100_000, "N"), Outcome::Refused(large)),
            (format!("start: {}\"a\"", "\"a\" | ".repeat(30_000)), Outcome::Refused(large)),
            (format!("start: {}\"a\"{}", "(".repeat(100), ")".repeat(100)), Outcome::Refused("too deeply nested")),
            (format!("start: {}\"a\"{}", "(".repeat(30_000), ")".repeat(30_000)), Outcome::Refused(large)),
            (format!("start: a::0\na::_: \"x\" %if {}true{}", "not(".repeat(3_000), ")".repeat(3_000)), Outcome::Refused("more than 50 levels deep")),
            (format!("start: T\nT: /{}a{}/ & /{}a{}/", "(".repeat(9), "){2,5}".repeat(9), "(".repeat(9), "){1,3}".repeat(9)), Outcome::Refused("repetitions")),
            (format!("start: %json {}", chain(1_000, |next| next)), Outcome::Compiles),
            ("start: %json {\"multipleOf\": \"éééééééééééééééééééééééééééééééééééééééééééééééééééééééééééé\"}".to_owned(), Outcome::Refused("cannot be enforced")),
            ("start: x\nx: x \"a\" | \"a\"".to_owned(), Outcome::Compiles),
            // Expressions of which one step, or the first byte, takes minutes.
            (format!("start: /{}/", "[ab]?".repeat(9_000)), Outcome::Refused(ALTERNATIVES)),
            (format!("start: /{}/", "a?".repeat(9_000)), Outcome::Refused(ALTERNATIVES)),
            (format!("start: T\nT: {}\n{}", optional.join(" "), optional_terminals), Outcome::Refused(ALTERNATIVES)),
            (format!("start: T\nT: {}", joined(200, " & ", |n| format!("/.*a.{{{n}}}b.*/"))), Outcome::Refused("repetitions")),
            (format!("start: T\nT: {}", joined(2_000, " & ", |n| format!("/.*k{n}.*/"))), Outcome::Refused(WAYS)),
            (format!("start: %json {{\"allOf\": [{}]}}", joined(300, ",", |n| format!("{{\"type\": \"string\", \"pattern\": \"a{n}.{{{n}}}b\"}}"))), Outcome::Refused(WAYS)),
            (format!("start: %json {{\"patternProperties\": {{{}}}}}", joined(300, ",", |n| format!("\"^x{n}$\": {{}}"))), Outcome::Refused("more than 100 patternProperties")),
            (format!("start: %json {}", objects(10, 100)), Outcome::Refused("patternProperties together")),
            ("start: %json {\"type\": \"integer\", \"multipleOf\": 1000003}".to_owned(), Outcome::Refused("too complex")),
            (format!("start: /{}/", "(?i:\\p{L})x".repeat(2_500)), Outcome::Refused("ignores case")),
            // Similar ones that take no time.
            ("start: T\nT: /[a-z]{1,64}/ & ~/.*admin.{0,10}/ & /.*-.*/".to_owned(), Outcome::Compiles),
            (format!("start: /{}/", "[ab]?".repeat(100)), Outcome::Compiles),
            (format!("start: %json {}", objects(5, 40)), Outcome::Compiles),
            (format!("start: T\nT: /({})/ & /.{{1,40}}/", joined(2_000, "|", |n| format!("k{n}"))), Outcome::Compiles),
            (r#"start: %json {"type": "string", "allOf": [{"pattern": "foo"}, {"pattern": "bar.{1,100}"}]}"#.to_owned(), Outcome::Compiles),
            (r#"start: %json {"type": "string", "pattern": "^\\w+([\\.-]?\\w+)*@\\w+([\\.-]?\\w+)*(\\.\\w{2,})+$", "minLength": 6, "maxLength": 254}"#.to_owned(), Outcome::Compiles),
            (r#"start: %json {"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 100000}"#.to_owned(), Outcome::Compiles),
        ];
        for (text, outcome) in cases {
            let mut case = GrammarCase::new(hermes(), ToolChoice::None);
            case.grammar = Some(text.leak());
            check_case(
                &case.grammar.unwrap_or_default().chars().take(80).collect::<String>(),
                &case,
                &outcome,
            );
        }
    });
}

/// With a rule that refers to itself, the parser's state grows with the reply.
#[test]
fn recursive_rules_run_on_a_small_stack() {
    in_child("recursive_rules_run_on_a_small_stack", || {
        for (grammar, text) in [
            ("start: x\nx: x \"a\" | \"a\"", "a"),
            ("start: x\nx: \"(\" x \")\" | \"a\"", "("),
            ("start: \"[\" start? \"]\"", "["),
        ] {
            let mut case = GrammarCase::new(hermes(), ToolChoice::None);
            case.grammar = Some(grammar);
            let mut constraint = case.try_compile().unwrap().constraint.unwrap();
            for _ in 0..5_000 {
                constraint.accept(i32::from(text.as_bytes()[0])).unwrap();
            }
            constraint.mask().unwrap();
        }
    });
}

#[test]
fn random_schemas_compile_or_are_refused() {
    in_child("random_schemas_compile_or_are_refused", || {
        let grammars = grammars();
        for seed in 0..150 {
            let mut random = WalkRandom(seed + 1);
            let depth = 2 + random.below(70);
            let schema = random_schema(&mut random, depth);
            let mut case = GrammarCase::new(hermes(), ToolChoice::None);
            case.response = Some(schema);
            match case.build() {
                Ok(built) => {
                    match grammars.compile(&built.lark.unwrap(), &CompileTime::unlimited()) {
                        Ok(mut constraint) => drop(constraint.mask().unwrap()),
                        Err(error) => {
                            assert_eq!(error.code(), Code::SchemaUnsupported, "seed {seed}")
                        }
                    }
                }
                Err(error) => assert_eq!(error.code(), Code::SchemaUnsupported, "seed {seed}"),
            }
        }
    });
}

/// A narrow schema of this depth that refers to itself.
fn random_schema(random: &mut WalkRandom, depth: usize) -> Value {
    let mut schema = json!({"type": "string", "maxLength": random.below(100_000)});
    for level in 0..depth {
        let other = json!({ "enum": (0..random.below(20)).collect::<Vec<_>>() });
        schema = match random.below(8) {
            0 => json!({"type": "array", "items": schema, "minItems": random.below(5)}),
            1 => {
                json!({"type": "object", "properties": {"a": schema, "b": other}, "required": ["a"]})
            }
            2 => json!({"anyOf": [schema, other, {"$ref": "#/$defs/d"}]}),
            3 => json!({"allOf": [schema, {"$ref": "#/$defs/d"}]}),
            4 => json!({"oneOf": [{"type": "null"}, schema]}),
            5 => json!({"type": "array", "prefixItems": [schema, other], "items": false}),
            6 => {
                json!({"patternProperties": {format!("^k{level}"): schema}, "additionalProperties": other})
            }
            _ => json!({"type": "object", "additionalProperties": schema}),
        };
    }
    json!({"anyOf": [schema, {"$ref": "#/$defs/d"}], "$defs": {"d": {"type": "object", "properties": {"next": {"$ref": "#/$defs/d"}}}}})
}
