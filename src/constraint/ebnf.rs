//! Rewrites a grammar as EBNF for xgrammar, which reads Lark only since version 0.2.5.
//!
//! In: a grammar in llguidance's Lark. Out: one in xgrammar's EBNF with the same language, or
//! nothing. EBNF has no special tokens, and no intersections and complements of terminals. A lazy
//! terminal that ends at a text becomes the automaton that finds the first place of the text.

use std::fmt::Write;

use super::ebnf_json::SchemaRules;
use super::ebnf_rules::{EbnfRules, literal};
use super::xgrammar::end_of;
use crate::json;

/// The maximum number of characters of a text that ends a lazy terminal.
const MAX_ENDING: usize = 64;

/// The grammar as EBNF. `None` if EBNF cannot express this one.
pub fn for_ebnf(lark: &str) -> Option<String> {
    let mut rules = EbnfRules::default();
    for line in lark.lines() {
        let (name, body) = line.split_once(": ")?;
        if let Some(name) = name.strip_suffix("[lazy]") {
            define_first_place(&mut rules, name, body)?;
            continue;
        }
        let body = rewritten(&mut rules, body)?;
        rules.define(if name == "start" { "root" } else { name }, &body);
    }
    Some(rules.finish())
}

/// The body of a rule or terminal in EBNF.
fn rewritten(rules: &mut EbnfRules, lark: &str) -> Option<String> {
    let mut written = String::with_capacity(lark.len());
    let mut rest = lark;
    while let Some(next) = rest.chars().next() {
        let length = match next {
            '"' => {
                let end = end_of(rest, '"')?;
                let text = json::value(&rest.as_bytes()[..end]).ok()?;
                written.push_str(&literal(text.as_str()?));
                // A letter after a text is a flag.
                let has_flag = rest[end..].starts_with(|next: char| next.is_alphanumeric());
                (!has_flag).then_some(end)?
            }
            '/' => {
                let end = end_of(rest, '/')?;
                let _ = write!(written, "({})", of_regex(&rest[1..end - 1])?);
                end
            }
            '%' => {
                let schema = rest.strip_prefix("%json ")?;
                let schema = json::value(schema.as_bytes()).ok()?;
                written.push_str(&SchemaRules::of(rules, &schema)?);
                rest.len()
            }
            '(' | ')' | '|' | '?' | '*' | '+' | ' ' | '_' => {
                written.push(next);
                1
            }
            next if next.is_ascii_alphanumeric() => {
                written.push(next);
                1
            }
            _ => return None,
        };
        rest = &rest[length..];
    }
    Some(written)
}

/// Defines the rule for a lazy terminal that ends at a text: everything up to the end of the
/// first place where the text is. Each rule but the first is for a number of characters of the
/// text that were just read.
fn define_first_place(rules: &mut EbnfRules, name: &str, body: &str) -> Option<()> {
    let ending = json::value(body.strip_prefix("/(?s:.*)/ ")?.as_bytes()).ok()?;
    let ending: Vec<char> = ending.as_str()?.chars().collect();
    if ending.is_empty() || ending.len() > MAX_ENDING {
        return None;
    }
    let mut distinct = ending.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let place = |read: usize| match read {
        0 => name.to_owned(),
        read => format!("{name}_{read}"),
    };
    for read in 0..ending.len() {
        let mut ways = Vec::new();
        let mut others = String::new();
        for char in &distinct {
            let next = read_after(&ending, read, *char);
            if next == 0 {
                continue;
            }
            others.push_str(&in_class(*char));
            let text = literal(&char.to_string());
            ways.push(match next == ending.len() {
                true => text,
                false => format!("{text} {}", place(next)),
            });
        }
        // The text before the first character needs no rule for each of its own.
        match read {
            0 => rules.define(name, &format!("[^{others}]* {}", ways.concat())),
            _ => {
                ways.push(format!("[^{others}] {name}"));
                rules.define(&place(read), &ways.join(" | "));
            }
        }
    }
    Some(())
}

/// How many characters of `text` have been read after one more, if `read` of them had been.
fn read_after(text: &[char], read: usize, next: char) -> usize {
    let before = &text[..read];
    let fits = |length: &usize| text[*length - 1] == next && before.ends_with(&text[..*length - 1]);
    (1..=read + 1).rev().find(fits).unwrap_or(0)
}

/// A character in a character class. After `\x`, xgrammar would read all digits that follow.
fn in_class(char: char) -> String {
    match char.is_ascii_alphanumeric() || !char.is_ascii() {
        true => char.to_string(),
        false => format!("\\u{:04x}", u32::from(char)),
    }
}

/// A regular expression that consists of characters, classes of listed characters, groups and
/// repetitions. `None` for others.
fn of_regex(regex: &str) -> Option<String> {
    let mut written = String::new();
    let mut rest = regex.chars();
    // Whether a repetition may follow.
    let mut repeats = false;
    while let Some(next) = rest.next() {
        match next {
            '?' | '*' | '+' if repeats => written.push(next),
            '{' if repeats => {
                let (bounds, after) = rest.as_str().split_once('}')?;
                let is_bounds = bounds.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
                (is_bounds && !bounds.starts_with(',')).then_some(())?;
                let _ = write!(written, "{{{bounds}}}");
                rest = after.chars();
            }
            '(' => {
                rest = rest.as_str().strip_prefix("?:").unwrap_or(rest.as_str()).chars();
                start(&mut written);
                written.push('(');
            }
            ')' => written.push(')'),
            '|' => written.push_str(" |"),
            '[' => {
                start(&mut written);
                written.push('[');
                if let Some(after) = rest.as_str().strip_prefix('^') {
                    written.push('^');
                    rest = after.chars();
                }
                loop {
                    match rest.next()? {
                        ']' => break,
                        '-' => written.push('-'),
                        '\\' => written.push_str(&in_class(escaped(rest.next()?)?)),
                        // Classes in classes, and operators between them.
                        '[' | '&' | '~' => return None,
                        other => written.push_str(&in_class(other)),
                    }
                }
                written.push(']');
            }
            '\\' => {
                start(&mut written);
                written.push_str(&literal(&escaped(rest.next()?)?.to_string()));
            }
            '.' | '^' | '$' | '?' | '*' | '+' | '{' | '}' => return None,
            other => {
                start(&mut written);
                written.push_str(&literal(&other.to_string()));
            }
        }
        repeats = !matches!(next, '(' | '|' | '?' | '*' | '+' | '{');
    }
    (!written.is_empty()).then_some(written)
}

/// Separates an element from the one before it.
fn start(written: &mut String) {
    if !written.is_empty() && !written.ends_with('(') {
        written.push(' ');
    }
}

/// The character of an escape in a regular expression. `None` for a class.
fn escaped(char: char) -> Option<char> {
    match char {
        'n' => Some('\n'),
        'r' => Some('\r'),
        't' => Some('\t'),
        char if char.is_ascii_punctuation() => Some(char),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lark: &str, expected: &str) {
        assert_eq!(for_ebnf(lark).as_deref(), Some(expected));
    }

    #[test]
    fn rules_and_terminals_are_rewritten() {
        check(
            "start: T1? (\"a\\n\\\"\" r2 | \"\\u007f\")\nr2: \"\" | \"é\" r2\nT1: /[ \\n]{1,3}/\n",
            "root ::= T1? (\"a\\n\\\"\" r2 | \"\\u007f\")\nr2 ::= \"\" | \"é\" r2\n\
             T1 ::= ([\\u0020\\u000a]{1,3})\n",
        );
        check(
            r"start: /-?(0|[1-9][0-9]*)(?:\.[^\/a]+)?/",
            "root ::= (\"-\"? (\"0\" | [1-9] [0-9]*) (\".\" [^\\u002fa]+)?)\n",
        );
    }

    #[test]
    fn a_lazy_terminal_ends_at_the_first_place() {
        check(
            "start: r1\nr1[lazy]: /(?s:.*)/ \"aab\"\n",
            "root ::= r1\nr1 ::= [^a]* \"a\" r1_1\nr1_1 ::= \"a\" r1_2 | [^a] r1\n\
             r1_2 ::= \"a\" r1_2 | \"b\" | [^ab] r1\n",
        );
    }

    #[test]
    fn what_ebnf_cannot_express_is_found() {
        for lark in [
            "start: <[5]>",
            "start: T\nT: /a/ & /b/",
            "start: T\nT: ~/a/",
            "start: \"a\"i",
            "start: /(?s:.*)/",
            "start: /a.b/",
            "start: /(?i:a)/",
            "start: /[\\d]/",
            "start: /[a&&b]/",
            "start: /\\w+/",
            "start: /a*?/",
            "start: r1\nr1[lazy]: /[ \\n]*/ \"a\"\n",
            "start: r1\nr1[lazy]: /(?s:.*)/ \"\"\n",
            "start: r1\nr1: %lark {\nstart: \"a\"\n}\n",
            "start: \"a",
        ] {
            assert_eq!(for_ebnf(lark), None, "{lark}");
        }
    }
}
