//! The generation prompt: the text that `add_generation_prompt` adds.

use crate::probing::diff::common_prefix;

/// The text that the first prompt adds to the second.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(with: &str, without: &str, expected: &str) {
        assert_eq!(generation_prompt(with, without), expected);
    }

    #[test]
    fn text_added_by_the_flag() {
        check("<|user|>\nHi<|end|>\n<|assistant|>\n", "<|user|>\nHi<|end|>\n", "<|assistant|>\n");
        check("same", "same", "");
        // Without the flag, the template ends the text with a marker that starts alike.
        check("Hi<|end|>\n<|assistant|>\n", "Hi<|end|>\n<|endoftext|>", "<|assistant|>\n");
        check("Hi[INST]", "Hi[/INST]", "[INST]");
        check("a < b\nAssistant:", "a < b\n", "Assistant:");
        // `é` and `è` share their first byte.
        check("xé", "xè", "é");
    }
}
