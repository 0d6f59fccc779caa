//! Python keyword arguments without the parentheses -> JSON: `a=1, b='x'` is `{"a": 1, "b": "x"}`.
//!
//! The text begins after `(` and ends before the `)` that closes it. A value without a name gets
//! the name of the only required parameter, or of the only parameter. Otherwise it gets a name by
//! its position: `arg0`, `arg1`… A call cannot begin with such a value.

use serde_json::Value;

use super::arguments::{ArgumentsReader, ReadStep};
use super::json_writer::JsonWriter;
use super::values::{ValueReader, ValueStep, is_string_prefix};
use crate::json_schema::{ArgumentsSchema, SchemaPointers};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PythonState {
    /// Before or in a name, or in a value without a name.
    Name,
    Value,
    Finished,
}

/// Reads keyword arguments.
#[derive(Debug)]
pub(super) struct PythonReader {
    schema: ArgumentsSchema,
    root: SchemaPointers,
    values: ValueReader,
    writer: JsonWriter,
    state: PythonState,
    /// Text that may be a name, whitespace included.
    name: String,
    /// The number of arguments so far.
    count: usize,
    /// Whether the only parameter already has a value.
    only_given: bool,
}

impl PythonReader {
    pub(super) fn new(schema: Option<&Value>) -> PythonReader {
        let schema = ArgumentsSchema::new(schema);
        PythonReader {
            root: schema.root(),
            schema,
            values: ValueReader::new("", true),
            writer: JsonWriter::default(),
            state: PythonState::Name,
            name: String::new(),
            count: 0,
            only_given: false,
        }
    }

    fn name_step(&mut self, c: char, out: &mut String) -> ReadStep {
        let name = self.name.trim_end();
        match c {
            '=' | ':' if is_name(name) => {
                let name = name.to_owned();
                self.begin(&name, out);
                self.name.clear();
            }
            c if c.is_whitespace() => {
                if !self.name.is_empty() {
                    self.name.push(c);
                }
            }
            ',' if name.is_empty() => {}
            ')' | ']' | '}' if name.is_empty() => return self.end(c, out),
            ',' | ')' | ']' | '}' | '(' | '[' | '{' => return self.positional(c, out),
            '"' | '\'' if name.is_empty() || is_string_prefix(name) => {
                return self.positional(c, out);
            }
            c => self.name.push(c),
        }
        ReadStep::More
    }

    /// Reads a value without a name. `c` belongs to it or ends it.
    fn positional(&mut self, c: char, out: &mut String) -> ReadStep {
        let only = self.schema.only_parameter().filter(|_| !self.only_given);
        let name = match only {
            Some(name) => name,
            None if self.count == 0 => return ReadStep::Broken,
            None => format!("arg{}", self.count),
        };
        self.writer
            .note("arg_positional", format!("a value without a name was assigned to `{name}`"));
        self.begin(&name, out);
        let text = std::mem::take(&mut self.name);
        for c in text.chars() {
            self.values.step(c, &mut self.writer, out);
        }
        self.value_step(c, out)
    }

    fn begin(&mut self, name: &str, out: &mut String) {
        if self.count == 0 {
            self.writer.open_object(out);
        }
        self.count += 1;
        self.only_given |= self.schema.only_parameter().is_some_and(|only| only == name);
        if self.schema.member(&self.root, name).unknown {
            self.writer.note("arg_unknown", format!("the tool has no parameter `{name}`"));
        }
        self.writer.key(name, out);
        self.values.restart();
        self.state = PythonState::Value;
    }

    fn value_step(&mut self, c: char, out: &mut String) -> ReadStep {
        if self.values.step(c, &mut self.writer, out) == ValueStep::More {
            return ReadStep::More;
        }
        self.state = PythonState::Name;
        match c {
            ',' => ReadStep::More,
            ')' | ']' | '}' => self.end(c, out),
            // A comma is missing.
            c => self.name_step(c, out),
        }
    }

    fn end(&mut self, c: char, out: &mut String) -> ReadStep {
        self.close(out);
        ReadStep::Ended(c.to_string())
    }

    fn close(&mut self, out: &mut String) {
        self.values.finish(&mut self.writer, out);
        if self.count == 0 {
            self.writer.open_object(out);
        }
        self.writer.close_all(out);
        self.state = PythonState::Finished;
    }
}

impl ArgumentsReader for PythonReader {
    fn step(&mut self, c: char, out: &mut String) -> ReadStep {
        match self.state {
            PythonState::Name => self.name_step(c, out),
            PythonState::Value => self.value_step(c, out),
            PythonState::Finished => ReadStep::Ended(c.to_string()),
        }
    }

    fn finish(&mut self, out: &mut String) -> bool {
        if self.state != PythonState::Finished {
            self.close(out);
        }
        false
    }

    fn is_certain(&self) -> bool {
        self.count > 0
    }

    fn writer(&mut self) -> Option<&mut JsonWriter> {
        Some(&mut self.writer)
    }
}

/// Whether a word may be a parameter's name. Models also use `-` and `.`.
fn is_name(word: &str) -> bool {
    let first = word.chars().next().is_some_and(|c| c.is_alphabetic() || matches!(c, '_' | '$'));
    first && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$'))
}
