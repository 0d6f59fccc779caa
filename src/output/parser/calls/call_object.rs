//! Reads a call that is one JSON object, character by character: the function's name, and where its
//! arguments are.
//!
//! In: the characters from the opening brace on. Out: the name, and the text of the arguments as
//! soon as it can be emitted. Arguments are emitted only once name and arguments are both known.
//! Whether the tool exists is not checked, except where a key may be its name.

use serde_json::Value;

use crate::json_schema::ArgumentsSchema;
use crate::output::format::{CallPart, object_at};
use crate::output::read::json_scanner::{Container, ScanEvent, Scanner};
use crate::output::read::{ARGUMENTS_FLAT, ARGUMENTS_STRING, JsonKind, JsonNote, json};

/// The maximum length of a name.
pub(crate) const MAX_NAME: usize = 256;

/// The result of one character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectProgress {
    /// The object continues.
    More,
    /// The object is complete.
    Closed,
    /// The object is not a call. If its arguments were already emitted, the remaining text is not
    /// part of the object.
    Broken,
}

/// The keys that models use for the function's name.
const NAME_KEYS: [&str; 5] = ["name", "tool_name", "function_name", "tool", "action"];
/// The keys that models use for the arguments.
const ARGUMENTS_KEYS: [&str; 8] = [
    "arguments",
    "parameters",
    "args",
    "input",
    "tool_input",
    "action_input",
    "tool_arguments",
    "tool_parameters",
];
/// Keys whose value is an object with name and arguments, or the name.
const WRAPPER_KEYS: [&str; 3] = ["function", "function_call", "tool_call"];

/// The keys of a call's object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallKeys {
    /// `None` if the function's name is itself the key of the arguments: `{"f": {"a": 1}}`.
    name: Option<String>,
    arguments: String,
    id: Option<String>,
}

impl Default for CallKeys {
    fn default() -> CallKeys {
        CallKeys { name: Some("name".to_owned()), arguments: "arguments".to_owned(), id: None }
    }
}

impl CallKeys {
    /// The keys of a call that is one JSON object. None if the call has another form.
    pub(crate) fn of(call: &[CallPart]) -> Option<CallKeys> {
        let mut before = "";
        let (mut name, mut arguments, mut id) = (None, None, None);
        for part in call {
            match part {
                CallPart::Text(text) => before = text,
                CallPart::Name => name = Some(last_key(before)),
                CallPart::Arguments(_) => arguments = Some(last_key(before)),
                CallPart::Id(_) => id = last_key(before),
            }
        }
        let in_object = call
            .iter()
            .any(|part| matches!(part, CallPart::Text(text) if object_at(text).is_some()));
        if !in_object {
            return None;
        }
        match (name?, arguments?) {
            (Some(name), Some(arguments)) => Some(CallKeys { name: Some(name), arguments, id }),
            // The text between the name and the arguments is the end of a key.
            (None, _) => Some(CallKeys { name: None, arguments: "arguments".to_owned(), id }),
            (Some(_), None) => None,
        }
    }

    fn is_name(&self, key: &str) -> bool {
        NAME_KEYS.contains(&key) || self.name.as_deref() == Some(key)
    }

    fn is_arguments(&self, key: &str) -> bool {
        ARGUMENTS_KEYS.contains(&key) || self.arguments == key
    }

    fn is_id(&self, key: &str) -> bool {
        matches!(key, "id" | "tool_call_id") || self.id.as_deref() == Some(key)
    }
}

/// The key at the end of a text, before a value or its quote.
fn last_key(text: &str) -> Option<String> {
    let text = text
        .trim_end()
        .trim_end_matches('"')
        .trim_end()
        .strip_suffix(':')?
        .trim_end()
        .strip_suffix('"')?;
    let (_, key) = text.rsplit_once('"')?;
    (!key.is_empty()).then(|| key.to_owned())
}

/// The member whose value is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Arguments,
    Id,
    /// A key of [`WRAPPER_KEYS`].
    Wrapper,
    /// The arguments, as the value of a key that is the function's name.
    Named,
    Other,
}

#[derive(Debug)]
pub(crate) struct CallObject {
    scanner: Scanner,
    /// The nesting depth of name and arguments; 0 once their object is closed.
    level: usize,
    field: Field,
    /// Whether the object has a key that calls do not have.
    foreign_key: bool,
    name: Option<String>,
    id: Option<String>,
    kind: Option<JsonKind>,
    /// Whether the arguments are being read.
    open: bool,
    /// The text that the scanner emitted for the last character. Kept for its memory.
    scanned: String,
    /// Arguments that were not moved yet.
    arguments: String,
    /// The members that calls do not have, as key and JSON text.
    others: Vec<(String, String)>,
    /// Whether the last of them is still being read.
    in_other: bool,
    /// The text after the arguments.
    after: String,
    notes: Vec<JsonNote>,
    /// The schema of the arguments, once the function is known.
    schema: Option<ArgumentsSchema>,
}

impl Default for CallObject {
    fn default() -> CallObject {
        CallObject {
            scanner: Scanner::default(),
            level: 1,
            field: Field::Other,
            foreign_key: false,
            name: None,
            id: None,
            kind: None,
            open: false,
            scanned: String::new(),
            arguments: String::new(),
            others: Vec::new(),
            in_other: false,
            after: String::new(),
            notes: Vec::new(),
            schema: None,
        }
    }
}

impl CallObject {
    /// The function's name, once it is complete.
    pub(crate) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Whether the function is known, but not the schema of its arguments.
    pub(crate) fn needs_schema(&self) -> bool {
        self.name.is_some() && self.schema.is_none()
    }

    /// Sets the schema of the arguments.
    pub(crate) fn set_schema(&mut self, schema: ArgumentsSchema) {
        self.schema = Some(schema);
    }

    /// The call's id, once it is complete.
    pub(crate) fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// The kind of the arguments, once they have begun.
    pub(crate) fn kind(&self) -> Option<JsonKind> {
        self.kind
    }

    /// Whether the commit point is reached: the name is known, and arguments have begun that can be
    /// emitted as they come.
    pub(crate) fn is_ready(&self) -> bool {
        self.name.is_some()
            && (self.arguments_complete() || (self.open && self.kind == Some(JsonKind::Object)))
    }

    pub(crate) fn arguments_complete(&self) -> bool {
        self.kind.is_some() && !self.open
    }

    /// Whether the object is closed and has the name of a function and an object of arguments.
    pub(crate) fn is_whole(&self) -> bool {
        self.scanner.depth() == 0 && self.name.is_some() && self.kind == Some(JsonKind::Object)
    }

    /// Whether the object has a key that calls do not have.
    pub(crate) fn has_foreign_key(&self) -> bool {
        self.foreign_key
    }

    /// The first member that calls do not have.
    pub(crate) fn other_member(&self) -> Option<&str> {
        self.others.first().map(|(key, _)| key.as_str())
    }

    pub(crate) fn in_string(&self) -> bool {
        self.scanner.in_string()
    }

    /// Appends to `out` the arguments that were not moved yet.
    pub(crate) fn move_arguments(&mut self, out: &mut String) {
        out.push_str(&self.arguments);
        self.arguments.clear();
    }

    /// Takes the text after the arguments, for an object that does not close.
    pub(crate) fn take_after(&mut self) -> String {
        std::mem::take(&mut self.after)
    }

    /// Takes the diagnostics of accepted deviations.
    pub(crate) fn take_notes(&mut self) -> Vec<(&'static str, String)> {
        json::take_notes(&mut self.scanner, &mut self.notes)
    }

    /// If the object has no arguments, and all members that calls do not have are parameters of the
    /// function, uses them as the arguments.
    pub(crate) fn gather_others(&mut self, is_parameter: impl Fn(&str) -> bool) {
        let parameters = self.others.iter().all(|(key, _)| is_parameter(key));
        if self.kind.is_some() || self.others.is_empty() || !parameters {
            return;
        }
        let member = |(key, value): (String, String)| {
            let value = value.trim_start().trim_start_matches(':').trim();
            format!("{}: {value}", Value::from(key))
        };
        let members: Vec<String> =
            std::mem::take(&mut self.others).into_iter().map(member).collect();
        self.arguments = format!("{{{}}}", members.join(", "));
        self.kind = Some(JsonKind::Object);
        self.notes.push(ARGUMENTS_FLAT);
    }

    /// Reads a character. `is_tool` says whether a key is the name of a given tool.
    pub(crate) fn step(
        &mut self,
        c: char,
        keys: &CallKeys,
        is_tool: impl Fn(&str) -> bool,
    ) -> ObjectProgress {
        let mut out = std::mem::take(&mut self.scanned);
        out.clear();
        let progress = self.scan(c, keys, is_tool, &mut out);
        self.scanned = out;
        progress
    }

    /// Like [`step`](Self::step). `out` gets the text that the scanner emits.
    fn scan(
        &mut self,
        c: char,
        keys: &CallKeys,
        is_tool: impl Fn(&str) -> bool,
        out: &mut String,
    ) -> ObjectProgress {
        if self.scanner.ends_word(c) {
            self.scanner.close_word(out);
            self.keep(out);
            self.keep_other(out);
            out.clear();
            if self.scanner.depth() == self.level {
                if self.field == Field::Name {
                    return ObjectProgress::Broken;
                }
                self.end_value();
            }
        }
        let capturing = self.open;
        let after_arguments = self.arguments_complete() && self.name.is_some();
        let event = self.scanner.step(c, out);
        if capturing {
            self.keep(out);
        }
        if after_arguments {
            self.after.push(c);
        }
        self.keep_other(out);
        if !self.act(event, out, keys, is_tool) {
            return ObjectProgress::Broken;
        }
        // Arguments that were already emitted cannot be taken back, so they are kept and reported.
        let shown = (capturing || self.open) && self.is_ready();
        if self.scanner.faults().syntax && !shown {
            return ObjectProgress::Broken;
        }
        if event == ScanEvent::Close && self.scanner.depth() == 0 {
            ObjectProgress::Closed
        } else {
            ObjectProgress::More
        }
    }

    /// Completes arguments that the end of the text cut off.
    pub(crate) fn cut(&mut self) {
        let mut out = String::new();
        self.scanner.flush(&mut out);
        self.keep(&out);
        if self.open && self.kind == Some(JsonKind::String) {
            self.arguments = self.scanner.text().to_owned();
            self.notes.push(ARGUMENTS_STRING);
        }
        self.open = false;
    }

    fn keep(&mut self, text: &str) {
        if self.open {
            self.arguments.push_str(text);
        }
    }

    fn keep_other(&mut self, text: &str) {
        if let Some((_, value)) = self.others.last_mut().filter(|_| self.in_other) {
            value.push_str(text);
        }
    }

    /// Handles an event of the scanner. Returns whether the object may still be a call.
    fn act(
        &mut self,
        event: ScanEvent,
        out: &str,
        keys: &CallKeys,
        is_tool: impl Fn(&str) -> bool,
    ) -> bool {
        let depth = self.scanner.depth();
        match event {
            ScanEvent::None => {}
            ScanEvent::Key if depth == self.level => {
                self.field = self.classify(keys, is_tool);
            }
            ScanEvent::Key => {
                if let Some(schema) = self.schema.as_ref().filter(|_| depth == self.level + 1) {
                    self.scanner.keep_zeros(json::is_text(schema, self.scanner.text()));
                }
            }
            ScanEvent::Open(container) if depth == self.level + 1 => {
                match (self.field, container) {
                    (Field::Name, _) => return false,
                    (Field::Wrapper, Container::Object) => self.level += 1,
                    (Field::Arguments | Field::Named, Container::Object) => {
                        self.begin(JsonKind::Object, out)
                    }
                    (Field::Named, _) => return false,
                    (Field::Arguments, Container::Array) => self.begin(JsonKind::Array, out),
                    _ => {}
                }
            }
            ScanEvent::Open(_) => {}
            ScanEvent::StringStart | ScanEvent::WordStart
                if depth == self.level && self.field == Field::Named =>
            {
                return false;
            }
            ScanEvent::StringStart if depth == self.level && self.field == Field::Arguments => {
                self.begin(JsonKind::String, out)
            }
            ScanEvent::WordStart if depth == self.level && self.field == Field::Arguments => {
                self.begin(JsonKind::Word, out)
            }
            ScanEvent::StringStart | ScanEvent::WordStart => {}
            ScanEvent::StringEnd if depth == self.level => {
                if matches!(self.field, Field::Name | Field::Wrapper) {
                    if self.scanner.text().is_empty() || self.scanner.text().len() > MAX_NAME {
                        return false;
                    }
                    self.name = Some(self.scanner.text().to_owned());
                }
                if self.field == Field::Id && !self.scanner.text().is_empty() {
                    self.id = Some(self.scanner.text().to_owned());
                }
                self.end_value();
            }
            ScanEvent::StringEnd => {}
            ScanEvent::Close if depth == self.level => self.end_value(),
            ScanEvent::Close if depth < self.level => self.level = 0,
            ScanEvent::Close => {}
        }
        true
    }

    fn classify(&mut self, keys: &CallKeys, is_tool: impl Fn(&str) -> bool) -> Field {
        let key = self.scanner.text();
        if keys.is_name(key) && self.name.is_none() {
            Field::Name
        } else if keys.is_arguments(key) && self.kind.is_none() {
            Field::Arguments
        } else if keys.is_id(key) {
            Field::Id
        } else if self.level == 1 && self.name.is_none() && WRAPPER_KEYS.contains(&key) {
            Field::Wrapper
        } else if keys.name.is_none() && !key.is_empty() && self.name.is_none() && self.level == 1 {
            self.name = Some(key.to_owned());
            Field::Arguments
        } else if self.name.is_none() && self.kind.is_none() && self.level == 1 && is_tool(key) {
            self.name = Some(key.to_owned());
            self.foreign_key = true;
            Field::Named
        } else {
            if !matches!(key, "type" | "index") {
                self.foreign_key = true;
                self.in_other = self.kind.is_none();
                self.others.push((key.to_owned(), String::new()));
            }
            Field::Other
        }
    }

    fn begin(&mut self, kind: JsonKind, out: &str) {
        self.kind = Some(kind);
        self.open = true;
        self.arguments.push_str(out);
    }

    fn end_value(&mut self) {
        self.field = Field::Other;
        self.in_other = false;
        if !self.open {
            return;
        }
        self.open = false;
        self.scanner.forgive_syntax();
        let is_string = self.kind == Some(JsonKind::String);
        let text = if is_string { self.scanner.text() } else { &self.arguments };
        if let Some((object, note)) = self.kind.and_then(|kind| json::object_of(kind, text)) {
            self.arguments = object.to_owned();
            self.notes.push(note);
        }
    }
}
