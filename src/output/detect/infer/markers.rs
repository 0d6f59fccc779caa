//! Markers in the texts of a template: positions that cut none in two, and the tags around content.

use crate::output::format::{ReasoningTags, Wrapper};

/// The start and end of the marker that a position would cut: `<…>` with tag characters only, or
/// `[NAME]`.
pub(super) fn cut(text: &str, at: usize) -> Option<(usize, usize)> {
    let (before, after) = text.split_at_checked(at)?;
    let open = before.rfind(['<', '[', '>', ']'])?;
    let closes = if before[open..].starts_with('<') { '>' } else { ']' };
    let close = after.find(['<', '[', '>', ']'])?;
    let (begin, end) = (open, at + close + 1);
    let inner = text.get(begin + 1..end - 1)?;
    let word = |c: char| {
        !c.is_whitespace() && !matches!(c, '{' | '}' | '"' | ',')
            || c == ' '
            || c == '"' && closes == '>'
    };
    let is_marker = match &before[open..=open] {
        "<" => after[close..].starts_with('>') && inner.chars().all(word),
        "[" => {
            after[close..].starts_with(']')
                && inner.chars().all(|c| c.is_ascii_uppercase() || matches!(c, '_' | '/' | ' '))
        }
        _ => false,
    };
    is_marker.then_some((begin, end))
}

/// The position, moved to the end of the marker that it would cut.
pub(crate) fn snap_right(text: &str, at: usize) -> usize {
    cut(text, at).map_or(at, |(_, end)| end)
}

/// The position, moved to the start of the marker that it would cut.
pub(crate) fn snap_left(text: &str, at: usize) -> usize {
    cut(text, at).map_or(at, |(begin, _)| begin)
}

/// The marker at the start of a text.
pub(crate) fn leading_marker(text: &str) -> Option<&str> {
    let (begin, end) = cut(text, 1)?;
    (begin == 0).then(|| &text[..end])
}

/// The markers at the start of a text, and the rest.
pub(crate) fn leading_markers(text: &str) -> (Vec<&str>, &str) {
    let (mut found, mut rest) = (Vec::new(), text.trim_start());
    while let Some(marker) = leading_marker(rest) {
        found.push(marker);
        rest = rest[marker.len()..].trim_start();
    }
    (found, rest)
}

/// The last marker of a text and the text after it.
pub(super) fn trailing_marker(text: &str) -> Option<&str> {
    let at = text.rfind(['<', '['])?;
    leading_marker(&text[at..]).map(|_| &text[at..])
}

/// The markers at the end of a text, in its order.
pub(crate) fn trailing_markers(text: &str) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), text.trim_end());
    while let Some(marker) = trailing_marker(rest).filter(|it| leading_marker(it) == Some(it)) {
        found.push(marker);
        rest = rest[..rest.len() - marker.len()].trim_end();
    }
    found.reverse();
    found
}

/// The text without leading whitespace. The space before a word remains: ` to=`.
pub(super) fn trim_start(text: &str) -> &str {
    let trimmed = text.trim_start();
    let whitespace = text.len() - trimmed.len();
    match trimmed.chars().next() {
        Some(c) if c.is_alphanumeric() && text[..whitespace].ends_with(' ') => {
            &text[whitespace - 1..]
        }
        _ => trimmed,
    }
}

/// The tags around content. `before` is the text between what opens the turn and the content,
/// `after` the text up to the end of the history.
pub(crate) fn find_wrapper(
    before: &str,
    after: &str,
    reasoning: Option<&ReasoningTags>,
) -> Option<Wrapper> {
    let open = after_reasoning(before, reasoning).trim();
    if open.is_empty() || !leading_markers(open).1.is_empty() {
        return None;
    }
    let close = match *leading_markers(after).0 {
        // The last marker ends the turn.
        [close, _, ..] => close,
        [close] if are_pair(open, close) => close,
        _ => "",
    };
    Some(Wrapper { open: open.to_owned().into(), close: close.to_owned().into() })
}

/// The text after a reasoning block, which may be empty.
fn after_reasoning<'a>(before: &'a str, reasoning: Option<&ReasoningTags>) -> &'a str {
    let Some(ReasoningTags { open, close, .. }) = reasoning else { return before };
    if let Some((_, rest)) = before.rsplit_once(&**close).filter(|_| !close.is_empty()) {
        return rest;
    }
    let text = before.trim_start();
    text.strip_prefix(&**open).filter(|_| !open.is_empty()).unwrap_or(before)
}

/// Whether two tags differ only in a slash, or in words such as `start` and `end`.
fn are_pair(open: &str, close: &str) -> bool {
    const BOUNDS: [&str; 8] =
        ["start", "end", "begin", "stop", "open", "close", "prefix", "suffix"];
    let words = |tag: &str| {
        let tag = tag.to_lowercase();
        let words = tag.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        words.filter(|word| !BOUNDS.contains(word)).map(str::to_owned).collect::<Vec<_>>()
    };
    open != close && !words(open).is_empty() && words(open) == words(close)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_in_markers() {
        let text = "a<b c=\"d\">[ARGS]{\"x\": [1]}";
        assert_eq!(cut(text, 3), Some((1, 10)));
        assert_eq!((cut(text, 1), cut(text, 10), cut(text, 12)), (None, None, Some((10, 16))));
        assert_eq!((cut(text, 16), cut(text, 24)), (None, None));
        assert_eq!((snap_left(text, 3), snap_right(text, 3), snap_right(text, 0)), (1, 10, 0));
        assert_eq!(
            (leading_marker("<a>b"), leading_marker("b<a>"), trailing_marker("x<a>b")),
            (Some("<a>"), None, Some("<a>b"))
        );
    }

    #[test]
    fn leading_whitespace() {
        assert_eq!(
            (trim_start("\n\n to="), trim_start(" \n<a>"), trim_start("  {")),
            (" to=", "<a>", "{")
        );
    }

    #[track_caller]
    fn check(before: &str, after: &str, expected: Option<(&str, &str)>) {
        let tags = ReasoningTags::new("<think>".into(), "</think>".into());
        let found = find_wrapper(before, after, Some(&tags));
        let found = found.as_ref().map(|wrapper| (&*wrapper.open, &*wrapper.close));
        assert_eq!(found, expected, "{before:?} {after:?}");
    }

    #[test]
    fn tags_around_content() {
        check("<|START_R|>", "<|END_R|><|EOT|>", Some(("<|START_R|>", "<|END_R|>")));
        check("<say>\n", "\n</say>\n", Some(("<say>", "</say>")));
        check("<|text|>", "<|end|>", Some(("<|text|>", "")));
        check("<think>\nr\n</think>\n<say>", "</say><|e|>", Some(("<say>", "</say>")));
        check("<think>\n\n</think>\n\n", "<|e|>", None);
        check("<think>", "<|e|>", None);
        check("", "<|e|>\n<|f|>", None);
        check("Answer: <say>", "</say>", None);
        check("<say> Answer:", "</say>", None);
    }
}
