//! Whether a reader is inside a string of a value in JSON or in Python's notation.

/// Where the reader is. A string has its quote.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum JsonString {
    #[default]
    Outside,
    Inside(char),
    Escape(char),
}

impl JsonString {
    /// Where the reader is after this character. A string has no line break.
    pub(super) fn after(self, c: char) -> JsonString {
        match (self, c) {
            (_, '\n') => JsonString::Outside,
            (JsonString::Outside, '"' | '\'') => JsonString::Inside(c),
            (JsonString::Inside(quote), _) if c == quote => JsonString::Outside,
            (JsonString::Inside(quote), '\\') => JsonString::Escape(quote),
            (JsonString::Escape(quote), _) => JsonString::Inside(quote),
            (state, _) => state,
        }
    }
}
