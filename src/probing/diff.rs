//! Comparison of prompts: the parts that two of them share, the text that a generation prompt adds,
//! the text between known texts, and the place where one text was inserted into another. All lengths and positions are in bytes.

use std::ops::Range;

/// The length of the longest common prefix.
pub(crate) fn common_prefix(a: &str, b: &str) -> usize {
    shared(a.chars().zip(b.chars()))
}

/// The length of the longest common suffix.
pub(crate) fn common_suffix(a: &str, b: &str) -> usize {
    shared(a.chars().rev().zip(b.chars().rev()))
}

fn shared(pairs: impl Iterator<Item = (char, char)>) -> usize {
    pairs.take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
}

/// The generation prompt: the text that the first prompt adds to the second.
///
/// A cut inside a `<…>` or `[…]` marker is moved back to the start of the marker, because two
/// markers may start alike.
pub(crate) fn generation_prompt<'a>(with: &'a str, without: &str) -> &'a str {
    &with[start_of_unfinished_marker(with, common_prefix(with, without))..]
}

/// The start of the marker that contains this cut, or the cut itself.
pub(crate) fn start_of_unfinished_marker(text: &str, cut: usize) -> usize {
    for (open, close) in [('<', '>'), ('[', ']')] {
        let Some(start) = text[..cut].rfind(open) else { continue };
        // A marker is closed and contains one word. Prose may contain a lone `<`.
        let marker =
            |inside: &str| !inside.contains(close) && !inside.contains(char::is_whitespace);
        let rest = &text[cut..];
        if marker(&text[start..cut])
            && rest.split_once(close).is_some_and(|(inside, _)| marker(inside))
        {
            return start;
        }
    }
    cut
}

/// The text after the last occurrence of `needle`; the whole text if `needle` does not occur.
pub(crate) fn after_last<'a>(text: &'a str, needle: &str) -> &'a str {
    text.rsplit_once(needle).map_or(text, |(_, after)| after)
}

/// The text between the first occurrence of `from` and the next occurrence of `to`.
pub(crate) fn text_between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    text.split_once(from)?.1.split_once(to).map(|(between, _)| between)
}

/// The texts before, between and after the needles. `None` unless each needle occurs exactly once,
/// in this order.
pub(crate) fn split_at_needles<'a, const N: usize>(
    text: &'a str,
    needles: [&str; N],
) -> Option<Vec<&'a str>> {
    let mut rest = text;
    let mut pieces = Vec::with_capacity(N + 1);
    for needle in needles {
        let (before, after) = rest.split_once(needle)?;
        if after.contains(needle) {
            return None;
        }
        pieces.push(before);
        rest = after;
    }
    pieces.push(rest);
    Some(pieces)
}

/// One way to read a longer text as a shorter one with a block inserted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Insertion {
    /// The position in the shorter text.
    pub(crate) at: usize,
    /// The range of the block in the longer text.
    pub(crate) block: Range<usize>,
}

/// Every way to read `full` as `base` with one inserted block that covers `inside`. There are
/// several if the block begins or ends with the same text as its surroundings.
pub(crate) fn insertions(base: &str, full: &str, inside: Option<&Range<usize>>) -> Vec<Insertion> {
    let Some(length) = full.len().checked_sub(base.len()).filter(|length| *length > 0) else {
        return Vec::new();
    };
    let (start, end) = (common_prefix(base, full), common_suffix(base, full));
    let mut found = Vec::new();
    for at in base.len().saturating_sub(end)..=start {
        let block = at..at + length;
        let covers =
            inside.is_none_or(|inside| block.start <= inside.start && inside.end <= block.end);
        if covers
            && base.is_char_boundary(at)
            && full.is_char_boundary(at)
            && full.is_char_boundary(block.end)
        {
            found.push(Insertion { at, block });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_text_ends_at_characters() {
        // `é` and `è` share their first byte; `è` and `Ĩ` share their last byte.
        assert_eq!((common_prefix("xé", "xè"), common_suffix("è!", "Ĩ!")), (1, 1));
        assert_eq!((common_prefix("ab", "abc"), common_suffix("", "c")), (2, 0));
    }

    #[test]
    fn texts_between() {
        assert_eq!(text_between("a[b]c]", "[", "]"), Some("b"));
        assert_eq!(text_between("a[b", "[", "]"), None);
        assert_eq!((after_last("a-b-c", "-"), after_last("abc", "-")), ("c", "abc"));
    }

    #[test]
    fn each_needle_occurs_once_in_order() {
        assert_eq!(split_at_needles("aXbYc", ["X", "Y"]), Some(vec!["a", "b", "c"]));
        assert_eq!(split_at_needles("aYbXc", ["X", "Y"]), None);
        assert_eq!(split_at_needles("aXbXc", ["X"]), None);
    }

    #[test]
    fn a_block_can_be_rotated() {
        let found = insertions("s\ne", "s\n#T\ne", Some(&(3..4)));
        let blocks: Vec<&str> =
            found.iter().map(|found| &"s\n#T\ne"[found.block.clone()]).collect();
        assert_eq!(blocks, ["\n#T", "#T\n"]);
        assert!(insertions("s\ne", "s#T", None).is_empty());
    }

    #[track_caller]
    fn check_generation_prompt(with: &str, without: &str, expected: &str) {
        assert_eq!(generation_prompt(with, without), expected);
    }

    #[test]
    fn text_added_by_the_flag() {
        check_generation_prompt(
            "<|user|>\nHi<|end|>\n<|assistant|>\n",
            "<|user|>\nHi<|end|>\n",
            "<|assistant|>\n",
        );
        check_generation_prompt("same", "same", "");
        // Without the flag, the template ends the text with a marker that starts alike.
        check_generation_prompt(
            "Hi<|end|>\n<|assistant|>\n",
            "Hi<|end|>\n<|endoftext|>",
            "<|assistant|>\n",
        );
        check_generation_prompt("Hi[INST]", "Hi[/INST]", "[INST]");
        check_generation_prompt("a < b\nAssistant:", "a < b\n", "Assistant:");
        // `é` and `è` share their first byte.
        check_generation_prompt("xé", "xè", "é");
    }
}
