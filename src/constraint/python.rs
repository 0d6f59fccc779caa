//! Python literals.

use super::json_like::JsonLikeSyntax;
use super::lark::{Lark, Symbol};
use super::shape::StringShape;

/// Python syntax. Strings have single or double quotes.
pub(super) struct Python;

impl JsonLikeSyntax for Python {
    fn colon(&self) -> &str {
        ": "
    }

    fn comma(&self) -> &str {
        ", "
    }

    fn constants(&self) -> [&str; 3] {
        ["None", "True", "False"]
    }

    fn key(&self, name: &str) -> Option<String> {
        self.constant(name)
    }

    fn any_key(&self, lark: &mut Lark) -> Vec<Symbol> {
        vec![lark.terminal(&quoted('\'', &StringShape::default()))]
    }

    fn constant(&self, text: &str) -> Option<String> {
        let mut result = String::from("'");
        for char in text.chars() {
            match char {
                '\n' => result.push_str("\\n"),
                '\r' => result.push_str("\\r"),
                '\t' => result.push_str("\\t"),
                '\\' | '\'' => result.extend(['\\', char]),
                char if char.is_control() => return None,
                char => result.push(char),
            }
        }
        result.push('\'');
        Some(result)
    }

    fn text(&self, lark: &mut Lark, text: &StringShape) -> Vec<Vec<Symbol>> {
        ['\'', '"'].map(|quote| vec![lark.terminal(&quoted(quote, text))]).to_vec()
    }
}

/// A constrained string must not contain escapes, so its spelling equals its text.
fn quoted(quote: char, text: &StringShape) -> String {
    let plain = format!("[^\\x00-\\x1f\\x7f\\\\{quote}]");
    let body = if text.is_free() {
        format!("/(?s:({plain}|\\\\[\\\\nrt'\"])*)/")
    } else {
        text.terminal(&plain)
    };
    let quote = super::lark::literal(&quote.to_string());
    format!("{quote} ({body}) {quote}")
}
