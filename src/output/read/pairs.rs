//! Arguments that are one object with bare keys and its own quotes, as Gemma writes them.

use super::arguments::{ArgumentsReader, ReadStep};
use super::json_writer::JsonWriter;
use super::values::{MemberTypes, ValueReader, ValueStep};
use crate::json_schema::ArgumentsSchema;

/// Reads arguments that are an object with bare keys and its own quotes, braces included:
/// `{a:1,b:<|"|>x<|"|>}` is `{"a": 1, "b": "x"}`. Strings have no escapes, so the next quote ends a
/// string. JSON and Python notation are accepted too. A member whose schema allows no string may
/// have quotes around any value.
#[derive(Debug)]
pub(super) struct PairsReader {
    values: ValueReader,
    begun: bool,
    finished: bool,
}

impl PairsReader {
    /// `quote` encloses strings.
    pub(super) fn new(quote: &str, schema: ArgumentsSchema) -> PairsReader {
        let values = ValueReader::with_quote(quote, MemberTypes::new(schema));
        PairsReader { values, begun: false, finished: false }
    }
}

impl ArgumentsReader for PairsReader {
    fn step(&mut self, c: char, out: &mut String) -> ReadStep {
        if !self.begun {
            if c.is_whitespace() {
                return ReadStep::More;
            }
            if c != '{' {
                return ReadStep::Broken(c.len_utf8());
            }
            self.begun = true;
        }
        let has_ended = self.finished || self.values.step(c) == ValueStep::Ended;
        self.values.writer.move_to(out);
        if has_ended {
            return ReadStep::Ended(c.to_string());
        }
        if self.values.depth() > 0 {
            return ReadStep::More;
        }
        self.finished = true;
        ReadStep::Closed
    }

    fn finish(&mut self, out: &mut String) -> bool {
        if std::mem::replace(&mut self.finished, true) {
            return true;
        }
        self.values.finish();
        self.values.writer.move_to(out);
        false
    }

    fn is_certain(&self) -> bool {
        self.begun
    }

    fn writer(&mut self) -> Option<&mut JsonWriter> {
        Some(&mut self.values.writer)
    }
}
