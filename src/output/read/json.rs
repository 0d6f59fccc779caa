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

const ARGUMENTS_NULL: JsonNote =
    ("arguments_null", "the arguments are null; they were replaced by an empty object");
pub(crate) const ARGUMENTS_STRING: JsonNote =
    ("arguments_string_unwrapped", "the arguments are a string that holds an object");
const ARGUMENTS_EMPTY_LIST: JsonNote =
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
    is_string(schema.types(&schema.parameter(key).pointers), None)
}

impl JsonReader {
    pub(super) fn new(schema: ArgumentsSchema) -> JsonReader {
        JsonReader { schema, ..JsonReader::default() }
    }

    /// Emits the object that a string or a null stands for. Returns whether there is one.
    fn emit_object(&mut self, out: &mut String) -> bool {
        let text = if self.word.is_empty() { self.scanner.text() } else { &self.word };
        let object = self.kind.and_then(|kind| object_of(kind, text));
        if let Some((object, note)) = object {
            out.push_str(object);
            self.notes.push(note);
        }
        object.is_some()
    }
}

/// The object that arguments of another kind stand for, and the deviation: the text of a string,
/// which may be empty, or an empty object for null or an empty list.
pub(crate) fn object_of(kind: JsonKind, text: &str) -> Option<(&str, JsonNote)> {
    let list = text.trim().strip_prefix('[').and_then(|list| list.strip_suffix(']'));
    match (kind, text.trim()) {
        (JsonKind::String, "") => Some(("{}", ARGUMENTS_STRING)),
        (JsonKind::String, _) => Some((text, ARGUMENTS_STRING)),
        (JsonKind::Word, "null" | "None") => Some(("{}", ARGUMENTS_NULL)),
        (JsonKind::Array, _) if list?.trim().is_empty() => Some(("{}", ARGUMENTS_EMPTY_LIST)),
        _ => None,
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
                _ => return ReadStep::Broken(c.len_utf8()),
            },
            Some(JsonKind::Word) if c.is_ascii_alphabetic() => {
                self.word.push(c);
                let may_be_null = ["null", "None"].iter().any(|word| word.starts_with(&self.word));
                return if may_be_null { ReadStep::More } else { ReadStep::Broken(c.len_utf8()) };
            }
            Some(JsonKind::Word) => {
                let is_null = self.emit_object(out);
                let broken = ReadStep::Broken(c.len_utf8());
                return if is_null { ReadStep::Ended(c.to_string()) } else { broken };
            }
            Some(_) => {}
        }
        let text = self.kind == Some(JsonKind::String);
        let event = self.scanner.step(c, if text { &mut ignored } else { out });
        match event {
            ScanEvent::StringEnd if text => {
                self.emit_object(out);
                ReadStep::Closed
            }
            ScanEvent::Close if self.scanner.depth() == 0 => ReadStep::Closed,
            ScanEvent::Key if self.scanner.depth() == 1 => {
                self.scanner.keep_zeros(is_text(&self.schema, self.scanner.text()));
                ReadStep::More
            }
            _ => ReadStep::More,
        }
    }

    fn finish(&mut self, out: &mut String) -> bool {
        if self.kind == Some(JsonKind::Object) {
            self.scanner.flush(out);
        }
        self.emit_object(out) && self.kind == Some(JsonKind::Word)
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
    let rewritten = scanner.take_rewritten().into_iter();
    let rewritten = rewritten.zip([PYTHON_LITERALS, COMMENTS, LEADING_ZEROS]);
    let rewritten = rewritten.filter_map(|(is_rewritten, note)| is_rewritten.then_some(note));
    let notes = std::mem::take(notes).into_iter().chain(rewritten);
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
