//! Reads arguments in every encoding, character by character, and emits the text of one JSON
//! object.
//!
//! A reader starts where the arguments begin and detects their end itself. Emitted text is never
//! taken back.

mod elements;
mod json;
pub(crate) mod json_check;
pub(crate) mod json_scanner;
mod json_writer;
mod literal;
mod pairs;
mod python;
mod tagged;
mod typed_value;
mod values;

pub(super) use json::{
    ARGUMENTS_EMPTY_LIST, ARGUMENTS_FLAT, ARGUMENTS_NULL, ARGUMENTS_STRING, COMMENTS, JsonKind,
    JsonNote, PYTHON_LITERALS,
};

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;

use serde_json::Value;

use super::format::{Encoding, FormatText};
use json_writer::JsonWriter;

/// Creates a reader of this encoding. `followers` are the tags that may follow the last parameter.
/// `schema` is the schema of the arguments.
pub(super) fn arguments_reader(
    encoding: &Encoding,
    followers: &[FormatText],
    schema: Option<&Value>,
) -> Box<dyn ArgumentsReader> {
    match encoding {
        Encoding::Json | Encoding::JsonText => Box::new(json::JsonReader::default()),
        Encoding::Tagged(tagged) => {
            Box::new(tagged::TaggedReader::new(tagged, followers.to_vec(), schema))
        }
        Encoding::Elements { prefix, item } => {
            Box::new(elements::ElementsReader::new(prefix, item, followers, schema))
        }
        Encoding::Pairs { quote } => Box::new(pairs::PairsReader::new(quote)),
        Encoding::Python => Box::new(python::PythonReader::new(schema)),
    }
}

/// The result of one character.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReadStep {
    /// The character belongs to the arguments, or may belong to them.
    More,
    /// The character closes the arguments.
    Done,
    /// The arguments ended before this text, which consists of held characters and the current one.
    Ended(String),
    /// The text is not arguments. This is possible only before anything is emitted.
    Broken,
}

/// Reads arguments in one encoding.
pub(super) trait ArgumentsReader: std::fmt::Debug + Send {
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
