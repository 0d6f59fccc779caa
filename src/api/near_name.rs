//! The known name that a misspelt one stands for.

/// The known name that is nearest to `name`: one of them begins with the other, or at most a third
/// of the characters differ.
pub(super) fn near_name<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    /// A longer name is no misspelling, and comparing it would take time.
    const MAX_LENGTH: usize = 64;
    if name.len() > MAX_LENGTH {
        return None;
    }
    let name = name.to_lowercase().replace('-', "_");
    let distance = |known: &str| match known.starts_with(&name) || name.starts_with(known) {
        true if known.len().min(name.len()) >= 4 => 1,
        _ => edits(&name, known),
    };
    let near = known.into_iter().map(|known| (distance(known), known)).min()?;
    (near.0 <= name.len() / 3).then_some(near.1)
}

/// The number of characters to insert, remove or replace (Levenshtein's distance).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (index, typed) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, wanted) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(typed != *wanted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_has_a_near_name_and_another_word_has_none() {
        let known = ["n_ctx", "n_threads", "model", "lora", "temperature", "use_mmap"];
        for (name, near) in [
            ("n_ctxx", Some("n_ctx")),
            ("nctx", Some("n_ctx")),
            ("N-CTX", Some("n_ctx")),
            ("n_thread", Some("n_threads")),
            ("model_path", Some("model")),
            ("temperatur", Some("temperature")),
            ("temp", Some("temperature")),
            ("usemmap", Some("use_mmap")),
            ("verbose", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(near_name(name, known), near, "{name}");
        }
        assert_eq!(near_name(&"n_ctx".repeat(1000), known), None);
        assert_eq!(near_name("n_ctxx", []), None);
    }

    #[test]
    fn edits_are_counted() {
        for (from, to, count) in
            [("", "", 0), ("abc", "", 3), ("", "ab", 2), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(edits(from, to), count, "{from} {to}");
        }
    }
}
