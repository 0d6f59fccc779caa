//! The syntaxes of arguments that are like JSON: Python literals, JSON inside a JSON string, JSON
//! whose special characters are entities, and objects with bare keys and special quotes.

use serde_json::Value;

use super::lark::{Lark, Symbol, escaped, literal};
use super::raw_text;
use super::shape::StringShape;
use crate::output::call_writer;
use crate::output::format::{Entities, with_entities};

/// The differences of a syntax from JSON.
pub(super) trait JsonLikeSyntax {
    /// The text between a key and its value.
    fn colon(&self) -> &str {
        ": "
    }

    /// The text between two members or items.
    fn comma(&self) -> &str {
        ", "
    }

    /// The spellings of `null`, `true` and `false`.
    fn constants(&self) -> [&str; 3] {
        ["null", "true", "false"]
    }

    /// The text of a listed key; None if the syntax cannot express it.
    fn key(&self, lark: &Lark, name: &str) -> Option<Vec<Symbol>> {
        self.constant(lark, name)
    }

    fn any_key(&self, lark: &mut Lark) -> Vec<Symbol>;
    /// The text of exactly this string; None if the syntax cannot express it.
    fn constant(&self, lark: &Lark, text: &str) -> Option<Vec<Symbol>>;
    /// The alternatives for a string of this schema.
    fn text(&self, lark: &mut Lark, text: &StringShape) -> Vec<Vec<Symbol>>;
}

/// Python syntax. Strings have single or double quotes.
pub(super) struct Python;

impl JsonLikeSyntax for Python {
    fn constants(&self) -> [&str; 3] {
        ["None", "True", "False"]
    }

    fn any_key(&self, lark: &mut Lark) -> Vec<Symbol> {
        vec![lark.terminal(&python_string('\'', &StringShape::default()))]
    }

    fn constant(&self, _: &Lark, text: &str) -> Option<Vec<Symbol>> {
        Some(vec![Symbol::Text(call_writer::repr_text(&Value::from(text)))])
    }

    fn text(&self, lark: &mut Lark, text: &StringShape) -> Vec<Vec<Symbol>> {
        ['\'', '"'].map(|quote| vec![lark.terminal(&python_string(quote, text))]).to_vec()
    }
}

/// A constrained string must not contain escapes, so its spelling equals its text.
fn python_string(quote: char, text: &StringShape) -> String {
    let plain = format!("[^\\x00-\\x1f\\x7f\\\\{quote}]");
    let body = if text.is_free() {
        format!("/(?s:({plain}|\\\\([\\\\nrt'\"]|x[0-9a-f]{{2}}))*)/")
    } else {
        text.terminal(&plain)
    };
    let quote = literal(&quote.to_string());
    format!("{quote} ({body}) {quote}")
}

/// JSON with every quote and backslash escaped once more.
pub(super) struct JsonTextSyntax;

impl JsonLikeSyntax for JsonTextSyntax {
    fn any_key(&self, lark: &mut Lark) -> Vec<Symbol> {
        vec![lark.terminal(&json_text_string(&StringShape::default()))]
    }

    fn constant(&self, _: &Lark, text: &str) -> Option<Vec<Symbol>> {
        let inner = Value::from(text).to_string();
        let outer = Value::from(inner).to_string();
        Some(vec![Symbol::Text(outer[1..outer.len() - 1].to_owned())])
    }

    fn text(&self, lark: &mut Lark, text: &StringShape) -> Vec<Vec<Symbol>> {
        vec![vec![lark.terminal(&json_text_string(text))]]
    }
}

/// A constrained string must not contain escapes, so its spelling equals its text.
fn json_text_string(text: &StringShape) -> String {
    let plain = r#"[^\x00-\x1f\x7f\\"]"#;
    let body = if text.is_free() {
        // In the outer string, an inner `\n` is `\\n`, `\"` is `\\\"`, and `\\` is `\\\\`.
        format!(r#"/(?s:({plain}|\\\\([nrtbf]|\\"|\\\\))*)/"#)
    } else {
        text.terminal(plain)
    };
    let quote = literal("\\\"");
    format!("{quote} ({body}) {quote}")
}

/// JSON in which these characters are entities, those of strings and those around them.
pub(super) struct EntityJson(pub(super) Entities);

impl EntityJson {
    /// A constrained string must not contain escapes, so its spelling equals its text.
    fn string(&self, text: &StringShape) -> String {
        let special: String = self.0.iter().map(|(special, _)| *special).collect();
        let plain = format!(r#"[^\x00-\x1f\\"{}]"#, escaped(&special));
        let quote = with_entities("\"", self.0);
        let body = if text.is_free() {
            // A quote in a string has a backslash, whether it is an entity or not.
            let inside = self.0.iter().filter(|(special, _)| *special != '"');
            let entities: Vec<_> = inside.map(|(_, entity)| escaped(entity)).collect();
            let escapes = format!(r"\\([\\bfnrt]|u00[01][0-9a-f]|{})", escaped(&quote));
            let entities = entities.join("|");
            format!("/(?s:({plain}|{escapes}|{entities})*)/")
        } else {
            text.terminal(&plain)
        };
        let quote = literal(&quote);
        format!("{quote} ({body}) {quote}")
    }
}

impl JsonLikeSyntax for EntityJson {
    fn any_key(&self, lark: &mut Lark) -> Vec<Symbol> {
        vec![lark.terminal(&self.string(&StringShape::default()))]
    }

    fn constant(&self, _: &Lark, text: &str) -> Option<Vec<Symbol>> {
        let json = Value::from(text).to_string();
        Some(vec![Symbol::Text(with_entities(&json, self.0))])
    }

    fn text(&self, lark: &mut Lark, text: &StringShape) -> Vec<Vec<Symbol>> {
        vec![vec![lark.terminal(&self.string(text))]]
    }
}

/// The syntax, with this quote around strings.
pub(super) struct Pairs<'a>(pub(super) &'a str);

impl JsonLikeSyntax for Pairs<'_> {
    fn colon(&self) -> &str {
        ":"
    }

    fn comma(&self) -> &str {
        ","
    }

    fn key(&self, _: &Lark, name: &str) -> Option<Vec<Symbol>> {
        Some(vec![Symbol::Text(name.to_owned())])
    }

    fn any_key(&self, lark: &mut Lark) -> Vec<Symbol> {
        vec![lark.terminal(r"/[\p{L}_$@]([\p{L}\p{N}_$@. \-]*[\p{L}\p{N}_$@.\-])?/")]
    }

    fn constant(&self, lark: &Lark, text: &str) -> Option<Vec<Symbol>> {
        let quote = lark.symbols(self.0);
        let text = (!text.contains(self.0)).then(|| vec![Symbol::Text(text.to_owned())])?;
        Some([quote.clone(), text, quote].concat())
    }

    fn text(&self, lark: &mut Lark, text: &StringShape) -> Vec<Vec<Symbol>> {
        vec![raw_text::quoted(lark, text, self.0)]
    }
}
