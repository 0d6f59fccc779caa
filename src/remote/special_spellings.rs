//! Which spellings in a prompt a server's tokeniser would take for special tokens, and whose they
//! are.

use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};

/// Spellings of control tokens: those of a model file's vocabulary, or what looks like them in a
/// template.
#[derive(Debug, Default)]
pub struct SpecialSpellings {
    finder: Option<AhoCorasick>,
}

/// A spelling in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundSpelling {
    pub(super) range: Range<usize>,
    /// Whether the request wrote it, at least in part.
    pub(super) foreign: bool,
}

impl SpecialSpellings {
    /// Empty spellings are left out.
    pub fn new(spellings: Vec<String>) -> SpecialSpellings {
        let mut spellings = spellings;
        spellings.retain(|spelling| !spelling.is_empty());
        let finder =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&spellings).ok();
        SpecialSpellings { finder: finder.filter(|_| !spellings.is_empty()) }
    }

    /// What looks like a special token in the text of a template: `<…>` without blanks, and
    /// `[CAPITALS]`.
    pub fn in_template(source: &str) -> Vec<String> {
        const MOST: usize = 64;
        let mut found = Vec::new();
        for (start, open) in source.char_indices().filter(|(_, c)| matches!(c, '<' | '[')) {
            let rest = &source[start + 1..];
            let close = if open == '<' { '>' } else { ']' };
            let Some(end) = rest.find(close).filter(|end| (1..=MOST).contains(end)) else {
                continue;
            };
            let inner = &rest[..end];
            let fits = match open {
                '<' => inner.chars().all(|c| !c.is_whitespace() && !"<{}'\"=".contains(c)),
                _ => {
                    inner.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c == '/')
                        && inner != "/"
                }
            };
            let spelling = source[start..=start + 1 + end].to_owned();
            if fits && !found.contains(&spelling) {
                found.push(spelling);
            }
        }
        found
    }

    /// The spellings in a prompt, from the left and the longest first, as tokenisers find them.
    /// `plain` is what the request wrote, in order. What the request wrote is passed over: another
    /// spelling may begin inside of it.
    pub(super) fn found(&self, prompt: &str, plain: &[Range<usize>]) -> Vec<FoundSpelling> {
        let Some(finder) = &self.finder else { return Vec::new() };
        let mut all = Vec::new();
        let mut plain = plain.iter().peekable();
        let mut from = 0;
        while let Some(found) = finder.find(Input::new(prompt).range(from..)) {
            let range = found.range();
            while plain.peek().is_some_and(|plain| plain.end <= range.start) {
                plain.next();
            }
            let foreign = plain.peek().is_some_and(|plain| plain.start < range.end);
            from = if foreign { range.start + 1 } else { range.end };
            all.push(FoundSpelling { range, foreign });
        }
        all
    }

    /// The spellings in a prompt that the request did not write, in order.
    pub fn owned(&self, prompt: &str, plain: &[Range<usize>]) -> Vec<String> {
        let found = self.found(prompt, plain).into_iter().filter(|found| !found.foreign);
        found.map(|found| prompt[found.range].to_owned()).collect()
    }

    /// The spellings that a text holds.
    pub fn in_text<'a>(&self, text: &'a str) -> Vec<(Range<usize>, &'a str)> {
        self.found(text, &[])
            .into_iter()
            .map(|found| (found.range.clone(), &text[found.range]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_show_their_special_tokens() {
        let source = "{%- if a < b and c > d %}<|im_start|>{{ m['role'] }}<tool_call>\n</s>[INST] [/INST] [x] <a b> <｜User｜> {{ x[0] }}";
        assert_eq!(
            SpecialSpellings::in_template(source),
            ["<|im_start|>", "<tool_call>", "</s>", "[INST]", "[/INST]", "<｜User｜>"]
        );
    }

    #[test]
    fn a_spelling_belongs_to_who_wrote_it() {
        let specials = SpecialSpellings::new(vec!["<s>".into(), "<ss>".into(), String::new()]);
        let found = |prompt: &str, plain: Option<Range<usize>>| {
            let found = specials.found(prompt, plain.as_slice()).into_iter();
            found.map(|found| (prompt[found.range].to_owned(), found.foreign)).collect::<Vec<_>>()
        };
        let own = |text: &str| (text.to_owned(), false);
        let foreign = |text: &str| (text.to_owned(), true);
        assert_eq!(found("<s>a<ss>", None), [own("<s>"), own("<ss>")]);
        assert_eq!(found("<s>a<ss>", Some(3..8)), [own("<s>"), foreign("<ss>")]);
        assert_eq!(found("<s>x", Some(2..4)), [foreign("<s>")], "half of it is not the template's");
        assert_eq!(found("<s><s><s>", Some(3..6)), [own("<s>"), foreign("<s>"), own("<s>")]);
    }
}
