//! The text around several items, and escaped text for templates with slots.

pub(super) use crate::compose::spec::slots::escaped;
use crate::probing::diff::{common_prefix, common_suffix};

/// The texts around several items: around each, between them, and around all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Wrapping {
    /// The text before all items.
    pub(super) before: String,
    /// The text before each item.
    pub(super) each_before: String,
    /// The text after each item.
    pub(super) each_after: String,
    /// The text after all items.
    pub(super) after: String,
    /// The text between two items.
    pub(super) joiner: String,
}

impl Wrapping {
    /// Derives a wrapping without a joiner from the texts before the first item, between two, and
    /// after the last. None if the text between two items is not the end of one item and the start
    /// of the next.
    pub(super) fn without_joiner(first: &str, between: &str, last: &str) -> Option<Wrapping> {
        let cuts = (0..=between.len()).filter(|at| between.is_char_boundary(*at));
        let cut = cuts
            .filter(|at| last.starts_with(&between[..*at]) && first.ends_with(&between[*at..]))
            .max_by_key(|at| naturalness(between, *at))?;
        let (each_after, each_before) = between.split_at(cut);
        Some(Wrapping::of(first, [each_after, "", each_before], last))
    }

    /// Derives a wrapping, with a joiner only if none without one fits.
    pub(super) fn joined(first: &str, between: &str, last: &str) -> Wrapping {
        Wrapping::without_joiner(first, between, last).unwrap_or_else(|| {
            let (rest, each_before) =
                between.split_at(between.len() - common_suffix(first, between));
            let (each_after, joiner) = rest.split_at(common_prefix(rest, last));
            Wrapping::of(first, [each_after, joiner, each_before], last)
        })
    }

    /// The wrapping if the text between two items has these parts.
    fn of(first: &str, between: [&str; 3], last: &str) -> Wrapping {
        let [each_after, joiner, each_before] = between.map(str::to_owned);
        Wrapping {
            before: first[..first.len() - each_before.len()].to_owned(),
            after: last[each_after.len()..].to_owned(),
            each_before,
            each_after,
            joiner,
        }
    }

    /// Derives a wrapping from one item, if renders of several items are not available.
    pub(super) fn single(before: &str, after: &str) -> Wrapping {
        Wrapping {
            each_before: before.to_owned(),
            each_after: after.to_owned(),
            ..Wrapping::default()
        }
    }
}

/// Ranks cuts that render the same. The most natural cut is before the bracket that opens an item
/// and the whitespace before that bracket.
fn naturalness(between: &str, at: usize) -> (bool, usize) {
    let opens = between[at..].trim_start().starts_with(['<', '[', '{', '(']);
    let closed = !between[..at].ends_with(char::is_whitespace);
    (opens && closed, at)
}

/// The template of a slot between two constant texts.
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
