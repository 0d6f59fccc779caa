//! The tags of nested elements, and what must follow a tag in text so that it ends an element.

use crate::output::read::arguments::MarkMatch;

/// The maximum length of a tag's name.
const MAX_NAME: usize = 128;
/// The maximum number of whitespace characters between an end tag and the tag that confirms it.
const MAX_WHITESPACE: usize = 64;

/// A tag without its prefix.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ElementTag {
    No,
    Part,
    Open(String),
    Close(String),
}

impl ElementTag {
    /// Reads a text that may be a tag or the beginning of one.
    pub(super) fn parse(text: &str, prefix: &str) -> ElementTag {
        let Some(rest) = text.strip_prefix(prefix) else {
            return if prefix.starts_with(text) { ElementTag::Part } else { ElementTag::No };
        };
        if rest.is_empty() {
            return ElementTag::Part;
        }
        let Some(rest) = rest.strip_prefix('<') else { return ElementTag::No };
        let (name, closes) = match rest.strip_prefix('/') {
            Some(name) => (name, true),
            None => (rest, false),
        };
        let Some(name) = name.strip_suffix('>') else {
            return if name.len() > MAX_NAME || name.contains(['<', '\n', '>']) {
                ElementTag::No
            } else {
                ElementTag::Part
            };
        };
        match (name.trim(), closes) {
            ("", _) => ElementTag::No,
            (name, true) => ElementTag::Close(name.to_owned()),
            (name, false) => ElementTag::Open(name.to_owned()),
        }
    }
}

/// The text after the tag at the start of a text.
pub(super) fn after_tag<'a>(text: &'a str, prefix: &str) -> &'a str {
    let end = text[prefix.len()..].find('>').map_or(text.len(), |at| prefix.len() + at + 1);
    &text[end..]
}

/// Whether a tag is confirmed by the text after it, which must begin with one of `expected` or have
/// much whitespace.
pub(super) fn confirmed(
    after: &str,
    expected: impl IntoIterator<Item = impl AsRef<str>>,
) -> MarkMatch {
    let rest = after.trim_start();
    match after.len() - rest.len() > MAX_WHITESPACE {
        true => MarkMatch::Full(0),
        false => MarkMatch::of_any(rest, expected),
    }
}
