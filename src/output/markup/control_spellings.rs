//! Finds spellings of a vocabulary's control tokens in text that arrives in pieces.

use super::{ReplyPart, push_text};

/// The fewest bytes of a spelling. Shorter spellings, such as `[` and `0`, are common in text.
const LEAST: usize = 3;

/// The spellings of control tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlSpellings {
    /// Sorted by bytes.
    sorted: Vec<String>,
    /// The first characters of all spellings, for a quick check.
    firsts: Vec<char>,
}

impl ControlSpellings {
    /// Omits spellings that consist only of words or punctuation, because normal text contains them
    /// too.
    pub fn new(mut spellings: Vec<String>) -> ControlSpellings {
        spellings.retain(|text| {
            text.len() >= LEAST
                && text.contains(|c: char| c.is_alphanumeric())
                && text.contains(|c: char| !c.is_alphanumeric() && !c.is_whitespace())
                && !text.starts_with(char::is_alphanumeric)
                && !text.contains(char::is_whitespace)
        });
        spellings.sort_unstable();
        spellings.dedup();
        let mut firsts: Vec<char> =
            spellings.iter().filter_map(|text| text.chars().next()).collect();
        firsts.sort_unstable();
        firsts.dedup();
        ControlSpellings { sorted: spellings, firsts }
    }

    /// Whether some spelling begins with this text, and whether some spelling equals it.
    fn matches(&self, text: &str) -> (bool, bool) {
        let at = self.sorted.partition_point(|spelling| spelling.as_str() < text);
        match self.sorted.get(at) {
            Some(spelling) if spelling == text => {
                (self.sorted.get(at + 1).is_some_and(|next| next.starts_with(text)), true)
            }
            Some(spelling) => (spelling.starts_with(text), false),
            None => (false, false),
        }
    }
}

/// Splits text at the spellings. Where several match, the longest one wins.
#[derive(Debug, Default)]
pub(in crate::output) struct ControlScanner {
    /// Text that may become a spelling.
    held: String,
    /// The length in bytes of the complete spelling that the held text begins with.
    whole: usize,
}

impl ControlScanner {
    /// Whether this text contains nothing that concerns the scanner.
    pub(in crate::output) fn passes(&self, spellings: &ControlSpellings, text: &str) -> bool {
        self.held.is_empty() && !text.contains(&*spellings.firsts)
    }

    /// Reads text and appends all parts that are now certain.
    pub(in crate::output) fn push(
        &mut self,
        spellings: &ControlSpellings,
        text: &str,
        out: &mut Vec<ReplyPart>,
    ) {
        for c in text.chars() {
            self.step(spellings, c, out);
        }
    }

    fn step(&mut self, spellings: &ControlSpellings, c: char, out: &mut Vec<ReplyPart>) {
        if self.held.is_empty() && !spellings.firsts.contains(&c) {
            return push_text(c.encode_utf8(&mut [0; 4]), out);
        }
        self.held.push(c);
        let (grows, whole) = spellings.matches(&self.held);
        if whole {
            self.whole = self.held.len();
        }
        if !grows {
            self.decide(spellings, out);
        }
    }

    /// The held text cannot grow into a longer spelling.
    fn decide(&mut self, spellings: &ControlSpellings, out: &mut Vec<ReplyPart>) {
        let held = std::mem::take(&mut self.held);
        let whole = std::mem::take(&mut self.whole);
        let end = if whole > 0 {
            out.push(ReplyPart::Control(held[..whole].to_owned()));
            whole
        } else {
            let first = held.chars().next().map_or(0, char::len_utf8);
            push_text(&held[..first], out);
            first
        };
        for c in held[end..].chars() {
            self.step(spellings, c, out);
        }
    }

    /// Decides the held text at the end of a reply.
    pub(in crate::output) fn finish(
        &mut self,
        spellings: &ControlSpellings,
        out: &mut Vec<ReplyPart>,
    ) {
        while self.whole > 0 {
            self.decide(spellings, out);
        }
        push_text(&std::mem::take(&mut self.held), out);
    }
}
