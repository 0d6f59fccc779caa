//! Texts of a format: the tags in them, and characters that are written as entities.

use std::borrow::Cow;

/// Text of a format, from the table of families or from a template.
pub type FormatText = Cow<'static, str>;

/// The backticks around a fenced block.
pub(in crate::output) const FENCE: &str = "```";

/// The tags in a text: `<tool_call>`, `[ARGS]`. A tag has no white space and at least one letter or
/// digit, and ends at the first bracket that closes it. In time linear in the text's length.
pub(crate) fn tags(text: &str) -> Vec<&str> {
    text.split_whitespace().flat_map(tags_of_word).collect()
}

fn tags_of_word(word: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    let mut angle = CharacterSearch::new(word, |character| character == '>');
    let mut square = CharacterSearch::new(word, |character| character == ']');
    let mut letter = CharacterSearch::new(word, char::is_alphanumeric);
    let mut from = 0;
    while let Some(start) = word[from..].find(['<', '[']).map(|length| from + length) {
        let closing = if word[start..].starts_with('<') { &mut angle } else { &mut square };
        let end = closing.first(start).map(|end| end + 1);
        let is_tag = |end: &usize| letter.first(start).is_some_and(|letter| letter < *end);
        let end = end.filter(is_tag);
        tags.extend(end.map(|end| &word[start..end]));
        from = end.unwrap_or(start + 1);
    }
    tags
}

/// Finds the first character of a kind at or after positions that only grow, and looks at each
/// character once.
struct CharacterSearch<'a> {
    text: &'a str,
    is_wanted: fn(char) -> bool,
    found: Option<usize>,
}

impl<'a> CharacterSearch<'a> {
    fn new(text: &'a str, is_wanted: fn(char) -> bool) -> Self {
        CharacterSearch { text, is_wanted, found: text.find(is_wanted) }
    }

    fn first(&mut self, from: usize) -> Option<usize> {
        if self.found.is_some_and(|found| found < from) {
            self.found = self.text[from..].find(self.is_wanted).map(|length| from + length);
        }
        self.found
    }
}

/// Characters, and the entities that stand for them: `<` and `&lt;`.
pub type Entities = &'static [(char, &'static str)];

/// The sets of characters that templates write as entities. An ampersand is always one of them.
pub const ENTITY_SETS: [Entities; 3] = [
    &[('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;")],
    &[('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;")],
    // Jinja's filter `escape`.
    &[('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&#34;"), ('\'', "&#39;")],
];

/// A text whose special characters are entities.
pub(crate) fn with_entities(text: &str, entities: Entities) -> String {
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        match entities.iter().find(|(special, _)| *special == c) {
            Some((_, entity)) => written.push_str(entity),
            None => written.push(c),
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::tags;

    #[test]
    fn tags_of_a_text() {
        let found = tags("a<b>c <d e> [F]<[>g] <> <|h|> <i [j>] </k>\n<é>");
        assert_eq!(found, ["<b>", "[F]", "[>g]", "<|h|>", "[j>]", "</k>", "<é>"]);
        assert!(tags("").is_empty() && tags("[x<").is_empty());
    }

    #[test]
    fn hostile_texts_take_linear_time() {
        // With a look at all that follows for each bracket, these would take minutes.
        let brackets = "<".repeat(1 << 20);
        for end in ["", ">", " >", "]", " a>"] {
            assert!(tags(&format!("{brackets}{end}")).is_empty());
        }
        assert_eq!(tags(&format!("{brackets}a>")).len(), 1);
        assert_eq!(tags(&"<a>[b]".repeat(1 << 17)).len(), 1 << 18);
    }
}
