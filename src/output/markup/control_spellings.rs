//! Finds spellings of a vocabulary's control tokens in text that arrives in pieces.

use super::{ReplyPart, push_text};

/// The fewest bytes of a spelling. Shorter spellings, such as `[` and `0`, are common in text.
const MIN: usize = 3;
/// The most bytes of a spelling. Longer ones are omitted: the time to find a spelling at a place
/// in the text grows with its length.
const MAX: usize = 1024;

/// The spellings of control tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ControlSpellings {
    /// Sorted by bytes.
    sorted: Vec<Spelling>,
    /// The first characters of all spellings, sorted, for a quick check.
    firsts: Vec<char>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Spelling {
    text: String,
    /// The longest other spelling that this one begins with, as an index of the list.
    parent: Option<usize>,
}

impl ControlSpellings {
    /// Omits spellings that consist only of words or punctuation, because normal text contains them
    /// too, and spellings of more than 1,024 bytes.
    pub fn new(mut spellings: Vec<String>) -> ControlSpellings {
        spellings.retain(|text| {
            (MIN..=MAX).contains(&text.len())
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
        let mut sorted: Vec<Spelling> = Vec::with_capacity(spellings.len());
        for text in spellings {
            let mut parent = sorted.len().checked_sub(1);
            while let Some(place) = parent
                && !text.starts_with(&sorted[place].text)
            {
                parent = sorted[place].parent;
            }
            sorted.push(Spelling { text, parent });
        }
        ControlSpellings { sorted, firsts }
    }

    fn may_begin(&self, c: char) -> bool {
        self.firsts.binary_search(&c).is_ok()
    }

    /// Whether some longer spelling begins with this text, and the length of the longest spelling
    /// that the text begins with. The length is 0 if there is none.
    fn matches(&self, text: &str) -> (bool, usize) {
        let after = self.sorted.partition_point(|spelling| spelling.text.as_str() <= text);
        let grows = self.sorted.get(after).is_some_and(|next| next.text.starts_with(text));
        // Every spelling that the text begins with is the last one before it, or a prefix of that.
        let mut place = after.checked_sub(1).map(|place| &self.sorted[place]);
        let last = place.map_or("", |last| &*last.text);
        let common = last.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
        while let Some(Spelling { parent, .. }) = place.filter(|it| it.text.len() > common) {
            place = parent.map(|parent| &self.sorted[parent]);
        }
        (grows, place.map_or(0, |spelling| spelling.text.len()))
    }
}

/// Splits text at the spellings. Where several match, the longest one wins.
#[derive(Debug, Default)]
pub(crate) struct ControlScanner {
    /// Text that may become a spelling, or a longer one.
    held: String,
}

impl ControlScanner {
    /// Whether this text contains nothing that concerns the scanner.
    pub(crate) fn passes(&self, spellings: &ControlSpellings, text: &str) -> bool {
        self.held.is_empty() && !text.contains(|c| spellings.may_begin(c))
    }

    /// Reads text and appends all parts that are now certain.
    pub(crate) fn push(
        &mut self,
        spellings: &ControlSpellings,
        text: &str,
        out: &mut Vec<ReplyPart>,
    ) {
        self.held.push_str(text);
        let mut rest = self.held.as_str();
        while !rest.is_empty() {
            let first = rest.find(|c| spellings.may_begin(c)).unwrap_or(rest.len());
            push_text(&rest[..first], out);
            rest = &rest[first..];
            let (grows, whole) = spellings.matches(rest);
            if grows {
                break;
            }
            rest = split_at_spelling(rest, whole, out);
        }
        let decided = self.held.len() - rest.len();
        self.held.drain(..decided);
    }

    /// Decides the held text at the end of a reply.
    pub(crate) fn finish(&mut self, spellings: &ControlSpellings, out: &mut Vec<ReplyPart>) {
        while let (_, whole) = spellings.matches(&self.held)
            && whole > 0
        {
            let rest = split_at_spelling(&self.held, whole, out).to_owned();
            self.held.clear();
            self.push(spellings, &rest, out);
        }
        push_text(&std::mem::take(&mut self.held), out);
    }
}

/// Passes on the spelling at the start of a text, or the first character if there is none.
fn split_at_spelling<'a>(text: &'a str, whole: usize, out: &mut Vec<ReplyPart>) -> &'a str {
    if whole > 0 {
        out.push(ReplyPart::Control(text[..whole].to_owned()));
        return &text[whole..];
    }
    let first = text.chars().next().map_or(0, char::len_utf8);
    push_text(&text[..first], out);
    &text[first..]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spellings(texts: &[&str]) -> ControlSpellings {
        ControlSpellings::new(texts.iter().map(|text| (*text).to_owned()).collect())
    }

    /// Scans pieces, and shows control tokens as `[token]`.
    fn scan<'a>(spellings: &ControlSpellings, pieces: impl Iterator<Item = &'a str>) -> String {
        let (mut scanner, mut parts) = (ControlScanner::default(), Vec::new());
        for piece in pieces {
            scanner.push(spellings, piece, &mut parts);
        }
        scanner.finish(spellings, &mut parts);
        let shown = parts.into_iter().map(|part| match part {
            ReplyPart::Control(text) => format!("[{text}]"),
            ReplyPart::Text(text) => text,
            other => format!("{other:?}"),
        });
        shown.collect()
    }

    #[track_caller]
    fn check(texts: &[&str], text: &str, expected: &str) {
        let spellings = spellings(texts);
        assert_eq!(scan(&spellings, [text].into_iter()), expected, "{text:?}");
        let characters = text.split("").filter(|piece| !piece.is_empty());
        assert_eq!(scan(&spellings, characters), expected, "{text:?} by character");
    }

    #[test]
    fn the_longest_spelling_wins() {
        let texts = ["<a>", "<a><b>c", "<b>", "<<a", "<\u{e9}>", "<c>|", "<c>||d", "|d"];
        for (text, expected) in [
            ("", ""),
            ("x <a> y", "x [<a>] y"),
            ("<a><b>c", "[<a><b>c]"),
            ("<a><b>d", "[<a>][<b>]d"),
            ("<a><b>", "[<a>][<b>]"),
            ("<<a><b><", "[<<a]>[<b>]<"),
            ("<\u{e9}><\u{e8}>\u{e9}", "[<\u{e9}>]<\u{e8}>\u{e9}"),
            ("<c>||d", "[<c>||d]"),
            ("<c>|||d", "[<c>|]||d"),
            ("<c>|", "[<c>|]"),
            ("<c", "<c"),
        ] {
            check(&texts, text, expected);
        }
    }

    #[test]
    fn a_long_spelling_costs_no_more_than_its_length() {
        // If every character that is read again were matched with all characters before it, the
        // long texts would take an hour.
        let longest = format!("{}a", "<".repeat(MAX - 1));
        let too_long = format!("{}a", "<".repeat(60_000));
        let spellings = spellings(&[&longest, &too_long]);
        let almost = format!("{}b", "<".repeat(MAX - 2)).repeat(500);
        assert_eq!(scan(&spellings, [almost.as_str()].into_iter()), almost);
        let text = format!("{}b", "<".repeat(59_999));
        assert_eq!(scan(&spellings, [text.as_str()].into_iter()), text);
        // The text begins with a spelling of allowed length only at its last characters.
        let shown = scan(&spellings, [too_long.as_str()].into_iter());
        assert_eq!(shown, format!("{}[{longest}]", "<".repeat(60_001 - MAX)));
    }
}
