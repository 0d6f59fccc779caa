//! The text around several items, and text as it is written in a template with slots.

pub(super) use crate::compose::spec::slots::escaped;
use crate::probing::diff::{common_prefix, common_suffix};

/// The text around each of several items, between them, and around all of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Wrapping {
    /// Before all.
    pub(super) before: String,
    /// Before each.
    pub(super) each_before: String,
    /// After each.
    pub(super) each_after: String,
    /// After all.
    pub(super) after: String,
    /// Between two.
    pub(super) joiner: String,
}

impl Wrapping {
    /// From the text before the first item, between two, and after the last. None if the text between
    /// two items is not the end and the start of a wrapper.
    pub(super) fn without_joiner(first: &str, between: &str, last: &str) -> Option<Wrapping> {
        let cuts = (0..=between.len()).filter(|at| between.is_char_boundary(*at));
        let cut = cuts
            .filter(|at| last.starts_with(&between[..*at]) && first.ends_with(&between[*at..]))
            .max_by_key(|at| naturalness(between, *at))?;
        let (each_after, each_before) = between.split_at(cut);
        Some(Wrapping {
            before: first[..first.len() - each_before.len()].to_owned(),
            each_before: each_before.to_owned(),
            each_after: each_after.to_owned(),
            after: last[each_after.len()..].to_owned(),
            joiner: String::new(),
        })
    }

    /// The same, with a joiner if none fits without.
    pub(super) fn joined(first: &str, between: &str, last: &str) -> Wrapping {
        Wrapping::without_joiner(first, between, last).unwrap_or_else(|| {
            let (rest, each_before) =
                between.split_at(between.len() - common_suffix(first, between));
            let (each_after, joiner) = rest.split_at(common_prefix(rest, last));
            Wrapping {
                before: first[..first.len() - each_before.len()].to_owned(),
                each_before: each_before.to_owned(),
                each_after: each_after.to_owned(),
                after: last[each_after.len()..].to_owned(),
                joiner: joiner.to_owned(),
            }
        })
    }

    /// From one item, if several are unknown.
    pub(super) fn single(before: &str, after: &str) -> Wrapping {
        Wrapping {
            each_before: before.to_owned(),
            each_after: after.to_owned(),
            ..Wrapping::default()
        }
    }
}

/// Ranks cuts that render the same. The most natural one precedes the bracket that opens an item and
/// the whitespace before that bracket.
fn naturalness(between: &str, at: usize) -> (bool, usize) {
    let opens = between[at..].trim_start().starts_with(['<', '[', '{', '(']);
    let closed = !between[..at].ends_with(char::is_whitespace);
    (opens && closed, at)
}

/// A template of a slot between two texts.
pub(super) fn with_slot(before: &str, slot: &str, after: &str) -> String {
    format!("{}{{{slot}}}{}", escaped(before), escaped(after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_of_items() {
        let wrapping = Wrapping::without_joiner("A\n<c>\n", "\n</c>\n<c>\n", "\n</c>E")
            .expect("one wrapper fits");
        let Wrapping { before, each_before, each_after, after, .. } = wrapping;
        assert_eq!(
            (&*before, &*each_before, &*each_after, &*after),
            ("A", "\n<c>\n", "\n</c>", "E")
        );
        assert_eq!(Wrapping::without_joiner("[", ", ", "]"), None);
        let list = Wrapping::joined("C[{\"", "}, {\"", "}]");
        let Wrapping { before, each_before, each_after, after, joiner } = list;
        assert_eq!(
            (&*before, &*each_before, &*joiner, &*each_after, &*after),
            ("C[", "{\"", ", ", "}", "]")
        );
    }
}
