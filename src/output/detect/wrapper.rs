//! Finds the tags around visible text in what a template writes before and after the content of an
//! answer.

use super::infer::markers::leading_markers;
use crate::output::format::{ReasoningTags, Wrapper};

/// The tags around content. `before` is the text between what opens the turn and the content,
/// `after` the text up to the end of the history.
pub(super) fn find(
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

    #[track_caller]
    fn check(before: &str, after: &str, expected: Option<(&str, &str)>) {
        let tags = ReasoningTags {
            open: "<think>".into(),
            close: "</think>".into(),
            closed_by_call: false,
            close_only: false,
        };
        let found = find(before, after, Some(&tags));
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
