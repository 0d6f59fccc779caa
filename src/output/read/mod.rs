//! Reads arguments in every encoding, character by character, and emits the text of one JSON
//! object.
//!
//! A reader starts where the arguments begin and detects their end itself. Emitted text is never
//! taken back.

mod arguments;
mod elements;
mod entities;
pub(crate) mod json;
pub(crate) mod json_scanner;
mod json_word;
mod json_writer;
mod pairs;
mod python;
mod tagged;
mod typed_value;
mod values;

pub(super) use arguments::{ArgumentsReader, Followers, MarkMatch, ReadStep};
pub(super) use json::{ARGUMENTS_FLAT, ARGUMENTS_STRING, JsonKind, JsonNote};
pub(crate) use tagged::ValueEnds;
pub(crate) use typed_value::{object_text, text_as};

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;

use super::format::Encoding;
use crate::json_schema::ArgumentsSchema;

/// Creates a reader of this encoding. `followers` are the tags that may follow the last parameter.
/// `schema` is the schema of the arguments.
pub(super) fn arguments_reader(
    encoding: &Encoding,
    followers: &Followers,
    schema: ArgumentsSchema,
) -> Box<dyn ArgumentsReader> {
    match encoding {
        Encoding::Json | Encoding::JsonText => Box::new(json::JsonReader::new(schema)),
        Encoding::Tagged(tagged) => Box::new(tagged::TaggedReader::new(tagged, followers, schema)),
        Encoding::Elements { prefix, item } => {
            Box::new(elements::ElementsReader::new(prefix, item, followers, schema))
        }
        Encoding::Pairs { quote } => Box::new(pairs::PairsReader::new(quote, schema)),
        Encoding::Python(form) => Box::new(python::PythonReader::new(form, schema)),
    }
}
