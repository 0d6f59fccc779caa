//! Arguments with bare keys and quotes of their own, braces included -> JSON: `{a:1,b:<|"|>x<|"|>}`
//! is `{"a": 1, "b": "x"}`.
//!
//! Nothing is escaped between the markers, so the first marker ends a string. JSON and Python are
//! taken as well.

use super::json_writer::JsonWriter;
use super::values::{Taken, Values};
use super::{ArgumentsReader, ReadStep};

/// Reads pairs.
#[derive(Debug)]
pub(super) struct PairsReader {
    values: Values,
    writer: JsonWriter,
    begun: bool,
    finished: bool,
}

impl PairsReader {
    /// `quote` stands on both sides of a string.
    pub(super) fn new(quote: &str) -> PairsReader {
        PairsReader {
            values: Values::new(quote, false),
            writer: JsonWriter::default(),
            begun: false,
            finished: false,
        }
    }
}

impl ArgumentsReader for PairsReader {
    fn step(&mut self, c: char, out: &mut String) -> ReadStep {
        if !self.begun {
            if c.is_whitespace() {
                return ReadStep::More;
            }
            if c != '{' {
                return ReadStep::Broken;
            }
            self.begun = true;
        }
        if self.finished || self.values.step(c, &mut self.writer, out) == Taken::No {
            return ReadStep::Ended(c.to_string());
        }
        if self.values.depth() > 0 {
            return ReadStep::More;
        }
        self.finished = true;
        ReadStep::Done
    }

    fn finish(&mut self, out: &mut String) -> bool {
        if std::mem::replace(&mut self.finished, true) {
            return true;
        }
        self.values.finish(&mut self.writer, out);
        false
    }

    fn is_certain(&self) -> bool {
        self.begun
    }

    fn take_notes(&mut self) -> Vec<(&'static str, String)> {
        self.writer.take_notes()
    }

    fn take_leftover(&mut self) -> Vec<String> {
        self.writer.take_leftover()
    }
}
