//! Comparing prompts: what stands between known texts, where one text was put into another, what
//! repeats.

use std::ops::Range;

/// The texts before, between and after the marks, if each stands in the text once and in this
/// order.
pub(crate) fn pieces<'a, const N: usize>(text: &'a str, marks: [&str; N]) -> Option<Vec<&'a str>> {
    let mut rest = text;
    let mut pieces = Vec::with_capacity(N + 1);
    for mark in marks {
        let (before, after) = rest.split_once(mark)?;
        if after.contains(mark) {
            return None;
        }
        pieces.push(before);
        rest = after;
    }
    pieces.push(rest);
    Some(pieces)
}

/// How many bytes two texts share at their beginning.
pub(crate) fn shared_start(a: &str, b: &str) -> usize {
    a.chars().zip(b.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a.len_utf8()).sum()
}

/// How many bytes two texts share at their end.
pub(crate) fn shared_end(a: &str, b: &str) -> usize {
    a.chars()
        .rev()
        .zip(b.chars().rev())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a.len_utf8())
        .sum()
}

/// One way to see a longer text as a shorter one with a block put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Insertion {
    /// Where in the shorter text.
    pub(crate) at: usize,
    /// The block in the longer text.
    pub(crate) block: Range<usize>,
}

/// Every way to see `full` as `base` with one block in it that covers `inside`. Several differ only
/// in how the block is turned round: text that the block and its surroundings share can stand at
/// its start or at its end.
pub(crate) fn insertions(base: &str, full: &str, inside: Option<&Range<usize>>) -> Vec<Insertion> {
    let Some(length) = full.len().checked_sub(base.len()).filter(|length| *length > 0) else {
        return Vec::new();
    };
    let (start, end) = (shared_start(base, full), shared_end(base, full));
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

/// What stands round each of several items, between them, and round all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Wrapping {
    /// Before all.
    pub(crate) before: String,
    /// Before each.
    pub(crate) each_before: String,
    /// After each.
    pub(crate) each_after: String,
    /// After all.
    pub(crate) after: String,
    /// Between two.
    pub(crate) joiner: String,
}

impl Wrapping {
    /// From the text before the first item, between two, and after the last. None when no wrapper
    /// of one item ends and begins as the text between two does.
    pub(crate) fn of(first: &str, between: &str, last: &str) -> Option<Wrapping> {
        let cuts = (0..=between.len()).filter(|at| between.is_char_boundary(*at));
        let cut = cuts
            .filter(|at| last.starts_with(&between[..*at]) && first.ends_with(&between[*at..]))
            .max_by_key(|at| nicety(between, *at))?;
        let (each_after, each_before) = between.split_at(cut);
        Some(Wrapping {
            before: first[..first.len() - each_before.len()].to_owned(),
            each_before: each_before.to_owned(),
            each_after: each_after.to_owned(),
            after: last[each_after.len()..].to_owned(),
            joiner: String::new(),
        })
    }

    /// The same, with a joiner where none fits without.
    pub(crate) fn joined(first: &str, between: &str, last: &str) -> Wrapping {
        Wrapping::of(first, between, last).unwrap_or_else(|| {
            let (rest, each_before) = between.split_at(between.len() - shared_end(first, between));
            let (each_after, joiner) = rest.split_at(shared_start(rest, last));
            Wrapping {
                before: first[..first.len() - each_before.len()].to_owned(),
                each_before: each_before.to_owned(),
                each_after: each_after.to_owned(),
                after: last[each_after.len()..].to_owned(),
                joiner: joiner.to_owned(),
            }
        })
    }

    /// Of one item: nothing is known of several.
    pub(crate) fn single(before: &str, after: &str) -> Wrapping {
        Wrapping {
            each_before: before.to_owned(),
            each_after: after.to_owned(),
            ..Wrapping::default()
        }
    }
}

/// All cuts render the same; people expect one before the bracket that opens an item, with the
/// white space before it.
fn nicety(between: &str, at: usize) -> (bool, usize) {
    let opens = between[at..].trim_start().starts_with(['<', '[', '{', '(']);
    let closed = !between[..at].ends_with(char::is_whitespace);
    (opens && closed, at)
}

/// Text as it stands in a template with slots.
pub(crate) fn escape(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_need_each_mark_once_in_order() {
        assert_eq!(pieces("aXbYc", ["X", "Y"]), Some(vec!["a", "b", "c"]));
        assert_eq!(pieces("aYbXc", ["X", "Y"]), None);
        assert_eq!(pieces("aXbXc", ["X"]), None);
    }

    #[test]
    fn a_block_can_be_turned_round() {
        let found = insertions("s\ne", "s\n#T\ne", Some(&(3..4)));
        let blocks: Vec<&str> =
            found.iter().map(|found| &"s\n#T\ne"[found.block.clone()]).collect();
        assert_eq!(blocks, ["\n#T", "#T\n"]);
        assert!(insertions("s\ne", "s#T", None).is_empty());
    }

    #[test]
    fn wrappers_of_items() {
        let wrapping =
            Wrapping::of("A\n<c>\n", "\n</c>\n<c>\n", "\n</c>E").expect("one wrapper fits");
        let Wrapping { before, each_before, each_after, after, .. } = wrapping;
        assert_eq!(
            (&*before, &*each_before, &*each_after, &*after),
            ("A", "\n<c>\n", "\n</c>", "E")
        );
        assert_eq!(Wrapping::of("[", ", ", "]"), None);
        let list = Wrapping::joined("C[{\"", "}, {\"", "}]");
        let Wrapping { before, each_before, each_after, after, joiner } = list;
        assert_eq!(
            (&*before, &*each_before, &*joiner, &*each_after, &*after),
            ("C[", "{\"", ", ", "}", "]")
        );
    }
}
