//! Rules of a grammar in xgrammar's EBNF, as they are written.

use std::fmt::Write;

/// Rules in EBNF.
#[derive(Default)]
pub(super) struct EbnfRules {
    text: String,
    count: usize,
    /// Whether the rules for JSON of any kind are there.
    has_json: bool,
}

impl EbnfRules {
    /// A name that no rule of the grammar in Lark has.
    pub(super) fn reserve(&mut self) -> String {
        self.count += 1;
        format!("j{}", self.count)
    }

    pub(super) fn define(&mut self, name: &str, body: &str) {
        let _ = writeln!(self.text, "{name} ::= {body}");
    }

    /// Adds a rule. Returns its name.
    pub(super) fn rule(&mut self, body: &str) -> String {
        let name = self.reserve();
        self.define(&name, body);
        name
    }

    /// Whether the rules for JSON of any kind were missing. They are no longer.
    pub(super) fn begin_json(&mut self) -> bool {
        !std::mem::replace(&mut self.has_json, true)
    }

    /// The text of the grammar.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

/// A text in EBNF.
pub(super) fn literal(text: &str) -> String {
    let mut written = String::with_capacity(text.len() + 2);
    written.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => written.extend(['\\', char]),
            '\n' => written.push_str("\\n"),
            char if char.is_ascii_control() => {
                let _ = write!(written, "\\u{:04x}", u32::from(char));
            }
            char => written.push(char),
        }
    }
    written.push('"');
    written
}
