//! Templates with small damage. Every template is rendered or refused, without a fault of llb.
//!
//! Templates of the shared conformance set, or a few templates of ours without it, each changed in
//! some places: names swapped or used in another way, Jinja words inserted, pieces duplicated,
//! moved and cut, bits flipped. Every run uses the same ones. `tests/fuzz` searches further.
#![allow(clippy::print_stderr, reason = "a test says what it tried")]

#[path = "../src/test_support/conformance_folder.rs"]
mod conformance_folder;

use std::path::PathBuf;

use llb::error::{Code, Error, Result};
use llb::template::{Limits, LocalTime, RenderInput, Sources, Templates};
use llb::template_requests;
use serde_json::{Value, json};

const RENDERS: usize = 4000;
/// Probing renders a template many times.
const INFOS: usize = 150;
/// Longer templates take more time but have no other statements.
const MAX: usize = 6000;

const OWN: [&str; 3] = [
    "{% for m in messages %}{{ '<|' ~ m.role ~ '|>' }}{{ m.content | trim }}{% if not loop.last %}\n{% endif %}{% endfor %}",
    "{%- set ns = namespace(n=0) %}{%- for m in messages[::-1] %}{%- set ns.n = ns.n + 1 %}{{ ns.n }}: {{ m['content'] }}\
     {%- for call in m.tool_calls or [] %}{{ call.function | tojson(indent=2) }}{% endfor %}{% endfor %}",
    "{% macro f(x, depth=0) %}{% if x is mapping %}{% for k, v in x.items() %}{{ '  ' * depth ~ k }}{{ f(v, depth + 1) }}\
     {% endfor %}{% elif x is string %}{{ x.split(' ')[-1] }}{% endif %}{% endmacro %}{{ f(tools[0]) if tools else 'none' }}",
];

/// Inserted anywhere. Most results do not parse.
const WORDS: [&str; 42] = [
    "{{",
    "}}",
    "{%",
    "%}",
    "{%-",
    "-%}",
    "{#",
    "#}",
    "if",
    "else",
    "endif",
    "for",
    "in",
    "endfor",
    "set",
    "endset",
    "macro",
    "endmacro",
    "call",
    "endcall",
    "filter",
    "raw",
    "endraw",
    "generation",
    "break",
    "and",
    "not",
    "is",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ".",
    ":",
    "|",
    "=",
    "'",
    "\"",
    "\\",
];

/// Inserted after a name. Most results parse.
const SUFFIXES: [&str; 32] = [
    "[::-1]",
    "[:0]",
    "[-1]",
    "[0]",
    "[1:][::-2]",
    "[none]",
    "['x']",
    ".x",
    ".items()",
    ".keys()",
    ".split()",
    ".get('role')",
    "()",
    "(1)",
    " | tojson",
    " | list",
    " | length",
    " | string",
    " | first",
    " | last",
    " | map('upper')",
    " | join",
    " | sort",
    " | int",
    " * 3",
    " // 0",
    " % 0",
    " ** 99",
    " ~ 1e308",
    " + 9223372036854775807",
    " is none",
    " in messages",
];

/// Names of blocks. With another name in their place a template rarely parses.
const BLOCKS: [&str; 21] = [
    "if",
    "elif",
    "else",
    "endif",
    "for",
    "in",
    "endfor",
    "set",
    "endset",
    "macro",
    "endmacro",
    "call",
    "endcall",
    "filter",
    "endfilter",
    "is",
    "and",
    "or",
    "not",
    "generation",
    "endgeneration",
];

/// The same numbers in every run (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((bits ^ (bits >> 31)) % bound.max(1) as u64).unwrap_or(0)
    }
}

/// Words, numbers, runs of whitespace, and single other characters.
fn tokens(template: &str) -> Vec<&str> {
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 0,
        c if c.is_whitespace() => 1,
        _ => 2,
    };
    let mut tokens = Vec::new();
    let mut start = 0;
    let mut previous = None;
    for (at, c) in template.char_indices() {
        if previous.is_some_and(|previous| previous != kind(c) || previous == 2) {
            tokens.push(&template[start..at]);
            start = at;
        }
        previous = Some(kind(c));
    }
    tokens.push(&template[start..]);
    tokens
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_') && !BLOCKS.contains(&token)
}

/// Mostly changes of names, after which a template still parses; sometimes any damage.
fn mutated(template: &str, random: &mut Random) -> String {
    let mut tokens = tokens(template);
    for _ in 0..=random.below(3) {
        let names: Vec<usize> = (0..tokens.len()).filter(|at| is_name(tokens[*at])).collect();
        if !names.is_empty() && random.below(8) > 0 {
            let (at, other) = (names[random.below(names.len())], names[random.below(names.len())]);
            match random.below(3) {
                0 => tokens.swap(at, other),
                1 => tokens[at] = tokens[other],
                _ => tokens.insert(at + 1, SUFFIXES[random.below(SUFFIXES.len())]),
            }
            continue;
        }
        let (at, other) = (random.below(tokens.len()), random.below(tokens.len()));
        let word = WORDS[random.below(WORDS.len())];
        match random.below(6) {
            0 => tokens[at] = word,
            1 => tokens.insert(at, word),
            2 => tokens.swap(at, other),
            3 => {
                let piece = tokens[at..(at + random.below(20)).min(tokens.len())].to_vec();
                tokens.splice(other..other, piece);
            }
            4 => tokens.truncate(at + 1),
            _ => {
                tokens.drain(at..(at + 1 + random.below(4)).min(tokens.len()));
                if tokens.is_empty() {
                    tokens.push(word);
                }
            }
        }
    }
    let mut bytes = tokens.concat().into_bytes();
    if random.below(16) == 0 && !bytes.is_empty() {
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn templates() -> Vec<String> {
    let Some(root) = conformance_folder::folder("mutations of real templates") else {
        return OWN.map(str::to_owned).to_vec();
    };
    let folder = std::fs::read_dir(root.join("templates")).expect("a set has templates");
    let mut paths: Vec<PathBuf> =
        folder.map(|file| file.expect("the folder is read").path()).collect();
    paths.sort();
    let texts =
        paths.iter().map(|path| std::fs::read_to_string(path).expect("a template is UTF-8"));
    texts.filter(|text| text.len() <= MAX).collect()
}

fn conversation() -> (Vec<Value>, Vec<Value>) {
    let call = json!({ "id": "call_1", "type": "function", "function": { "name": "add", "arguments": { "a": 1, "b": [2.5, null] } } });
    let messages = vec![
        json!({ "role": "system", "content": "Be brief." }),
        json!({ "role": "user", "content": "1 + 2?" }),
        json!({ "role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call] }),
        json!({ "role": "tool", "tool_call_id": "call_1", "name": "add", "content": "3" }),
        json!({ "role": "assistant", "content": "3" }),
        json!({ "role": "user", "content": [{ "type": "text", "text": "Und nun? 🦀" }] }),
    ];
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "number" }, "b": { "type": "array" } }, "required": ["a"] });
    let tool = json!({ "type": "function", "function": { "name": "add", "description": "Adds.", "parameters": parameters } });
    (messages, vec![tool])
}

/// Faults of llb. An error of kind `engine` is a caught panic.
#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    /// Returns the result unless it is an error. Records errors other than limits and faults of the
    /// template.
    fn check<T>(&mut self, result: Result<T>, template: &str) -> Option<T> {
        let ours = |error: &Error| {
            let kind = error.details().and_then(|details| details.get("kind"));
            error.code() == Code::InternalBridgeError || kind.is_some_and(|kind| kind == "engine")
        };
        result
            .map_err(|error| {
                if ours(&error) {
                    self.0.push(format!("{error}, in this template:\n{template}\n"))
                }
            })
            .ok()
    }

    #[track_caller]
    fn none(&self) {
        let first: Vec<&str> = self.0.iter().take(3).map(String::as_str).collect();
        assert!(self.0.is_empty(), "{} faults, starting with:\n{}", self.0.len(), first.join("\n"));
    }
}

#[test]
fn damaged_templates_are_rendered_or_refused() {
    let limits = Limits { fuel: 200_000, output_bytes: 1 << 20, ..Limits::default() };
    let (messages, tools) = conversation();
    let now = LocalTime::parse("2026-01-31T09:30:00").expect("this is a date");
    let templates = templates();
    let mut random = Random(1);
    let mut faults = Faults::default();
    let (mut compiled, mut rendered) = (0, 0);
    for round in 0..RENDERS {
        let template = mutated(&templates[round % templates.len()], &mut random);
        let sources = Sources {
            default: Some(template.clone()),
            bos_token: "<s>".to_owned(),
            eos_token: "</s>".to_owned(),
            ..Sources::default()
        };
        let Some(ready) = faults.check(Templates::compile(&sources), &template) else { continue };
        compiled += 1;
        let with_tools = !round.is_multiple_of(3);
        let prompt = ready.render(&RenderInput {
            tools: with_tools.then_some(&tools),
            add_generation_prompt: true,
            spans: true,
            limits,
            ..RenderInput::new(if with_tools { &messages } else { &messages[..2] }, now)
        });
        rendered += usize::from(faults.check(prompt, &template).is_some());
    }
    eprintln!("mutated templates: {RENDERS} made, {compiled} compiled, {rendered} rendered");
    faults.none();
    assert!(rendered > RENDERS / 8, "enough damaged templates still render: {rendered}");
}

#[test]
fn damaged_templates_are_probed_or_refused() {
    let templates = templates();
    let mut random = Random(2);
    let mut faults = Faults::default();
    for round in 0..INFOS {
        let template = mutated(&templates[round * 7 % templates.len()], &mut random);
        let request = json!({ "chat_template": template }).to_string();
        let Some(info) = faults.check(template_requests::info(&request), &template) else {
            continue;
        };
        assert_eq!(info["type"], "template_info");
        for (flag, evidence) in info["evidence"].as_object().into_iter().flatten() {
            if evidence["error"]["kind"] == "engine" {
                faults.0.push(format!("{flag}: {evidence}, in this template:\n{template}\n"));
            }
        }
    }
    faults.none();
}
