//! One call as a JSON object, read character by character: which function, and where its arguments are.
//!
//! In: the characters from the opening brace on. Out: the name, and the arguments' text as soon as it may be shown. Never
//! gives out anything before name and arguments are both known to be there; never judges whether the tool exists.

use super::Format;
use super::partial_json::{Container, Event, Scanner};

/// Where the object stands after a character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// Inside.
    More,
    /// The brace that opened it is closed.
    Closed,
    /// This cannot be a call any more, or, after its arguments, this is no longer part of it.
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Arguments,
    Wrapper,
    Other,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Object,
    Array,
    Text,
    Word,
}

#[derive(Debug)]
pub(super) struct CallObject {
    scanner: Scanner,
    /// The level at which name and arguments stand; 0 once that object is closed.
    level: usize,
    field: Field,
    /// A key stood at the level that says nothing about a call.
    foreign_key: bool,
    name: Option<String>,
    kind: Option<Kind>,
    open: bool,
    arguments: String,
    after: String,
    notes: Vec<&'static str>,
}

impl CallObject {
    pub(super) fn new() -> CallObject {
        CallObject {
            scanner: Scanner::new(),
            level: 1,
            field: Field::Other,
            foreign_key: false,
            name: None,
            kind: None,
            open: false,
            arguments: String::new(),
            after: String::new(),
            notes: Vec::new(),
        }
    }

    /// The function's name, once it is complete.
    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// What the arguments turned out to be, once they have begun.
    pub(super) fn kind(&self) -> Option<Kind> {
        self.kind
    }

    /// The commit point: the name is known, and arguments that can be shown as they come have begun.
    pub(super) fn is_ready(&self) -> bool {
        self.name.is_some() && (self.arguments_complete() || (self.open && self.kind == Some(Kind::Object)))
    }

    pub(super) fn arguments_complete(&self) -> bool {
        self.kind.is_some() && !self.open
    }

    /// Whether keys were seen that no call has.
    pub(super) fn has_foreign_key(&self) -> bool {
        self.foreign_key
    }

    pub(super) fn in_string(&self) -> bool {
        self.scanner.in_string()
    }

    /// The arguments' text that has not been taken yet.
    pub(super) fn take_arguments(&mut self) -> String {
        std::mem::take(&mut self.arguments)
    }

    /// The text after the arguments, for the case that it is not the object's after all.
    pub(super) fn take_after(&mut self) -> String {
        std::mem::take(&mut self.after)
    }

    /// Diagnostic codes of what was relaxed.
    pub(super) fn notes(&self) -> impl Iterator<Item = &'static str> {
        let python = self.scanner.faults().python.then_some("python_literals");
        self.notes.iter().copied().chain(python)
    }

    pub(super) fn step(&mut self, c: char, format: &Format) -> Progress {
        let mut out = String::new();
        if self.scanner.ends_word(c) {
            self.scanner.close_word(&mut out);
            self.keep(&out);
            out.clear();
            if self.scanner.depth() == self.level {
                if self.field == Field::Name {
                    return Progress::Broken;
                }
                self.end_value();
            }
        }
        let capturing = self.open;
        let after_arguments = self.arguments_complete() && self.name.is_some();
        let event = self.scanner.step(c, &mut out);
        if capturing {
            self.keep(&out);
        }
        if after_arguments {
            self.after.push(c);
        }
        if !self.act(event, &out, format) {
            return Progress::Broken;
        }
        // Inside arguments that are already being shown there is no way back: the text is kept and reported.
        let shown = (capturing || self.open) && self.is_ready();
        if self.scanner.faults().syntax && !shown {
            return Progress::Broken;
        }
        if event == Event::Close && self.scanner.depth() == 0 { Progress::Closed } else { Progress::More }
    }

    /// Ends arguments that the text broke off. What is there is all there is.
    pub(super) fn cut(&mut self) {
        let mut out = String::new();
        self.scanner.flush(&mut out);
        self.keep(&out);
        if self.open && self.kind == Some(Kind::Text) {
            self.arguments = self.scanner.text().to_owned();
            self.notes.push("arguments_string_unwrapped");
        }
        self.open = false;
    }

    fn keep(&mut self, text: &str) {
        if self.open {
            self.arguments.push_str(text);
        }
    }

    /// False when the event shows that this is no call.
    fn act(&mut self, event: Event, out: &str, format: &Format) -> bool {
        let depth = self.scanner.depth();
        match event {
            Event::None => {}
            Event::Key if depth == self.level => self.field = self.classify(format),
            Event::Key => {}
            Event::Open(container) if depth == self.level + 1 => match (self.field, container) {
                (Field::Name, _) => return false,
                (Field::Wrapper, Container::Object) => self.level += 1,
                (Field::Arguments, Container::Object) => self.begin(Kind::Object, out),
                (Field::Arguments, Container::Array) => self.begin(Kind::Array, out),
                _ => {}
            },
            Event::Open(_) => {}
            Event::StringStart if depth == self.level && self.field == Field::Arguments => self.begin(Kind::Text, out),
            Event::WordStart if depth == self.level && self.field == Field::Arguments => self.begin(Kind::Word, out),
            Event::StringStart | Event::WordStart => {}
            Event::StringEnd if depth == self.level => {
                if self.field == Field::Name {
                    if self.scanner.text().is_empty() {
                        return false;
                    }
                    self.name = Some(self.scanner.text().to_owned());
                }
                self.end_value();
            }
            Event::StringEnd => {}
            Event::Close if depth == self.level => self.end_value(),
            Event::Close if depth < self.level => self.level = 0,
            Event::Close => {}
        }
        true
    }

    fn classify(&mut self, format: &Format) -> Field {
        let key = self.scanner.text();
        if key == format.name_key && self.name.is_none() {
            Field::Name
        } else if format.is_arguments_key(key) && self.kind.is_none() {
            Field::Arguments
        } else if self.level == 1 && self.name.is_none() && format.wrapper_key.as_deref() == Some(key) {
            Field::Wrapper
        } else {
            self.foreign_key |= !matches!(key, "type" | "id");
            Field::Other
        }
    }

    fn begin(&mut self, kind: Kind, out: &str) {
        self.kind = Some(kind);
        self.open = true;
        self.arguments.push_str(out);
    }

    fn end_value(&mut self) {
        self.field = Field::Other;
        if !self.open {
            return;
        }
        self.open = false;
        self.scanner.forgive_syntax();
        match self.kind {
            Some(Kind::Text) => {
                let text = self.scanner.text();
                self.arguments = if text.trim().is_empty() { "{}".to_owned() } else { text.to_owned() };
                self.notes.push("arguments_string_unwrapped");
            }
            Some(Kind::Word) if self.arguments.trim() == "null" => {
                self.arguments = "{}".to_owned();
                self.notes.push("arguments_null");
            }
            _ => {}
        }
    }
}
