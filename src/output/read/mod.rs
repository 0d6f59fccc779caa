//! Arguments in every encoding -> the text of one JSON object, character by character.
//!
//! A reader is started where the arguments begin and says itself where they end. What it has given
//! out is never taken back.

mod elements;
mod json;
pub(crate) mod json_scanner;
mod json_writer;
mod literal;
mod pairs;
mod python;
mod tagged;
mod types;
mod values;

pub(super) use json::{ARGUMENTS_NULL, ARGUMENTS_STRING, JsonKind, JsonNote, PYTHON_LITERALS};

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;

use serde_json::Value;

use super::format::{Encoding, FormatText};

/// A reader of this encoding. `followers` are the tags that may stand behind the last parameter,
/// `schema` is that of the arguments.
pub(super) fn arguments_reader(
    encoding: &Encoding,
    followers: &[FormatText],
    schema: Option<&Value>,
) -> Box<dyn ArgumentsReader> {
    match encoding {
        Encoding::Json | Encoding::JsonText => Box::new(json::JsonReader::new()),
        Encoding::Tagged(tagged) => {
            Box::new(tagged::TaggedReader::new(tagged, followers.to_vec(), schema))
        }
        Encoding::Elements { prefix, item } => {
            Box::new(elements::ElementsReader::new(prefix, item, schema))
        }
        Encoding::Pairs { quote } => Box::new(pairs::PairsReader::new(quote)),
        Encoding::Python => Box::new(python::PythonReader::new(schema)),
    }
}

/// What a character meant to a reader of arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ReadStep {
    /// It belongs to the arguments, or may.
    More,
    /// It closed the arguments: the bracket that opened them is balanced.
    Done,
    /// The arguments ended before this text (the characters held, this one included), which is not
    /// theirs.
    Ended(String),
    /// These are no arguments. Only before anything was given out; what the reader was fed goes
    /// back to the text.
    Broken,
}

/// Reads arguments in one encoding.
pub(super) trait ArgumentsReader: std::fmt::Debug + Send {
    /// Takes the next character. What became certain of the JSON text is appended to `out`, never
    /// cut inside an escape.
    fn step(&mut self, c: char, out: &mut String) -> ReadStep;

    /// The output ends here. Closes what is open as well as it can, so that `out` completes the
    /// JSON object where the text allows it; false when the arguments were cut off.
    fn finish(&mut self, out: &mut String) -> bool;

    /// Whether it is certain that these are arguments: their first bracket, or the first key with
    /// what follows it.
    fn is_certain(&self) -> bool;

    /// Whether a tag standing here would be none of the arguments' own text: they have no place for
    /// it outside of strings.
    fn is_between_values(&self) -> bool {
        false
    }

    /// Diagnostic codes of what was relaxed so far, each with a few words for people. Taken, not
    /// repeated.
    fn take_notes(&mut self) -> Vec<(&'static str, String)>;

    /// Values that are no part of the arguments, because their parameter already has one. Taken,
    /// not repeated.
    fn take_leftover(&mut self) -> Vec<String> {
        Vec::new()
    }
}
