//! JSON inside a JSON string: `"{\"a\": 1}"`.

use serde_json::Value;

use super::json_like::JsonLikeSyntax;
use super::lark::{Lark, Symbol};
use super::shape::StringShape;

/// JSON with every quote and backslash escaped once more.
pub(super) struct JsonTextSyntax;

impl JsonLikeSyntax for JsonTextSyntax {
    fn colon(&self) -> &str {
        ": "
    }

    fn comma(&self) -> &str {
        ", "
    }

    fn constants(&self) -> [&str; 3] {
        ["null", "true", "false"]
    }

    fn key(&self, name: &str) -> Option<String> {
        self.constant(name)
    }

    fn any_key(&self, lark: &mut Lark) -> Vec<Symbol> {
        vec![lark.terminal(&quoted(&StringShape::default()))]
    }

    fn constant(&self, text: &str) -> Option<String> {
        let inner = Value::from(text).to_string();
        let outer = Value::from(inner).to_string();
        Some(outer[1..outer.len() - 1].to_owned())
    }

    fn text(&self, lark: &mut Lark, text: &StringShape) -> Vec<Vec<Symbol>> {
        vec![vec![lark.terminal(&quoted(text))]]
    }
}

/// A constrained string must not contain escapes, so its spelling equals its text.
fn quoted(text: &StringShape) -> String {
    let plain = r#"[^\x00-\x1f\x7f\\"]"#;
    let body = if text.is_free() {
        // In the outer string, an inner `\n` is `\\n`, `\"` is `\\\"`, and `\\` is `\\\\`.
        format!(r#"/(?s:({plain}|\\\\([nrtbf]|\\"|\\\\))*)/"#)
    } else {
        text.terminal(plain)
    };
    let quote = super::lark::literal("\\\"");
    format!("{quote} ({body}) {quote}")
}
