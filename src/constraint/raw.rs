//! Text that stands as it is, up to the tag that closes it.

use super::lark::{Lark, Piece, escaped};
use super::shape::Text;

/// A text of this schema and the tag after it. The text never holds that tag, whatever blanks stand around it.
pub(super) fn text(lark: &mut Lark, text: &Text, close: &str) -> Vec<Piece> {
    let forbidden = if close.trim().is_empty() { close } else { close.trim() };
    let body = format!("({} & ~/(?s:.*){}(?s:.*)/)", text.terminal("."), escaped(forbidden));
    let mut rest = lark.pieces(close);
    let Some(Piece::Text(first)) = rest.first().cloned() else {
        return [vec![lark.terminal(&body)], rest].concat();
    };
    rest.remove(0);
    let tag_end = first.trim_end().len();
    if tag_end == 0 && !rest.is_empty() {
        // Blanks, then a special token: it ends the text.
        let body = format!("{body} {}", super::lark::literal(&first));
        return [vec![lark.terminal(&body)], rest].concat();
    }
    let (ending, after) = first.split_at(if tag_end == 0 { first.len() } else { tag_end });
    let body = format!("{body} {}", super::lark::literal(ending));
    [vec![lark.lazy(&body), Piece::Text(after.to_owned())], rest].concat()
}

/// Exactly this text and the tag after it; None where the text cannot be told from the tag.
pub(super) fn exactly(lark: &Lark, text: &str, close: &str) -> Option<Vec<Piece>> {
    let tag = close.trim();
    if !tag.is_empty() && text.contains(tag) {
        return None;
    }
    Some([vec![Piece::Text(text.to_owned())], lark.pieces(close)].concat())
}
