//! Generates grammars in llguidance's Lark. Most of them compile: every name is defined once, and
//! each construct is where it is allowed.

use arbitrary::{Arbitrary, Unstructured};
use serde_json::Value;

use crate::{rarely, schemas};

const RULES: [&str; 3] = ["a", "?c", "!e"];
/// Rules with a parameter, which their bodies need.
const PARAMETRIC: [&str; 2] = ["p", "q"];
/// Each of them may use those after it: terminals are not recursive.
const TERMINALS: [&str; 4] = ["A", "B", "C", "D"];
const DIRECTIVES: [&str; 7] = [
    "%ignore / /",
    "%ignore /[ \\n]+/",
    "%import common.INT",
    "%import common (WS, NUMBER)",
    "%llguidance {\"no_forcing\": true}",
    "%llguidance {\"allow_initial_skip\": true, \"allow_invalid_utf8\": true}",
    "%llguidance {}",
];
/// Of rules whose bodies are those of terminals.
const ATTRIBUTES: [&str; 7] = [
    "lazy",
    "stop=\"a\"",
    "stop=/b+/",
    "suffix=/c/",
    "max_tokens=2",
    "temperature=0.5",
    "stop=\"b\", stop_capture=\"y\"",
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
/// What a rule without a parameter can pass.
const NUMBERS: [&str; 4] = ["0", "5", "0xff", "18446744073709551615"];
/// What a rule with a parameter can pass.
const PARAMETERS: [&str; 6] =
    ["_", "incr(_)", "decr([0:8])", "set_bit(5)", "clear_bit(63)", "bit_and(_, 7)"];
const CLASSES: [&str; 13] = [
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
];
/// Refused, or only valid elsewhere.
const ODD: [&str; 15] = [
    "<think>",
    "<[99999]>",
    "<x>",
    "undefined",
    "F",
    "p::_",
    "a::1",
    "p",
    "/\\b/",
    "//",
    "/a*?/",
    "\"b\"{3,1}",
    "\"b\"{0,0}",
    "\"b\"~1..3",
    "p::0xffffffffffffffffff",
];
const ODD_LINES: [&str; 7] = [
    "%declare E",
    "%override a: \"x\"",
    "%import common (A)",
    "B.2: \"x\"",
    "a{x}: x",
    "a: \"twice\"",
    "p::_: \"no need\"",
];

/// Where an expression stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Rule,
    Parametric,
    /// The terminal with this number.
    Terminal(usize),
    /// In a grammar inside of another one, which has no rules but its start.
    Nested,
}

/// Generates a grammar.
pub fn grammar(u: &mut Unstructured<'_>) -> arbitrary::Result<String> {
    let mut lines = Vec::new();
    if rarely(u, 2)? {
        lines.push((*u.choose(&DIRECTIVES)?).to_owned());
    }
    lines.push(format!("start: {}", expression(u, Place::Rule, 0)?));
    for name in RULES {
        lines.push(match rarely(u, 3)? {
            true => {
                let attribute = u.choose(&ATTRIBUTES)?;
                format!("{name}[{attribute}]: {}", expression(u, Place::Terminal(0), 1)?)
            }
            false => {
                let capture = *u.choose(&["", "", "[capture]", "[capture=\"x\"]"])?;
                format!("{name}{capture}: {}", body(u, Place::Rule)?)
            }
        });
    }
    for name in PARAMETRIC {
        let condition = u.choose(&CONDITIONS)?;
        let (first, second) = (body(u, Place::Parametric)?, body(u, Place::Parametric)?);
        lines.push(format!("{name}::_: {first} %if {condition} | {second}"));
    }
    for (index, name) in TERMINALS.into_iter().enumerate() {
        lines.push(format!("{name}: {}", body(u, Place::Terminal(index + 1))?));
    }
    if rarely(u, 12)? {
        lines.push((*u.choose(&ODD_LINES)?).to_owned());
    }
    if rarely(u, 24)? {
        let at = u.choose_index(lines.len())?;
        lines.remove(at);
    }
    let mut text = lines.join("\n");
    if rarely(u, 24)? {
        let at = u.choose_index(text.len())?;
        if text.is_char_boundary(at) {
            text.insert(at, u.arbitrary()?);
        }
    }
    Ok(text)
}

/// One alternative without `|`, which is mostly short.
fn body(u: &mut Unstructured<'_>, place: Place) -> arbitrary::Result<String> {
    if rarely(u, 2)? { sequence(u, place, 1) } else { Ok("\"x\"".to_owned()) }
}

fn expression(u: &mut Unstructured<'_>, place: Place, depth: usize) -> arbitrary::Result<String> {
    let mut alternatives = Vec::new();
    for _ in 0..u.int_in_range(1..=3)? {
        alternatives.push(sequence(u, place, depth)?);
    }
    Ok(alternatives.join(" | "))
}

fn sequence(u: &mut Unstructured<'_>, place: Place, depth: usize) -> arbitrary::Result<String> {
    let mut items = Vec::new();
    for _ in 0..u.int_in_range(1..=3)? {
        items.push(item(u, place, depth)?);
    }
    let intersects = matches!(place, Place::Terminal(_)) && rarely(u, 4)?;
    Ok(items.join(if intersects { " & " } else { " " }))
}

fn item(u: &mut Unstructured<'_>, place: Place, depth: usize) -> arbitrary::Result<String> {
    if rarely(u, 200)? {
        return Ok((*u.choose(&ODD)?).to_owned());
    }
    let text = |text: &str| Value::from(text).to_string();
    let after = if let Place::Terminal(index) = place { index } else { 0 };
    let most = if depth < 4 { 9 } else { 3 };
    let item = match u.int_in_range(0..=most)? {
        0 => text(u.choose(&["a", "ab", "", "é", "\n", "\0", "<s>"])?),
        1 => format!("{}i", text(u.choose(&["a", "Ab", "ß"])?)),
        2 => "\"a\"..\"z\"".to_owned(),
        3 => format!("/{}/", regex(u, 0)?),
        4 | 5 if after < TERMINALS.len() && place != Place::Nested => {
            (*u.choose(&TERMINALS[after..])?).to_owned()
        }
        6 => format!("({})", expression(u, place, depth + 1)?),
        7 => format!("[{}]", expression(u, place, depth + 1)?),
        8 => {
            let words = text(&String::arbitrary(u)?);
            format!("%regex {{\"substring_words\": {words}}}")
        }
        _ => return of_rule(u, place, depth),
    };
    // Repetitions of repetitions are soon too many.
    let more = if depth < 2 { *u.choose(&[1, 3, 9, 200])? } else { 1 };
    let least: u32 = u.int_in_range(0..=2)?;
    let most = least + more;
    Ok(match u.int_in_range(0..=19)? {
        0 => format!("{item}*"),
        1 => format!("{item}+"),
        2 => format!("{item}?"),
        3 => format!("{item}{{{least},{most}}}"),
        4 => format!("{item}~{most}"),
        5 => format!("{item}{{{least},}}"),
        6 if matches!(place, Place::Terminal(_)) => format!("~{item}"),
        _ => item,
    })
}

/// What rules have and terminals have not.
fn of_rule(u: &mut Unstructured<'_>, place: Place, depth: usize) -> arbitrary::Result<String> {
    if matches!(place, Place::Terminal(_)) {
        return Ok("\"y\"".to_owned());
    }
    let rules = place != Place::Nested;
    Ok(match u.int_in_range(0..=5)? {
        0 if rules => u.choose(&RULES)?.trim_start_matches(['?', '!']).to_owned(),
        1 if rules && place == Place::Parametric => {
            format!("{}::{}", u.choose(&PARAMETRIC)?, u.choose(&PARAMETERS)?)
        }
        1 | 2 if rules => format!("{}::{}", u.choose(&PARAMETRIC)?, u.choose(&NUMBERS)?),
        3 => (*u.choose(&["<[1]>", "<[5-9,70]>", "<[^3]>", "<[*]>"])?).to_owned(),
        4 if depth < 4 => format!("%lark {{ start: {} }}", expression(u, Place::Nested, 3)?),
        _ => format!("%json {}", schemas::schema(u, 0)?),
    })
}

fn regex(u: &mut Unstructured<'_>, depth: usize) -> arbitrary::Result<String> {
    let mut text = String::new();
    for _ in 0..u.int_in_range(1..=3)? {
        match u.int_in_range(0..=7)? {
            0 if depth < 4 => text += &format!("({})", regex(u, depth + 1)?),
            1 if depth < 4 => {
                text += &format!("({}|{})", regex(u, depth + 1)?, regex(u, depth + 1)?);
            }
            _ => text += u.choose(&CLASSES)?,
        }
        text += match depth {
            0 => *u.choose(&["", "", "", "*", "+", "?", "{2}", "{0,9}", "{3,}"])?,
            _ => *u.choose(&["", "", "", "*", "+", "?"])?,
        };
    }
    Ok(text)
}
