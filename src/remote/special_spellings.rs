//! Finds spellings of special tokens in a prompt, and distinguishes those of the template from
//! those of the request.

use std::ops::Range;

use aho_corasick::{AhoCorasick, Input, MatchKind};

/// Spellings of control tokens, from the vocabulary of a model file or guessed from a template.
#[derive(Debug, Default)]
pub struct SpecialSpellings {
    finder: Option<AhoCorasick>,
}

/// A spelling in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundSpelling {
    pub(super) range: Range<usize>,
    /// Whether the request wrote at least a part of it.
    pub(super) from_request: bool,
}

impl SpecialSpellings {
    /// Creates the set without empty spellings.
    pub fn new(spellings: Vec<String>) -> SpecialSpellings {
        let mut spellings = spellings;
        spellings.retain(|spelling| !spelling.is_empty());
        let finder =
            AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&spellings).ok();
        SpecialSpellings { finder: finder.filter(|_| !spellings.is_empty()) }
    }

    /// Text in a template that looks like a special token: `<…>` without whitespace, and
    /// `[CAPITALS]`.
    pub fn in_template(source: &str) -> Vec<String> {
        const MAX: usize = 64;
        let mut found = Vec::new();
        for (start, open) in source.char_indices().filter(|(_, c)| matches!(c, '<' | '[')) {
            let rest = &source[start + 1..];
            let close = if open == '<' { '>' } else { ']' };
            let Some(end) = rest.find(close).filter(|end| (1..=MAX).contains(end)) else {
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

    /// The spellings in a prompt, leftmost and longest first, as tokenizers match them. `plain`
    /// lists the ranges that the request wrote, in order. After a spelling of the request, the
    /// search continues inside it, because another spelling may begin there.
    pub(super) fn find(&self, prompt: &str, plain: &[Range<usize>]) -> Vec<FoundSpelling> {
        let Some(finder) = &self.finder else { return Vec::new() };
        let mut all = Vec::new();
        let mut plain = plain.iter().peekable();
        let mut from = 0;
        while let Some(found) = finder.find(Input::new(prompt).range(from..)) {
            let range = found.range();
            while plain.peek().is_some_and(|plain| plain.end <= range.start) {
                plain.next();
            }
            let from_request = plain.peek().is_some_and(|plain| plain.start < range.end);
            from = if from_request { range.start + 1 } else { range.end };
            all.push(FoundSpelling { range, from_request });
        }
        all
    }

    /// The spellings in a prompt that the template wrote, in order.
    pub fn of_template(&self, prompt: &str, plain: &[Range<usize>]) -> Vec<String> {
        let found = self.find(prompt, plain).into_iter().filter(|found| !found.from_request);
        found.map(|found| prompt[found.range].to_owned()).collect()
    }

    /// The spellings in a text.
    pub fn in_text<'a>(&self, text: &'a str) -> Vec<(Range<usize>, &'a str)> {
        self.find(text, &[])
            .into_iter()
            .map(|found| (found.range.clone(), &text[found.range]))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_tokens_are_guessed_from_a_template() {
        let source = "{%- if a < b and c > d %}<|im_start|>{{ m['role'] }}<tool_call>\n</s>[INST] [/INST] [x] <a b> <｜User｜> {{ x[0] }}";
        assert_eq!(
            SpecialSpellings::in_template(source),
            ["<|im_start|>", "<tool_call>", "</s>", "[INST]", "[/INST]", "<｜User｜>"]
        );
    }

    #[test]
    fn a_spelling_belongs_to_its_writer() {
        let specials = SpecialSpellings::new(vec!["<s>".into(), "<ss>".into(), String::new()]);
        let found = |prompt: &str, plain: Option<Range<usize>>| {
            let found = specials.find(prompt, plain.as_slice()).into_iter();
            found
                .map(|found| (prompt[found.range].to_owned(), found.from_request))
                .collect::<Vec<_>>()
        };
        let template = |text: &str| (text.to_owned(), false);
        let request = |text: &str| (text.to_owned(), true);
        assert_eq!(found("<s>a<ss>", None), [template("<s>"), template("<ss>")]);
        assert_eq!(found("<s>a<ss>", Some(3..8)), [template("<s>"), request("<ss>")]);
        assert_eq!(found("<s>x", Some(2..4)), [request("<s>")], "the request wrote half of it");
        assert_eq!(
            found("<s><s><s>", Some(3..6)),
            [template("<s>"), request("<s>"), template("<s>")]
        );
    }
}
