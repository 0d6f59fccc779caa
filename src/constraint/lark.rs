//! Builds a grammar in llguidance's dialect of Lark, rule by rule.
//!
//! llguidance's lexer does not backtrack: of the terminals that match next, it takes the longest.
//! Alternatives with a common prefix must therefore share it in the grammar, and [`Lark::choice`]
//! factors it out.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::ops::Range;

use serde_json::{Value, json};

/// The maximum nesting of groups. llguidance refuses grammars with 30 levels, regardless of what
/// they contain.
const MAX_DEPTH: usize = 30;

/// Finds the control tokens in a text. Returns the range and the id of each. The ranges are in
/// order and do not overlap.
pub type SpecialTokenFinder<'a> = &'a dyn Fn(&str) -> Vec<(Range<usize>, i32)>;

/// A symbol of a sequence.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Symbol {
    /// Literal text.
    Text(String),
    /// The special token with this id.
    Token(i32),
    /// The rule or terminal with this name.
    Rule(String),
}

/// A grammar that is being built.
pub(super) struct Lark<'a> {
    text: String,
    names: HashMap<String, String>,
    count: usize,
    specials: SpecialTokenFinder<'a>,
}

impl<'a> Lark<'a> {
    pub(super) fn new(specials: SpecialTokenFinder<'a>) -> Self {
        Lark { text: String::new(), names: HashMap::new(), count: 0, specials }
    }

    /// Reserves a new name, for a rule that refers to itself.
    pub(super) fn reserve(&mut self) -> String {
        self.count += 1;
        format!("r{}", self.count)
    }

    /// Defines the rule of a reserved name.
    pub(super) fn define(&mut self, name: &str, body: &str) {
        let _ = writeln!(self.text, "{name}: {body}");
    }

    /// Adds a rule. Equal bodies share one rule.
    pub(super) fn rule(&mut self, body: &str) -> Symbol {
        self.named("r", "", body)
    }

    /// Adds a terminal that matches the longest possible text.
    pub(super) fn terminal(&mut self, body: &str) -> Symbol {
        self.named("T", "", body)
    }

    /// Adds a terminal that matches the shortest possible text.
    pub(super) fn lazy(&mut self, body: &str) -> Symbol {
        self.named("r", "[lazy]", body)
    }

    /// The symbol for JSON of this schema with fixed whitespace, as chat templates print it.
    /// Otherwise a small model could emit whitespace without end.
    pub(super) fn json(&mut self, schema: &Value) -> Symbol {
        let style =
            json!({"whitespace_flexible": false, "item_separator": ", ", "key_separator": ": "});
        self.styled_json(schema, style)
    }

    /// The symbol for JSON of this schema with any whitespace, at most 64 characters in one place.
    pub(super) fn json_in_any_layout(&mut self, schema: &Value) -> Symbol {
        self.styled_json(schema, json!({"whitespace_pattern": r"[ \t\r\n]{1,64}"}))
    }

    fn styled_json(&mut self, schema: &Value, style: Value) -> Symbol {
        let mut schema = match schema {
            Value::Object(schema) => schema.clone(),
            _ => serde_json::Map::new(),
        };
        schema.insert("x-guidance".into(), style);
        self.rule(&format!("%json {}", Value::Object(schema)))
    }

    fn named(&mut self, letter: &str, options: &str, body: &str) -> Symbol {
        let key = format!("{letter}{options}:{body}");
        if let Some(name) = self.names.get(&key) {
            return Symbol::Rule(name.clone());
        }
        self.count += 1;
        let name = format!("{letter}{}", self.count);
        let _ = writeln!(self.text, "{name}{options}: {body}");
        self.names.insert(key, name.clone());
        Symbol::Rule(name)
    }

    /// Splits a text of the format into special tokens and plain text.
    pub(super) fn symbols(&self, text: &str) -> Vec<Symbol> {
        let mut symbols = Vec::new();
        let mut from = 0;
        for (range, token) in (self.specials)(text) {
            if range.start > from {
                symbols.push(Symbol::Text(text[from..range.start].to_owned()));
            }
            from = range.end;
            symbols.push(Symbol::Token(token));
        }
        if from < text.len() {
            symbols.push(Symbol::Text(text[from..].to_owned()));
        }
        symbols
    }

    /// The text of a choice between these sequences. Common prefixes are factored out.
    pub(super) fn choice(&mut self, alternatives: Vec<Vec<Symbol>>) -> String {
        let alternatives = alternatives.into_iter().map(merged).collect();
        factored(alternatives, 0)
    }

    /// Like `choice`, but adds a rule.
    pub(super) fn choice_rule(&mut self, alternatives: Vec<Vec<Symbol>>) -> Symbol {
        let body = self.choice(alternatives);
        self.rule(&body)
    }

    /// The rule that repeats these alternatives, followed by `tail`.
    pub(super) fn repeated(&mut self, ways: &[Vec<Symbol>], tail: &[Symbol]) -> Symbol {
        let name = self.reserve();
        let mut ways = each_followed_by(ways, &Symbol::Rule(name.clone()));
        ways.push(tail.to_vec());
        let body = self.choice(ways);
        self.define(&name, &body);
        Symbol::Rule(name)
    }

    /// Any text.
    pub(super) fn free_text(&mut self) -> Symbol {
        self.terminal("/(?s:.*)/")
    }

    /// Text up to a marker, the marker, and the rule after it.
    pub(super) fn text_until(&mut self, marker: &[Symbol], then: Symbol) -> Vec<Symbol> {
        let start = match marker {
            [Symbol::Text(text), Symbol::Token(_), ..] => {
                self.terminal(&format!("/(?s:.*)/ {}", literal(text)))
            }
            [Symbol::Text(text), ..] => self.lazy(&format!("/(?s:.*)/ {}", literal(text))),
            _ => return [vec![self.free_text()], marker.to_vec(), vec![then]].concat(),
        };
        [vec![start], marker[1..].to_vec(), vec![then]].concat()
    }

    /// The text of the whole grammar.
    pub(super) fn finish(self, start: &str) -> String {
        format!("start: {start}\n{}", self.text)
    }
}

/// The alternatives, each with this symbol after it.
pub(super) fn each_followed_by(ways: &[Vec<Symbol>], next: &Symbol) -> Vec<Vec<Symbol>> {
    ways.iter().map(|way| [way.as_slice(), std::slice::from_ref(next)].concat()).collect()
}

/// Joins adjacent texts of a sequence, and removes empty ones.
pub(super) fn merged(symbols: Vec<Symbol>) -> Vec<Symbol> {
    let mut result: Vec<Symbol> = Vec::with_capacity(symbols.len());
    for symbol in symbols {
        match (result.last_mut(), symbol) {
            (_, Symbol::Text(text)) if text.is_empty() => {}
            (Some(Symbol::Text(before)), Symbol::Text(text)) => before.push_str(&text),
            (_, symbol) => result.push(symbol),
        }
    }
    result
}

/// The common beginning of the alternatives of a group.
#[derive(PartialEq, Eq, Hash)]
enum Head {
    Char(Option<char>),
    Symbol(Symbol),
}

impl Head {
    fn of(symbol: &Symbol) -> Head {
        match symbol {
            Symbol::Text(text) => Head::Char(text.chars().next()),
            other => Head::Symbol(other.clone()),
        }
    }
}

fn factored(alternatives: Vec<Vec<Symbol>>, depth: usize) -> String {
    if depth > MAX_DEPTH {
        return literal("");
    }
    let mut groups: Vec<Vec<Vec<Symbol>>> = Vec::new();
    let (mut indices, mut seen) = (HashMap::new(), HashSet::new());
    let mut empty = false;
    for alternative in alternatives {
        let Some(first) = alternative.first() else {
            empty = true;
            continue;
        };
        if !seen.insert(alternative.clone()) {
            continue;
        }
        let index = *indices.entry(Head::of(first)).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[index].push(alternative);
    }
    let mut choices: Vec<String> =
        groups.into_iter().map(|alternatives| group(alternatives, depth)).collect();
    if empty {
        choices.push(r#""""#.to_owned());
    }
    choices.join(" | ")
}

/// The text of alternatives with a common prefix.
fn group(alternatives: Vec<Vec<Symbol>>, depth: usize) -> String {
    if let [alternative] = alternatives.as_slice() {
        return sequence(alternative);
    }
    let head = match &alternatives[0][0] {
        Symbol::Text(first) => {
            let texts = alternatives.iter().map(|alternative| match &alternative[0] {
                Symbol::Text(text) => text.as_str(),
                _ => "",
            });
            Symbol::Text(texts.fold(first.as_str(), common_prefix).to_owned())
        }
        other => other.clone(),
    };
    let rest = alternatives.into_iter().map(|mut alternative| {
        match (&mut alternative[0], &head) {
            (Symbol::Text(text), Symbol::Text(head)) if text.len() > head.len() => {
                text.drain(..head.len());
            }
            _ => {
                alternative.remove(0);
            }
        }
        alternative
    });
    let rest = factored(rest.collect(), depth + 1);
    format!("{} ({rest})", written(&head))
}

/// The common prefix of two texts.
pub(super) fn common_prefix<'a>(a: &'a str, b: &str) -> &'a str {
    let mut others = b.chars();
    let end = a.char_indices().find(|(_, char)| others.next() != Some(*char));
    end.map_or(a, |(end, _)| &a[..end])
}

/// The text of a sequence in Lark.
pub(super) fn sequence(symbols: &[Symbol]) -> String {
    if symbols.is_empty() {
        return r#""""#.to_owned();
    }
    symbols.iter().map(written).collect::<Vec<_>>().join(" ")
}

fn written(symbol: &Symbol) -> String {
    match symbol {
        Symbol::Text(text) => literal(text),
        Symbol::Token(token) => format!("<[{token}]>"),
        Symbol::Rule(name) => name.clone(),
    }
}

/// A Lark string literal. It has the escapes of JSON, and also escapes U+007F.
pub(super) fn literal(text: &str) -> String {
    Value::from(text).to_string().replace('\x7f', "\\u007f")
}

/// A regular expression that matches this text, without the enclosing slashes.
pub(super) fn escaped(text: &str) -> String {
    let mut result = String::with_capacity(text.len() + 8);
    for char in text.chars() {
        match char {
            '\n' => result.push_str("\\n"),
            '\r' => result.push_str("\\r"),
            '\t' => result.push_str("\\t"),
            char if char.is_control() => {
                let _ = write!(result, "\\x{{{:x}}}", u32::from(char));
            }
            char => {
                if r"\.+*?()|[]{}^$#&-~/".contains(char) {
                    result.push('\\');
                }
                result.push(char);
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(alternatives: &[&[&str]], expected: &str) {
        let specials = |_: &str| Vec::new();
        let symbol = |text: &&str| match text.strip_prefix('@') {
            Some(rule) => Symbol::Rule(rule.to_owned()),
            None => Symbol::Text((*text).to_owned()),
        };
        let alternatives =
            alternatives.iter().map(|symbols| symbols.iter().map(symbol).collect()).collect();
        assert_eq!(Lark::new(&specials).choice(alternatives), expected);
    }

    #[test]
    fn common_prefixes_are_factored_out() {
        check(&[&["a", "b"]], r#""ab""#);
        check(&[&["\n<i>", "@x"], &["\n</t>"]], r#""\n<" ("i>" x | "/t>")"#);
        check(&[&["get\""], &["get_all\""], &["put\""]], r#""get" ("\"" | "_all\"") | "put\"""#);
        check(&[&["a", "@x"], &["a"], &[]], r#""a" (x | "") | """#);
        check(&[&["@id", "a"], &["@id", "b"]], r#"id ("a" | "b")"#);
        check(&[&["a", "@x"], &["a", "@x"]], r#""a" x"#);
        check(&[&["é1"], &["è2"]], r#""é1" | "è2""#);
    }

    #[test]
    fn escapes() {
        assert_eq!(escaped("</a>\n.b"), r"<\/a>\n\.b");
        assert_eq!(literal("a\x7f\""), r#""a\u007f\"""#);
    }
}
