//! The generation prompt: what a render with `add_generation_prompt` adds to one without. Two
//! prompts in, its start out.

/// What the first prompt adds to the second.
///
/// The cut is moved back to a character boundary and to the start of an unfinished `<…` or `[…`
/// marker: two markers that begin alike stay whole.
pub(crate) fn generation_prompt<'a>(with: &'a str, without: &str) -> &'a str {
    let mut cut = with.bytes().zip(without.bytes()).take_while(|(a, b)| a == b).count();
    while !with.is_char_boundary(cut) {
        cut -= 1;
    }
    &with[start_of_unfinished_marker(with, cut)..]
}

/// The start of the marker that this cut is inside of, or the cut itself.
pub(crate) fn start_of_unfinished_marker(text: &str, cut: usize) -> usize {
    for (open, close) in [('<', '>'), ('[', ']')] {
        let Some(start) = text[..cut].rfind(open) else { continue };
        // Inside only if it is closed later, and is one word: prose may hold a lone `<`.
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
    fn what_the_flag_adds() {
        check("<|user|>\nHi<|end|>\n<|assistant|>\n", "<|user|>\nHi<|end|>\n", "<|assistant|>\n");
        check("same", "same", "");
        // Without the flag the end of the text is printed: the two markers begin alike.
        check("Hi<|end|>\n<|assistant|>\n", "Hi<|end|>\n<|endoftext|>", "<|assistant|>\n");
        check("Hi[INST]", "Hi[/INST]", "[INST]");
        check("a < b\nAssistant:", "a < b\n", "Assistant:");
        // `é` and `è` share their first byte.
        check("xé", "xè", "é");
    }
}
