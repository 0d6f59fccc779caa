//! What all readers of arguments have in common: the trait, the result of one character, the tags
//! that may follow, and how text matches a tag.

use super::json_writer::JsonWriter;

/// The result of one character of arguments, or of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadStep {
    /// The character belongs to the arguments, or may belong to them.
    More,
    /// The character closes the arguments.
    Closed,
    /// The arguments ended before this text, which consists of held characters and the current one.
    Ended(String),
    /// The text is not arguments. This many bytes at its end may start something else. A reader of
    /// arguments returns this only before anything is emitted.
    Broken(usize),
}

/// Reads arguments in one encoding.
pub(crate) trait ArgumentsReader: std::fmt::Debug + Send {
    /// Reads the next character. Appends to `out` the JSON text that is now certain, which never
    /// ends inside an escape.
    fn step(&mut self, c: char, out: &mut String) -> ReadStep;

    /// Ends the text. If possible, appends to `out` what completes the JSON object. Returns false
    /// if the text ended inside the arguments.
    fn finish(&mut self, out: &mut String) -> bool;

    /// Whether the text is certainly arguments: the opening bracket, or the first key with its
    /// delimiter, was read.
    fn is_certain(&self) -> bool;

    /// Whether a tag at this point cannot be part of the arguments, because it is outside all
    /// values.
    fn is_between_values(&self) -> bool {
        false
    }

    /// The writer of the JSON text; `None` if the emitted text is the model's own.
    fn writer(&mut self) -> Option<&mut JsonWriter> {
        None
    }

    /// Takes the diagnostics of accepted deviations, as code and message.
    fn take_notes(&mut self) -> Vec<(&'static str, String)> {
        self.writer().map(JsonWriter::take_notes).unwrap_or_default()
    }

    /// Takes the values of repeated parameters.
    fn take_leftover(&mut self) -> Vec<String> {
        self.writer().map(JsonWriter::take_leftover).unwrap_or_default()
    }
}

/// The tags that may follow the arguments of a call, without whitespace around them. None is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Followers {
    /// The tags that close a call or a section.
    pub(crate) closing: Vec<String>,
    /// The tags that open a call or a section.
    pub(crate) opening: Vec<String>,
}

impl Followers {
    /// All tags, those that close first.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.closing.iter().chain(&self.opening).map(String::as_str)
    }
}

/// How a text matches a mark, such as a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MarkMatch {
    No,
    /// The text may become the mark.
    Part,
    /// The text starts with the mark, of this number of bytes.
    Full(usize),
}

impl MarkMatch {
    pub(crate) fn of(text: &str, mark: &str) -> MarkMatch {
        if text.starts_with(mark) {
            MarkMatch::Full(mark.len())
        } else if mark.starts_with(text) {
            MarkMatch::Part
        } else {
            MarkMatch::No
        }
    }

    /// The best match of one of the marks.
    pub(crate) fn of_any(
        text: &str,
        marks: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> MarkMatch {
        let matches = marks.into_iter().map(|mark| MarkMatch::of(text, mark.as_ref()));
        matches.fold(MarkMatch::No, MarkMatch::or)
    }

    /// The better match. If both are full, the first.
    pub(crate) fn or(self, other: MarkMatch) -> MarkMatch {
        match (self, other) {
            (MarkMatch::Full(_), _) | (_, MarkMatch::No) => self,
            (_, MarkMatch::Full(_)) | (MarkMatch::No, _) => other,
            (MarkMatch::Part, MarkMatch::Part) => self,
        }
    }

    /// The same match, for a text that begins `by` bytes later.
    pub(crate) fn shifted(self, by: usize) -> MarkMatch {
        if let MarkMatch::Full(at) = self { MarkMatch::Full(at + by) } else { self }
    }
}
