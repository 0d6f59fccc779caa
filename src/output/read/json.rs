//! Arguments as a JSON object, or as a JSON string that holds one: their reader, their faults, and
//! their repair.

use super::arguments::{ArgumentsReader, ReadStep};
use super::json_scanner::{Faults, ScanEvent, Scanner, is_whitespace};
use super::typed_value::is_string;
use crate::json_schema::ArgumentsSchema;

/// The type of JSON value that arguments begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonKind {
    Object,
    Array,
    String,
    /// A number or a literal.
    Word,
}

/// The code and the message of a diagnostic.
pub(crate) type JsonNote = (&'static str, &'static str);

pub(crate) const ARGUMENTS_NULL: JsonNote =
    ("arguments_null", "the arguments are null; they were replaced by an empty object");
pub(crate) const ARGUMENTS_STRING: JsonNote =
    ("arguments_string_unwrapped", "the arguments are a string that holds an object");
pub(crate) const ARGUMENTS_EMPTY_LIST: JsonNote =
    ("arguments_null", "the arguments are an empty list; it was replaced by an empty object");
pub(crate) const ARGUMENTS_FLAT: JsonNote =
    ("arguments_flat", "the arguments are members of the call itself; they were gathered");
const COMMENTS: JsonNote = ("comments_removed", "comments in the call were removed");
const LEADING_ZEROS: JsonNote =
    ("arg_coerced", "a number with leading zeros was rewritten as JSON");
const PYTHON_LITERALS: JsonNote =
    ("python_literals", "the call is in Python's notation; it was rewritten as JSON");

/// Reads arguments that are JSON. The output is the model's own text, with Python's notation
/// rewritten.
#[derive(Debug, Default)]
pub(super) struct JsonReader {
    scanner: Scanner,
    kind: Option<JsonKind>,
    word: String,
    notes: Vec<JsonNote>,
    schema: ArgumentsSchema,
}

/// Whether the schema of the arguments requires a string for this key.
pub(crate) fn is_text(schema: &ArgumentsSchema, key: &str) -> bool {
    is_string(schema.types(&schema.member(&schema.root(), key).pointers), None)
}

impl JsonReader {
    pub(super) fn new(schema: ArgumentsSchema) -> JsonReader {
        JsonReader { schema, ..JsonReader::default() }
    }

    /// Emits the content of a string that holds the arguments.
    fn unwrap_string(&mut self, out: &mut String) {
        let text = self.scanner.text();
        out.push_str(if text.trim().is_empty() { "{}" } else { text });
        self.notes.push(ARGUMENTS_STRING);
    }

    fn replace_null(&mut self, out: &mut String) {
        out.push_str("{}");
        self.notes.push(ARGUMENTS_NULL);
    }
}

impl ArgumentsReader for JsonReader {
    fn step(&mut self, c: char, out: &mut String) -> ReadStep {
        let mut ignored = String::new();
        match self.kind {
            None => match c {
                c if is_whitespace(c) => return ReadStep::More,
                '{' => self.kind = Some(JsonKind::Object),
                '"' | '\'' => self.kind = Some(JsonKind::String),
                'n' | 'N' => {
                    self.kind = Some(JsonKind::Word);
                    self.word.push(c);
                    return ReadStep::More;
                }
                _ => return ReadStep::Broken,
            },
            Some(JsonKind::Word) if c.is_ascii_alphabetic() => {
                self.word.push(c);
                return if matches!(&*self.word, "n" | "nu" | "nul" | "null" | "No" | "Non" | "None")
                {
                    ReadStep::More
                } else {
                    ReadStep::Broken
                };
            }
            Some(JsonKind::Word) if matches!(&*self.word, "null" | "None") => {
                self.replace_null(out);
                return ReadStep::Ended(c.to_string());
            }
            Some(JsonKind::Word) => return ReadStep::Broken,
            Some(_) => {}
        }
        let text = self.kind == Some(JsonKind::String);
        let event = self.scanner.step(c, if text { &mut ignored } else { out });
        match event {
            ScanEvent::StringEnd if text => {
                self.unwrap_string(out);
                ReadStep::Done
            }
            ScanEvent::Close if self.scanner.depth() == 0 => ReadStep::Done,
            ScanEvent::Key if self.scanner.depth() == 1 => {
                self.scanner.keep_zeros(is_text(&self.schema, self.scanner.text()));
                ReadStep::More
            }
            _ => ReadStep::More,
        }
    }

    fn finish(&mut self, out: &mut String) -> bool {
        match self.kind {
            Some(JsonKind::String) => self.unwrap_string(out),
            Some(JsonKind::Word) if matches!(&*self.word, "null" | "None") => {
                self.replace_null(out);
                return true;
            }
            Some(JsonKind::Object) => self.scanner.flush(out),
            _ => {}
        }
        false
    }

    fn is_certain(&self) -> bool {
        self.kind == Some(JsonKind::Object)
            || (self.kind == Some(JsonKind::String) && !self.scanner.in_string())
    }

    fn is_between_values(&self) -> bool {
        self.kind == Some(JsonKind::Object) && !self.scanner.in_string()
    }

    fn take_notes(&mut self) -> Vec<(&'static str, String)> {
        take_notes(&mut self.scanner, &mut self.notes)
    }
}

/// Takes these diagnostics, and those of the scanner.
pub(crate) fn take_notes(
    scanner: &mut Scanner,
    notes: &mut Vec<JsonNote>,
) -> Vec<(&'static str, String)> {
    let python = scanner.take_python().then_some(PYTHON_LITERALS);
    let comments = scanner.take_comments().then_some(COMMENTS);
    let zeros = scanner.take_zeros().then_some(LEADING_ZEROS);
    let notes = std::mem::take(notes).into_iter().chain(python).chain(comments).chain(zeros);
    notes.map(|(code, message)| (code, message.to_owned())).collect()
}

/// The faults of a text that should be one JSON object.
pub(crate) fn check_object(text: &str) -> Faults {
    let mut scanner = Scanner::default();
    let mut out = String::new();
    for c in text.chars() {
        if scanner.ends_word(c) {
            scanner.close_word(&mut out);
        }
        scanner.step(c, &mut out);
        out.clear();
    }
    let object = text.trim_start().starts_with('{');
    let mut faults = scanner.faults();
    faults.syntax |=
        faults.python || faults.comments || faults.zeros || !object || !scanner.is_done();
    faults
}

/// Repairs a broken object: removes trailing commas and escapes control characters. None if faults
/// remain.
pub(crate) fn repair(text: &str) -> Option<String> {
    let mut repaired = String::with_capacity(text.len());
    let mut scanner = Scanner::default();
    let mut ignored = String::new();
    let mut comma: Option<usize> = None;
    for c in text.chars() {
        if scanner.in_string() {
            match c {
                '\n' => repaired.push_str("\\n"),
                '\r' => repaired.push_str("\\r"),
                '\t' => repaired.push_str("\\t"),
                c => repaired.push(c),
            }
        } else {
            match c {
                ',' => comma = Some(repaired.len()),
                '}' | ']' => {
                    if let Some(at) = comma.take() {
                        repaired.remove(at);
                    }
                }
                c if is_whitespace(c) => {}
                _ => comma = None,
            }
            repaired.push(c);
        }
        scanner.step(c, &mut ignored);
        ignored.clear();
    }
    (!check_object(&repaired).any()).then_some(repaired)
}
