//! The text around several items, and text as it is written in a template with slots.

use crate::probing::diff::{common_prefix, common_suffix};

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
