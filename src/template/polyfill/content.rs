//! Content in its two forms: a string or a list of parts.

use super::node::Node;
use super::segmented_text::SegmentedText;

/// Joins two contents. Strings are joined by `separator`; if one is a list, both become lists.
pub(super) fn join(first: Option<Node>, separator: &str, second: Option<Node>) -> Node {
    match (first, second) {
        (None, None) => Node::literal(""),
        (Some(only), None) | (None, Some(only)) => only,
        (Some(Node::Text(first)), Some(Node::Text(second))) => {
            Node::Text(first.followed_by(separator, &second))
        }
        (Some(first), Some(second)) => {
            let mut parts = into_parts(first);
            parts.extend(into_parts(second));
            Node::List(parts)
        }
    }
}

/// A content as a list of parts; an empty string has none.
pub(super) fn into_parts(content: Node) -> Vec<Node> {
    match content {
        Node::List(parts) => parts,
        Node::Text(text) if text.is_empty() => Vec::new(),
        Node::Text(text) => vec![Node::part("text", "text", text)],
        other => vec![other],
    }
}

/// The text of a list of parts. Text parts are joined by a newline, media markers by nothing. The
/// error is the first part without text.
pub(super) fn join_parts(parts: &[Node]) -> Result<SegmentedText, &Node> {
    let mut out = SegmentedText::default();
    let mut after_marker = true;
    for part in parts {
        let members = part.as_map().ok_or(part)?;
        let text = members.text("text").ok_or(part)?;
        let marker = match members.str("type") {
            Some("text") => false,
            Some("media_marker") => true,
            _ => return Err(part),
        };
        if !after_marker && !marker {
            out.push_str("\n");
        }
        out.push(text);
        after_marker = marker;
    }
    Ok(out)
}

/// A content as a single text, if it contains only text.
pub(super) fn plain_text(content: &Node) -> Option<SegmentedText> {
    match content {
        Node::Text(text) => Some(text.clone()),
        Node::List(parts) => join_parts(parts).ok(),
        _ => None,
    }
}

/// A content for use in JSON text: a string if it contains only text, else unchanged. `None` if it
/// is empty.
pub(super) fn compact(content: Option<&Node>) -> Option<Node> {
    let content = content?;
    match plain_text(content) {
        Some(text) if text.is_empty() => None,
        Some(text) => Some(Node::Text(text)),
        None => Some(content.clone()),
    }
}
