//! Comparing texts without cutting a marker in two.

/// How many bytes two texts begin alike.
pub(super) fn common_prefix(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
}

/// How many bytes two texts end alike.
pub(super) fn common_suffix(a: &str, b: &str) -> usize {
    a.chars()
        .rev()
        .zip(b.chars().rev())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a.len_utf8())
        .sum()
}

/// The marker that a position cuts: where it begins and ends. `<…>` without blanks or another `<`
/// in the first word, or `[NAME]`.
pub(super) fn cut(text: &str, at: usize) -> Option<(usize, usize)> {
    let (before, after) = text.split_at_checked(at)?;
    let open = before.rfind(['<', '[', '>', ']'])?;
    let closes = if before[open..].starts_with('<') { '>' } else { ']' };
    let close = after.find(['<', '[', '>', ']'])?;
    let (begins, ends) = (open, at + close + 1);
    let inner = text.get(begins + 1..ends - 1)?;
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
    is_marker.then_some((begins, ends))
}

/// The position, or the end of the marker it cuts.
pub(super) fn snap_right(text: &str, at: usize) -> usize {
    cut(text, at).map_or(at, |(_, end)| end)
}

/// The position, or the beginning of the marker it cuts.
pub(super) fn snap_left(text: &str, at: usize) -> usize {
    cut(text, at).map_or(at, |(begin, _)| begin)
}

/// The first marker of a text that begins with one.
pub(super) fn first(text: &str) -> Option<&str> {
    let (begin, end) = cut(text, 1)?;
    (begin == 0).then(|| &text[..end])
}

/// The last marker of a text, with the word that may follow it.
pub(super) fn last(text: &str) -> Option<&str> {
    let at = text.rfind(['<', '['])?;
    first(&text[at..]).map(|_| &text[at..])
}

/// The text without leading blanks, but for one that belongs to a word: ` to=`.
pub(super) fn trim_start(text: &str) -> &str {
    let trimmed = text.trim_start();
    let blanks = text.len() - trimmed.len();
    match trimmed.chars().next() {
        Some(c) if c.is_alphanumeric() && text[..blanks].ends_with(' ') => &text[blanks - 1..],
        _ => trimmed,
    }
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
            (first("<a>b"), first("b<a>"), last("x<a>b")),
            (Some("<a>"), None, Some("<a>b"))
        );
    }

    #[test]
    fn blanks() {
        assert_eq!(
            (trim_start("\n\n to="), trim_start(" \n<a>"), trim_start("  {")),
            (" to=", "<a>", "{")
        );
    }
}
