//! Tests grammars with seeded random walks: an independent parser must understand every reply that
//! a grammar allows.

use super::families::{gemma4, hermes, minimax_m3, qwen_xml};
use super::*;
use crate::output::{ReplyParser, ReplyParserInput};

/// A generator with the same sequence on every machine.
pub(super) struct WalkRandom(pub(super) u64);

impl WalkRandom {
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Draws allowed tokens at random until the reply ends. Closing tokens are preferred, increasingly
/// so with length. Computes what is forced on the way.
fn walk(grammars: &Grammars, lark: &str, seed: u64) -> String {
    let compile = || grammars.compile(lark, &CompileTime::unlimited()).unwrap();
    let (mut constraint, mut drafting) = (compile(), compile());
    let mut random = WalkRandom(seed);
    let mut bytes = Vec::new();
    let mut before = None;
    for step in 0..6000 {
        assert_eq!(drafting.is_finished(), constraint.is_finished());
        if constraint.is_finished() || (step > 100 && constraint.may_end().unwrap()) {
            return String::from_utf8(bytes).unwrap();
        }
        let mask = constraint.mask().unwrap();
        check_forced(&mut drafting, before, &mask);
        let allowed: Vec<i32> = (0..256 + (CONTROL.len() + WORDS.len()) as i32)
            .filter(|token| mask.is_allowed(*token as u32))
            .collect();
        let ascii: Vec<i32> = allowed
            .iter()
            .copied()
            .filter(|token| *token >= 256 || (32..127).contains(token) || *token == 10)
            .collect();
        let closing: Vec<i32> = ascii
            .iter()
            .copied()
            .filter(|token| *token >= 256 || b"}]\"'<>/)\n".contains(&(*token as u8)))
            .collect();
        let pool = if random.below(10) < 3 + step / 100 && !closing.is_empty() {
            closing
        } else if ascii.is_empty() {
            allowed
        } else {
            ascii
        };
        assert!(!pool.is_empty(), "a dead end after {:?}", String::from_utf8_lossy(&bytes));
        let token = pool[random.below(pool.len())];
        assert!(constraint.validate(token).unwrap());
        constraint.accept(token).unwrap();
        drafting.accept(token).unwrap();
        before = Some(token);
        match token as usize {
            byte @ 0..256 => bytes.push(byte as u8),
            256 | 257 => return String::from_utf8(bytes).unwrap(),
            control if control < 256 + CONTROL.len() => {
                bytes.extend(CONTROL[control - 256].bytes())
            }
            word => bytes.extend(WORDS[word - 256 - CONTROL.len()].bytes()),
        }
    }
    panic!("no end: {:?}", String::from_utf8_lossy(&bytes[..600]));
}

fn tools() -> Vec<Value> {
    vec![tool(
        "f",
        json!({"type": "object", "additionalProperties": false, "required": ["n", "list"], "properties": {
            "n": {"type": "integer"},
            "s": {"type": "string", "maxLength": 12},
            "e": {"enum": ["a", "ab", "b c"]},
            "list": {"type": "array", "maxItems": 2, "items": {"type": "object", "required": ["k"], "additionalProperties": false,
                     "properties": {"k": {"type": "boolean"}, "t": {"type": "string", "maxLength": 6}}}},
        }}),
    )]
}

/// Checks the arguments against the schema. The elements of `list` are checked only if `deep`.
#[track_caller]
fn check_arguments(arguments: &Value, deep: bool) {
    let members = arguments.as_object().unwrap();
    assert!(
        members.keys().all(|key| ["n", "s", "e", "list"].contains(&key.as_str())),
        "{arguments}"
    );
    assert!(
        members["n"].is_i64()
            || members["n"].as_number().is_some_and(|n| !n.to_string().contains(['.', 'e'])),
        "{arguments}"
    );
    assert!(
        members.get("s").is_none_or(|s| s.as_str().unwrap().chars().count() <= 12),
        "{arguments}"
    );
    assert!(
        members.get("e").is_none_or(|e| ["a", "ab", "b c"].contains(&e.as_str().unwrap())),
        "{arguments}"
    );
    if deep {
        let list = members["list"].as_array().unwrap();
        assert!(list.len() <= 2 && list.iter().all(|item| item["k"].is_boolean()), "{arguments}");
    }
}

fn walks(format: Format, read: impl Fn(&str) -> Vec<Value>) {
    let mut case = GrammarCase::new(format, ToolChoice::Required);
    case.format.reasoning = None;
    case.tools = tools();
    let grammar = case.build().unwrap().lark.unwrap();
    let grammars = grammars();
    for seed in 0..40 {
        let text = walk(&grammars, &grammar, seed);
        let calls = read(text.trim_start_matches([' ', '\n']));
        assert!(!calls.is_empty(), "{text:?}");
        calls.iter().for_each(|arguments| check_arguments(arguments, true));
        if seed % 4 == 0 {
            cut_anywhere(&case, &text);
        }
    }
}

/// If the reply is cut at any position, its complete calls match the schema.
fn cut_anywhere(case: &GrammarCase, text: &str) {
    for (end, _) in text.char_indices() {
        let mut parser = ReplyParser::new(ReplyParserInput {
            format: Some(&case.format),
            tools: case.tools.to_vec().into(),
            calls_allowed: true,
            reasoning: true,
            json: false,
            parallel: true,
            new_id: Box::new(|| "id".into()),
        });
        parser.push(&text[..end]);
        let (_, mut parsed) = parser.finish();
        parsed.tool_calls.truncate(parsed.unfinished.unwrap_or(usize::MAX));
        for call in parsed.tool_calls {
            let arguments = serde_json::from_str(&call.arguments)
                .unwrap_or_else(|error| panic!("{error}: {:?}", &text[..end]));
            check_arguments(&arguments, true);
        }
    }
}

fn between<'t>(text: &'t str, open: &str, close: &str) -> (&'t str, &'t str) {
    let rest = text.strip_prefix(open).unwrap_or_else(|| panic!("{open:?} in {text:?}"));
    rest.split_once(close).unwrap_or_else(|| panic!("{close:?} in {text:?}"))
}

#[test]
fn hermes_walks() {
    walks(hermes(), |text| {
        let mut calls = Vec::new();
        for call in
            text.split("\n<tool_call>\n").map(|call| call.trim_start_matches("<tool_call>\n"))
        {
            let call: Value =
                serde_json::from_str(call.strip_suffix("\n</tool_call>").unwrap()).unwrap();
            assert_eq!(call["name"], "f");
            calls.push(call["arguments"].clone());
        }
        calls
    });
}

#[test]
fn qwen_xml_walks() {
    walks(qwen_xml(), |text| {
        let mut calls = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let mut arguments = serde_json::Map::new();
            rest =
                rest.trim_start_matches('\n').strip_prefix("<tool_call>\n<function=f>\n").unwrap();
            while rest.starts_with("<parameter=") {
                let (name, after) = between(rest, "<parameter=", ">\n");
                let (value, after) = after.split_once("\n</parameter>\n").unwrap();
                let value = if name == "s" || name == "e" {
                    Value::from(value)
                } else {
                    serde_json::from_str(value).unwrap()
                };
                assert!(arguments.insert(name.to_owned(), value).is_none());
                rest = after;
            }
            rest = rest.strip_prefix("</function>\n</tool_call>").unwrap();
            calls.push(Value::Object(arguments));
        }
        calls
    });
}

#[test]
fn gemma_walks() {
    walks(gemma4(), |text| {
        let mut calls = Vec::new();
        for call in text.split("<|tool_call>").skip(1) {
            let inner = call.strip_prefix("call:f").unwrap().strip_suffix("<tool_call|>").unwrap();
            // Converts strings to JSON, then keys.
            let mut json = String::new();
            for (index, part) in inner.split("<|\"|>").enumerate() {
                if index % 2 == 1 {
                    json.push_str(&Value::from(part).to_string());
                } else {
                    let part = ["list", "n", "s", "e", "k", "t"].iter().fold(
                        part.to_owned(),
                        |part, key| {
                            part.replace(&format!("{{{key}:"), &format!("{{\"{key}\":"))
                                .replace(&format!(",{key}:"), &format!(",\"{key}\":"))
                        },
                    );
                    json.push_str(&part);
                }
            }
            calls.push(
                serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {json}")),
            );
        }
        calls
    });
}

#[test]
fn elements_walks() {
    const P: &str = "]<]minimax[>[";
    fn members<'t>(mut text: &'t str, close: &str) -> (Value, &'t str) {
        let mut result = serde_json::Map::new();
        let close = format!("{P}</{close}>");
        while !text.starts_with(&close) {
            let (tag, rest) = between(text, &format!("{P}<"), ">");
            let end = format!("{P}</{tag}>");
            let (value, rest) = match tag {
                "list" => {
                    let mut items = Vec::new();
                    let mut rest = rest;
                    while let Some(item) = rest.strip_prefix(&format!("{P}<item>")) {
                        let (value, after) = members(item, "item");
                        items.push(value);
                        rest = after;
                    }
                    (Value::Array(items), rest.strip_prefix(&end).unwrap())
                }
                _ => {
                    let (value, rest) = rest.split_once(&end).unwrap();
                    let text = ["s", "e", "t"].contains(&tag);
                    (
                        if text {
                            Value::from(value)
                        } else {
                            serde_json::from_str(value).unwrap()
                        },
                        rest,
                    )
                }
            };
            result.insert(tag.to_owned(), value);
            text = rest;
        }
        (Value::Object(result), text.strip_prefix(&close).unwrap())
    }
    walks(minimax_m3(), |text| {
        let (mut inner, _) =
            between(text, "]<]minimax[>[<tool_call>\n", "]<]minimax[>[</tool_call>");
        let mut calls = Vec::new();
        while !inner.is_empty() {
            let (arguments, rest) =
                members(inner.strip_prefix(&format!("{P}<invoke name=\"f\">")).unwrap(), "invoke");
            calls.push(arguments);
            inner = rest.strip_prefix('\n').unwrap();
        }
        calls
    });
}

#[test]
fn python_walks() {
    let call = vec![CallPart::Name, text("("), CallPart::Arguments(Encoding::python()), text(")")];
    walks(format("<|tool_call_start|>[", call, ", ", "]<|tool_call_end|>"), |text| {
        let (inner, _) = between(text, "<|tool_call_start|>[", "]<|tool_call_end|>");
        // Converts strings to JSON, and the names, constants and parentheses between them.
        let mut json = String::new();
        let mut outside = String::new();
        let mut chars = inner.chars();
        while let Some(char) = chars.next() {
            if char != '\'' && char != '"' {
                outside.push(char);
                continue;
            }
            let mut string = String::new();
            while let Some(inner) = chars.next().filter(|inner| *inner != char) {
                string.push(match inner {
                    '\\' => match chars.next().unwrap() {
                        'n' => '\n',
                        'r' => '\r',
                        't' => '\t',
                        other => other,
                    },
                    other => other,
                });
            }
            json.push_str(&to_json(&std::mem::take(&mut outside)));
            json.push_str(&Value::from(string).to_string());
        }
        json.push_str(&to_json(&outside));
        match serde_json::from_str(&format!("[{json}]")) {
            Ok(Value::Array(calls)) => calls,
            other => panic!("{other:?}: {json}"),
        }
    });
}

/// Converts the Python between strings to JSON.
fn to_json(python: &str) -> String {
    let json = python
        .replace("f(", "{")
        .replace(')', "}")
        .replace("True", "true")
        .replace("False", "false");
    ["list", "n", "s", "e"]
        .iter()
        .fold(json, |json, key| json.replace(&format!("{key}="), &format!("\"{key}\":")))
}

/// If free text is also allowed, no walk reaches a dead end.
#[test]
fn walks_among_text_and_calls() {
    let python =
        vec![CallPart::Name, text("("), CallPart::Arguments(Encoding::python()), text(")")];
    let bare = vec![
        text("{\"name\": \""),
        CallPart::Name,
        text("\", \"parameters\": "),
        CallPart::Arguments(Encoding::JsonText),
        text("}"),
    ];
    let python = format("<|tool_call_start|>[", python, ", ", "]<|tool_call_end|>");
    for format in [hermes(), qwen_xml(), gemma4(), minimax_m3(), python, format("", bare, "", "")] {
        let mut case = GrammarCase::new(format, ToolChoice::Auto);
        for (response, reasoning_open) in [(None, false), (None, true), (Some(Value::Null), false)]
        {
            if response.is_some()
                && case.format.calls.as_ref().unwrap().call[0] == text("{\"name\": \"")
            {
                assert_eq!(
                    GrammarCase { response, ..case }.build().unwrap_err().code(),
                    Code::SchemaUnsupported
                );
                break;
            }
            (case.response, case.reasoning_open) = (response, reasoning_open);
            let lark = case.build().unwrap().lark.unwrap();
            let grammars = grammars();
            for seed in 0..15 {
                walk(&grammars, &lark, seed);
            }
        }
    }
}
