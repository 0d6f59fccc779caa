//! Generates vocabularies, and formats that are known from evidence.

use std::collections::BTreeSet;

use arbitrary::Unstructured;
use llb::output::FormatClues;
use llb::output::format::Format;

use crate::replies::families;

/// The tags in a text: from `<` or `[` to its end.
fn tags(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(['>', ']'])
        .map(|piece| &piece[piece.rfind(['<', '[']).unwrap_or_default()..])
        .filter(|tag| tag.len() > 2)
}

/// Some tags of some families.
pub fn special_tokens(u: &mut Unstructured<'_>) -> arbitrary::Result<Vec<String>> {
    let mut tokens = BTreeSet::new();
    for _ in 0..u.int_in_range(0..=3)? {
        let texts = families()[u.choose_index(families().len())?].texts();
        tokens.extend(texts.into_iter().flat_map(tags).map(str::to_owned));
    }
    Ok(tokens.into_iter().collect())
}

/// A format that is detected from a vocabulary or from instructions. The instructions contain the
/// texts of a family.
pub fn evident_format(
    u: &mut Unstructured<'_>,
    special: &[String],
) -> arbitrary::Result<Option<Format>> {
    let family = &families()[u.choose_index(families().len())?];
    let instructions = match u.int_in_range(0..=2)? {
        0 => String::new(),
        1 => family.texts().join("NAME"),
        _ => u.arbitrary::<&str>()?.to_owned(),
    };
    let clues = FormatClues {
        instructions: &instructions,
        tool_words: &["plimsoll"],
        turns: &[],
        is_special: &|text| special.iter().any(|token| token == text),
        in_source: &|_| true,
    };
    Ok(clues.find().ok().flatten().map(|found| found.format))
}
