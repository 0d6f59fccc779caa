//! Calls with names, keys and values that are hard to write.

use serde_json::{Map, Value, json};

use super::TestedFormat;
use crate::constraint::tests::tool;
use crate::output::format::{CallPart, Encoding, Tagged, tags};

/// A call and the tools of its request.
pub(super) struct Sample {
    /// What is hard about it.
    pub(super) what: String,
    pub(super) tools: Vec<Value>,
    pub(super) name: String,
    pub(super) arguments: Value,
}

/// Parts of names and keys.
const WORDS: &[&str] = &[
    "get weather",
    "a.b",
    "a-b",
    "a/b",
    "ns:f",
    "$filter",
    "@type",
    "a$",
    "f\"q",
    "f'q",
    "f>g",
    "f<g",
    "f(x)",
    "f=1",
    "f,g",
    "f[0]",
    "f{x}",
    "f\\n",
    "f\nx",
    "é",
    "名前",
    "9lives",
    " f",
    "f ",
    "true",
    "null",
    "name",
    "arguments",
    "item",
    "id",
    "a|b",
    "#",
    "f;",
    "f&amp;g",
    "f`g",
    "😀",
];

/// Texts that end, begin or look like something.
const TEXTS: &[&str] = &[
    "",
    " ",
    "\n",
    "x",
    " x ",
    "\nx\n",
    "x\r",
    "\rx",
    "x\r\n",
    "\tx\t",
    "1",
    "-0.5",
    "true",
    "null",
    "None",
    "True",
    "\"",
    "'",
    "\"x\"",
    "'x'",
    "a\"b'c",
    "'''",
    "\"\"\"",
    "\\",
    "\\n",
    "x\\",
    "\\'",
    "\\\"",
    "{\"a\": 1}",
    "[1, 2]",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    "a, b=1)",
    "a: b",
    "x')",
    "</",
    "<",
    "<a>",
    "</a>",
    "<![CDATA[x]]>",
    "]]>",
    "```",
    "```json\n{}\n```",
    "é名😀",
    "\u{7}",
    "\u{85}",
    "\u{2028}",
    "\u{a0}",
    "\0",
    "x\n\n\ny",
    "&lt;&amp;",
    "{{x}}",
    "{% x %}",
    "don't",
    "return \"</parameter>\"",
    "\n<parameter=path>\n/tmp\n",
];

fn schema_of(value: &Value) -> Value {
    match value {
        Value::Null => json!({"type": "null"}),
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(number) if number.is_f64() => json!({"type": "number"}),
        Value::Number(_) => json!({"type": "integer"}),
        Value::String(_) => json!({"type": "string"}),
        Value::Array(items) => match items.first() {
            Some(first) => json!({"type": "array", "items": schema_of(first)}),
            None => json!({"type": "array"}),
        },
        Value::Object(members) => {
            let properties: Map<String, Value> =
                members.iter().map(|(key, value)| (key.clone(), schema_of(value))).collect();
            json!({"type": "object", "properties": properties, "additionalProperties": false})
        }
    }
}

fn sample(what: String, name: &str, arguments: Value, extra: &[(&str, Value)]) -> Sample {
    let mut schema = schema_of(&arguments);
    for (key, value) in extra {
        schema["properties"][*key] = value.clone();
    }
    let other = tool(
        "other",
        json!({"type": "object", "properties": {"z": {"type": "string"}}, "additionalProperties": false}),
    );
    Sample { what, tools: vec![other, tool(name, schema)], name: name.to_owned(), arguments }
}

/// A call whose schema has several parts for each value.
fn in_parts(what: String, arguments: Value) -> Sample {
    let mut sample = sample(what, "f", arguments, &[]);
    let schema = sample.tools[1]["function"]["parameters"].take();
    let parts = |schema: &Value, name: &str| {
        let other = json!({"properties": {name: {"description": "a part"}}, "required": [name]});
        json!({"allOf": [schema, other]})
    };
    let mut whole = parts(&schema, "k");
    whole["allOf"][0]["properties"]["o"] = parts(&schema["properties"]["o"], "b");
    whole["allOf"][0]["properties"]["v"] = json!({"allOf": [{"type": ["string", "integer"]},
        {"type": "string"}, {"maxLength": 9}]});
    sample.tools[1]["function"]["parameters"] = whole;
    sample
}

/// The markers of a format, and combinations of them that may occur in a value.
pub(super) fn markers(subject: &TestedFormat) -> Vec<String> {
    let texts: Vec<&str> = subject.format.texts();
    let mut markers: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    markers.extend(texts.iter().flat_map(|text| tags(text)).map(str::to_owned));
    for part in &subject.calls.call {
        match part {
            CallPart::Arguments(Encoding::Tagged(Tagged {
                open, after_key, close, kind, ..
            })) => {
                let after =
                    kind.as_ref().map_or(String::new(), |kind| format!("true{}", kind.after));
                for key in ["path", "v", "k"] {
                    markers.push(format!("{open}{key}{after_key}{after}x"));
                    markers.push(format!("{open}{key}{after_key}{after}x{close}"));
                }
                markers.push(format!("{close}{open}"));
            }
            CallPart::Arguments(Encoding::Elements { prefix, item }) => {
                for tag in [item, "v", "k", "b", "other"] {
                    markers.push(format!("{prefix}<{tag}>"));
                    markers.push(format!("{prefix}</{tag}>"));
                    markers.push(format!("{prefix}<{tag}>x{prefix}</{tag}>"));
                }
            }
            _ => {}
        }
    }
    markers.sort();
    markers.dedup();
    markers
}

/// All samples for a format.
pub(super) fn all(subject: &TestedFormat) -> Vec<Sample> {
    let markers = markers(subject);
    let mut samples = Vec::new();
    let path = ("path", json!({"type": "string"}));
    for word in WORDS
        .iter()
        .map(|word| (*word).to_owned())
        .chain(markers.iter().map(|marker| format!("f{marker}")))
    {
        samples.push(sample(format!("name {word:?}"), &word, json!({"v": 1}), &[]));
        samples.push(sample(format!("key {word:?}"), "f", json!({"a": 1, word.clone(): "x"}), &[]));
        samples.push(sample(
            format!("nested key {word:?}"),
            "f",
            json!({"o": {word.clone(): "x", "y": 2}}),
            &[],
        ));
    }
    samples.push(sample("an empty key".into(), "f", json!({"": "x"}), &[]));
    samples.push(sample("an empty nested key".into(), "f", json!({"o": {"": "x"}}), &[]));
    samples.push(sample("no arguments".into(), "f", json!({}), &[]));
    samples.push(sample(
        "no arguments of some".into(),
        "f",
        json!({}),
        std::slice::from_ref(&path),
    ));
    let texts = TEXTS.iter().map(|text| (*text).to_owned());
    let texts = texts.chain(markers.iter().flat_map(|marker| {
        [
            marker.clone(),
            format!("{marker}{marker}"),
            format!("a{marker}b"),
            format!("a\n{marker}\nb"),
            format!("\n{marker}"),
            format!("{marker}\n"),
            format!("say \"{marker}\";"),
        ]
    }));
    let texts: Vec<String> = texts.chain(["x".repeat(10_000)]).collect();
    // Samples with the same tools follow each other, because a grammar takes long to build.
    let mut each = |kind: &str, sample_of: &dyn Fn(String, &str) -> Sample| {
        for text in &texts {
            samples.push(sample_of(format!("{kind} {:?}", super::shown(text)), text));
        }
    };
    each("string", &|what, text| {
        sample(what, "f", json!({"v": text, "k": 1}), std::slice::from_ref(&path))
    });
    each("last string", &|what, text| {
        sample(what, "f", json!({"k": 1, "v": text}), std::slice::from_ref(&path))
    });
    each("list of strings", &|what, text| {
        sample(what, "f", json!({"v": [text, text], "k": 1}), std::slice::from_ref(&path))
    });
    each("nested string", &|what, text| {
        sample(what, "f", json!({"v": {"k": text, "b": 1}, "k": 1}), std::slice::from_ref(&path))
    });
    each("string of any type", &|what, text| {
        let mut any = sample(what, "f", json!({"v": text, "k": 1}), &[]);
        any.tools[1]["function"]["parameters"]["properties"]["v"] = json!({});
        any
    });
    each("constant", &|what, text| {
        let mut constant = sample(what, "f", json!({"v": text, "k": 1}), &[]);
        constant.tools[1]["function"]["parameters"]["properties"]["v"] =
            json!({"enum": [text, "other"]});
        constant
    });
    for value in [
        json!(0),
        json!(-1),
        json!(12345678901234567_i64),
        json!(1.5),
        json!(-2.5e-10),
        json!(true),
        json!(false),
        Value::Null,
        json!([]),
        json!({}),
        json!([1, 2]),
        json!([[]]),
        json!([[1], [2]]),
        json!([{"a": "b"}, {"a": "c"}]),
        json!({"a": {"b": {"c": [true]}}}),
        json!([null]),
        json!({"a": null}),
        json!([{}]),
        json!({"a": []}),
        json!({"a": {}}),
    ] {
        samples.push(sample(
            format!("value {value}"),
            "f",
            json!({"v": value, "k": 1}),
            std::slice::from_ref(&path),
        ));
        let mut any =
            sample(format!("value {value} of any type"), "f", json!({"v": value, "k": 1}), &[]);
        any.tools[1]["function"]["parameters"]["properties"]["v"] = json!({});
        samples.push(any);
    }
    for text in ["", "x", "1", " x\n", "é名😀"] {
        let what = format!("schemas of several parts {text:?}");
        samples.push(in_parts(what, json!({"k": 1, "v": text, "o": {"a": 2, "b": text}})));
    }
    // Without a type, a text that is JSON is read as that JSON.
    let is_json = |text: &str| serde_json::from_str::<Value>(text).is_ok();
    samples.retain(|sample| {
        !sample.what.starts_with("string of any type")
            || !sample.arguments["v"].as_str().is_some_and(is_json)
    });
    samples
}
