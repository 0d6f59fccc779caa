//! Fuzzes the `grammar` of a request: rules, terminals, regular expressions, parameters, conditions
//! and directives of Lark. The grammar is compiled, and constrains a short reply.
#![no_main]

#[path = "../../scripted/mod.rs"]
mod scripted;

use std::sync::LazyLock;

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use llb::api::CreateOptions;
use llb::chat::Chat;
use llb::error::Code;
use llb_fuzz::{in_time, rarely, schemas, sound};
use scripted::random::{Memory, random};
use serde_json::{Value, json};

static CHAT: LazyLock<Chat> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("model.gguf");
    std::fs::write(&path, random(Memory::Dense)).expect("a small file fits");
    let options = json!({ "model": path, "n_ctx": 512, "n_threads": 1, "tool_policy": "any",
        "use_mmap": false });
    let chat = Chat::create(CreateOptions::read(&options), Box::new(|_| ()));
    chat.map_err(|failure| failure.error).expect("a valid model opens")
});

const RULES: [&str; 6] = ["start", "a", "b", "?c", "d", "!e"];
const TERMINALS: [&str; 6] = ["A", "B.2", "C", "INT", "WS", "D.-1"];
const DIRECTIVES: [&str; 9] = [
    "%ignore / /",
    "%ignore A",
    "%import common.INT",
    "%import common (WS, INT)",
    "%declare C",
    "%override a: \"x\"",
    "%llguidance {\"no_forcing\": true}",
    "%llguidance {\"allow_initial_skip\": true, \"allow_invalid_utf8\": true}",
    "%llguidance {}",
];
const ATTRIBUTES: [&str; 9] = [
    "lazy",
    "capture",
    "capture=\"x\"",
    "stop=\"a\"",
    "stop=/b+/",
    "suffix=/c/",
    "max_tokens=2",
    "temperature=0.5",
    "stop_capture=\"y\"",
];
const CONDITIONS: [&str; 8] = [
    "is_zeros(_)",
    "bit_clear(2)",
    "lt(_, 3)",
    "and(ne(_, 1), not(true))",
    "bit_count_le([0:4], 2)",
    "eq([1:3], 0)",
    "or(true, bit_set(63))",
    "ge(_, 0xffffffffffffffff)",
];
const PARAMETERS: [&str; 8] = [
    "0",
    "_",
    "incr(_)",
    "decr([0:8])",
    "set_bit(5)",
    "clear_bit(64)",
    "bit_and(_, 7)",
    "0xffffffffffffffffff",
];
const CLASSES: [&str; 14] = [
    ".",
    "[a-z]",
    "[^a]",
    "\\d",
    "\\p{L}",
    "\\w",
    "é",
    "\\x00",
    "\\u{10FFFF}",
    "[^\\x00-\\x7F]",
    "\\n",
    "(?i:a)",
    "(?s:.)",
    "\\b",
];

#[derive(Debug)]
struct Input(String);

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Input> {
        if rarely(u, 16)? {
            return Ok(Input(u.arbitrary()?));
        }
        let mut lines = Vec::new();
        for _ in 0..u.int_in_range(0..=2)? {
            lines.push((*u.choose(&DIRECTIVES)?).to_owned());
        }
        lines.push(format!("start: {}", expression(u, 0)?));
        for _ in 0..u.int_in_range(0..=5)? {
            lines.push(definition(u)?);
        }
        let mut text = lines.join("\n");
        if rarely(u, 16)? {
            let at = u.choose_index(text.len())?;
            if text.is_char_boundary(at) {
                text.insert(at, u.arbitrary()?);
            }
        }
        Ok(Input(text))
    }
}

fn definition(u: &mut Unstructured<'_>) -> arbitrary::Result<String> {
    if rarely(u, 3)? {
        let name = u.choose(&TERMINALS)?;
        return Ok(format!("{name}: {}", expression(u, 1)?));
    }
    let name = u.choose(&RULES)?;
    let parameters = if rarely(u, 4)? { "::_" } else { "" };
    let attributes = match rarely(u, 3)? {
        true => format!("[{}]", u.choose(&ATTRIBUTES)?),
        false => String::new(),
    };
    let condition = match rarely(u, 6)? {
        true => format!(" %if {}", u.choose(&CONDITIONS)?),
        false => String::new(),
    };
    Ok(format!("{name}{parameters}{attributes}: {}{condition}", expression(u, 0)?))
}

fn expression(u: &mut Unstructured<'_>, depth: usize) -> arbitrary::Result<String> {
    let mut alternatives = Vec::new();
    for _ in 0..u.int_in_range(1..=3)? {
        let mut items = Vec::new();
        for _ in 0..u.int_in_range(0..=3)? {
            items.push(item(u, depth)?);
        }
        alternatives.push(items.join(*u.choose(&[" ", " ", " ", " & "])?));
    }
    Ok(alternatives.join(" | "))
}

fn item(u: &mut Unstructured<'_>, depth: usize) -> arbitrary::Result<String> {
    let most = if depth < 4 { 13 } else { 8 };
    let item = match u.int_in_range(0..=most)? {
        0 => format!(
            "{}",
            Value::from((*u.choose(&["a", "ab", "", "é", "\n", "\0", "<s>"])?).to_owned())
        ),
        1 => format!("{}i", Value::from((*u.choose(&["a", "Ab", "ß"])?).to_owned())),
        2 => "\"a\"..\"z\"".to_owned(),
        3 | 4 => format!("/{}/", regex(u, 0)?),
        5 => u.choose(&RULES)?.trim_start_matches(['?', '!']).to_owned(),
        6 => u.choose(&TERMINALS)?.split('.').next().unwrap_or_default().to_owned(),
        7 => format!("{}::{}", u.choose(&["a", "b", "d"])?, u.choose(&PARAMETERS)?),
        8 => {
            (*u.choose(&["<think>", "<[1]>", "<[5-9,70]>", "<[^3]>", "<[*]>", "<[99999]>", "<x>"])?)
                .to_owned()
        }
        9 => format!("({})", expression(u, depth + 1)?),
        10 => format!("[{}]", expression(u, depth + 1)?),
        11 => format!("%json {}", schemas::schema(u, 0)?),
        12 => format!("%regex {{\"substring_words\": {}}}", Value::from(String::arbitrary(u)?)),
        _ => format!("%lark {{ start: {} }}", expression(u, depth + 1)?),
    };
    let (least, most): (u32, u32) = (u.int_in_range(0..=4)?, *u.choose(&[0, 1, 3, 9, 200])?);
    let repeated = match u.int_in_range(0..=11)? {
        0 => format!("{item}*"),
        1 => format!("{item}+"),
        2 => format!("{item}?"),
        3 => format!("{item}{{{least},{most}}}"),
        4 => format!("{item}~{least}..{most}"),
        5 => format!("{item}{{{least},}}"),
        6 => format!("~{item}"),
        _ => item,
    };
    Ok(repeated)
}

fn regex(u: &mut Unstructured<'_>, depth: usize) -> arbitrary::Result<String> {
    let mut text = String::new();
    for _ in 0..u.int_in_range(0..=3)? {
        match u.int_in_range(0..=5)? {
            0 if depth < 4 => text += &format!("({})", regex(u, depth + 1)?),
            1 if depth < 4 => {
                text += &format!("({}|{})", regex(u, depth + 1)?, regex(u, depth + 1)?)
            }
            _ => text += u.choose(&CLASSES)?,
        }
        text += u.choose(&["", "", "", "*", "+", "?", "{2}", "{0,9}", "{3,}", "*?"])?;
    }
    Ok(text)
}

fuzz_target!(|input: Input| {
    let Input(grammar) = input;
    if std::env::var_os("LLB_FUZZ_SHOW").is_some() {
        eprintln!("{grammar}");
    }
    let messages = json!([{ "role": "user", "content": "Hi" }]);
    let request = json!({ "messages": messages, "grammar": grammar, "seed": 1, "temperature": 1,
        "max_tokens": 6, "timeout_ms": 10_000 });
    let request = request.to_string();
    let infer = || in_time(|| CHAT.infer(&request, None));
    match infer() {
        Ok(reply) => {
            let first = json!(reply);
            // The second reply is that of the cached grammar.
            let second = json!(infer().expect("a grammar that compiled compiles again"));
            if first["finish_reason"] != "cancelled" && second["finish_reason"] != "cancelled" {
                assert_eq!(first["text"], second["text"], "the second reply equals the first");
            }
        }
        Err(error) => {
            sound(&error);
            let code = error.code();
            let expected = [Code::SchemaUnsupported, Code::InvalidRequest, Code::InferenceFailed];
            assert!(expected.contains(&code), "{error}");
        }
    }
});
