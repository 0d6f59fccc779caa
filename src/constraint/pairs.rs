//! Objects with bare keys and special quotes: `{a:1,b:<|"|>x<|"|>}`.

use super::json_like::{JsonLikeSyntax, is_name};
use super::lark::{Lark, Symbol};
use super::raw_text;
use super::shape::StringShape;

/// The syntax, with this quote around strings.
pub(super) struct Pairs<'a>(pub(super) &'a str);

impl JsonLikeSyntax for Pairs<'_> {
    fn colon(&self) -> &str {
        ":"
    }

    fn comma(&self) -> &str {
        ","
    }

    fn constants(&self) -> [&str; 3] {
        ["null", "true", "false"]
    }

    fn key(&self, name: &str) -> Option<String> {
        is_name(name).then(|| name.to_owned())
    }

    fn any_key(&self, lark: &mut Lark) -> Vec<Symbol> {
        vec![lark.terminal("/[A-Za-z_][A-Za-z0-9_]*/")]
    }

    fn constant(&self, text: &str) -> Option<String> {
        (!text.contains(self.0)).then(|| format!("{0}{text}{0}", self.0))
    }

    fn text(&self, lark: &mut Lark, text: &StringShape) -> Vec<Vec<Symbol>> {
        let open = lark.symbols(self.0);
        vec![[open, raw_text::closed_text(lark, text, self.0)].concat()]
    }
}
