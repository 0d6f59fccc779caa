//! The other tag of a pair, by its spelling: `<a>` and `</a>`, `[A]` and `[/A]`, `<|A_START|>` and
//! `<|A_END|>`.

/// Words in which the tags of a pair differ.
const BOUNDS: [(&str, &str); 5] = [
    ("start", "end"),
    ("begin", "end"),
    ("start", "stop"),
    ("open", "close"),
    ("prefix", "suffix"),
];

/// The tag that closes what `open` opens. A spelling that only differs in a word must be known.
pub(super) fn closing_of(open: &str, is_known: &dyn Fn(&str) -> bool) -> Option<String> {
    let (bracket, rest) = open.split_at_checked(1).filter(|(_, rest)| is_plain(rest))?;
    let closing = format!("{bracket}/{rest}");
    let bounds = BOUNDS.iter().flat_map(|(start, end)| swapped(open, start, end));
    // `<|a|>` is a plain tag, too, but nothing says how its vocabulary spells the other one.
    let inner = rest.strip_prefix('|').map(|rest| format!("{bracket}|/{rest}"));
    let mut spellings = bounds.chain(inner).chain([closing.clone()]);
    let known = spellings.find(|tag| is_known(tag));
    known.or_else(|| {
        rest.starts_with(char::is_alphabetic).then_some(closing).filter(|_| is_word(rest))
    })
}

/// The tag that opens what `close` closes. A spelling that only differs in a word must be known.
pub(super) fn opening_of(close: &str, is_known: &dyn Fn(&str) -> bool) -> Option<String> {
    let (bracket, rest) = close.split_at_checked(1)?;
    if let Some(rest) = rest.strip_prefix('/') {
        return Some(format!("{bracket}{rest}")).filter(|_| is_word(rest));
    }
    let inner = rest.strip_prefix("|/").map(|rest| format!("{bracket}|{rest}"));
    let bounds = BOUNDS.iter().flat_map(|(start, end)| swapped(close, end, start));
    bounds.chain(inner).find(|tag| is_known(tag))
}

/// The tag for the other position of a switch: `<think_on>` for `<think_off>`.
pub(super) fn other_switch(tag: &str) -> Option<String> {
    [("off", "on"), ("on", "off")].iter().find_map(|(from, to)| swapped(tag, from, to).next())
}

/// Whether the text after the bracket may belong to an opening tag.
fn is_plain(rest: &str) -> bool {
    !rest.starts_with('/') && !rest.starts_with("|/")
}

/// Whether the text after the bracket is one name.
fn is_word(rest: &str) -> bool {
    let name = rest.strip_suffix(['>', ']']).unwrap_or_default();
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | ':' | '.');
    !name.is_empty() && name.chars().all(is_part)
}

/// The tag with one word in place of another, in lower or upper case, if it has the word.
fn swapped(tag: &str, from: &str, to: &str) -> impl Iterator<Item = String> {
    let cases = [(from.to_owned(), to.to_owned()), (from.to_uppercase(), to.to_uppercase())];
    cases
        .into_iter()
        .filter_map(move |(from, to)| {
            let words = |c: char| c.is_alphanumeric();
            let at = tag.match_indices(&*from).map(|(at, _)| at).find(|at| {
                !tag[..*at].ends_with(words) && !tag[at + from.len()..].starts_with(words)
            })?;
            Some(format!("{}{to}{}", &tag[..at], &tag[at + from.len()..]))
        })
        .collect::<Vec<_>>()
        .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(open: &str, close: Option<&str>, known: &[&str]) {
        let is_known = |tag: &str| known.contains(&tag);
        assert_eq!(closing_of(open, &is_known).as_deref(), close, "{open}");
        if let Some(close) = close {
            assert_eq!(opening_of(close, &is_known).as_deref(), Some(open), "{close}");
        }
    }

    #[test]
    fn pairs_by_their_spelling() {
        check("<think>", Some("</think>"), &[]);
        check("<a:think>", Some("</a:think>"), &[]);
        check("[THINK]", Some("[/THINK]"), &[]);
        let words =
            ["<|START_R|>", "<|END_R|>", "<|r_begin|>", "<|r_end|>", "[BEGIN R]", "[END R]"];
        check("<|START_R|>", Some("<|END_R|>"), &words);
        check("<|r_begin|>", Some("<|r_end|>"), &words);
        check("[BEGIN R]", Some("[END R]"), &words);
        check("<|r|>", Some("<|/r|>"), &["<|r|>", "<|/r|>"]);
        check("<|r|>", None, &[]);
        check("<|START_R|>", None, &[]);
        check("</think>", None, &[]);
        check("[BEGIN FINAL R]", None, &[]);
        assert_eq!(opening_of("<|im_end|>", &|_| false), None);
        assert_eq!(opening_of("</a b>", &|_| true), None);
    }

    #[test]
    fn switches() {
        assert_eq!(other_switch("<mull_off>").as_deref(), Some("<mull_on>"));
        assert_eq!(other_switch("<|MULL-ON|>").as_deref(), Some("<|MULL-OFF|>"));
        assert_eq!((other_switch("<offer>"), other_switch("<spoon>")), (None, None));
    }
}
