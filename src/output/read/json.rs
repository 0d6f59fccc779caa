//! A JSON object, or a JSON string that holds one.

use super::{ArgumentsReader, ReadStep};
use crate::output::read::json_scanner::{ScanEvent, Scanner};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Object,
    Text,
    Word,
}

/// Reads arguments that are JSON; the text given out is the model's own, but for Python's spelling.
#[derive(Debug)]
pub(super) struct JsonReader {
    scanner: Scanner,
    kind: Option<Kind>,
    word: String,
    notes: Vec<(&'static str, String)>,
}

impl JsonReader {
    pub(super) fn new() -> JsonReader {
        JsonReader { scanner: Scanner::new(), kind: None, word: String::new(), notes: Vec::new() }
    }

    fn note(&mut self, code: &'static str, message: &str) {
        self.notes.push((code, message.to_owned()));
    }

    /// A string that holds the arguments is complete.
    fn unwrap_text(&mut self, out: &mut String) {
        let text = self.scanner.text();
        out.push_str(if text.trim().is_empty() { "{}" } else { text });
        self.note("arguments_string_unwrapped", "the arguments were a string that holds an object");
    }
}

impl ArgumentsReader for JsonReader {
    fn step(&mut self, c: char, out: &mut String) -> ReadStep {
        let mut ignored = String::new();
        match self.kind {
            None => match c {
                ' ' | '\t' | '\n' | '\r' => return ReadStep::More,
                '{' => self.kind = Some(Kind::Object),
                '"' | '\'' => self.kind = Some(Kind::Text),
                'n' | 'N' => {
                    self.kind = Some(Kind::Word);
                    self.word.push(c);
                    return ReadStep::More;
                }
                _ => return ReadStep::Broken,
            },
            Some(Kind::Word) if c.is_ascii_alphabetic() => {
                self.word.push(c);
                return if matches!(&*self.word, "n" | "nu" | "nul" | "null" | "No" | "Non" | "None")
                {
                    ReadStep::More
                } else {
                    ReadStep::Broken
                };
            }
            Some(Kind::Word) if matches!(&*self.word, "null" | "None") => {
                out.push_str("{}");
                self.note("arguments_null", "the arguments were null and became an empty object");
                return ReadStep::Ended(c.to_string());
            }
            Some(Kind::Word) => return ReadStep::Broken,
            Some(_) => {}
        }
        let text = self.kind == Some(Kind::Text);
        let event = self.scanner.step(c, if text { &mut ignored } else { out });
        match event {
            ScanEvent::StringEnd if text => {
                self.unwrap_text(out);
                ReadStep::Done
            }
            ScanEvent::Close if self.scanner.depth() == 0 => ReadStep::Done,
            _ => ReadStep::More,
        }
    }

    fn finish(&mut self, out: &mut String) -> bool {
        match self.kind {
            Some(Kind::Text) => self.unwrap_text(out),
            Some(Kind::Word) if matches!(&*self.word, "null" | "None") => {
                out.push_str("{}");
                self.note("arguments_null", "the arguments were null and became an empty object");
                return true;
            }
            Some(Kind::Object) => self.scanner.flush(out),
            _ => {}
        }
        false
    }

    fn is_certain(&self) -> bool {
        self.kind == Some(Kind::Object)
            || (self.kind == Some(Kind::Text) && !self.scanner.in_string())
    }

    fn is_between_values(&self) -> bool {
        self.kind == Some(Kind::Object) && !self.scanner.in_string()
    }

    fn take_notes(&mut self) -> Vec<(&'static str, String)> {
        if self.scanner.take_python() {
            self.note(
                "python_literals",
                "the call was spelled as Python and was rewritten as JSON",
            );
        }
        std::mem::take(&mut self.notes)
    }
}
