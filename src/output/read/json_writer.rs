//! Writes one JSON value piece by piece, in one layout: `{"a": 1, "b": ["x"]}`.
//!
//! The text is valid JSON once everything is closed, whatever the order of the calls. If a key
//! repeats in one object, the repeated member is omitted and reported.

use std::collections::HashSet;

use super::json_scanner::NESTING_CAP;

/// The maximum depth of written values. It is one less than the scanner's, because serde_json does
/// not accept the last level.
pub(super) const MAX_DEPTH: usize = NESTING_CAP - 1;

/// The maximum number of notes. It bounds the memory that a hostile reply can use.
const MAX_NOTES: usize = 64;

#[derive(Debug, Clone)]
enum OpenContainer {
    Object { names: HashSet<String> },
    Array { is_empty: bool },
}

/// Writes JSON piece by piece.
#[derive(Debug, Clone, Default)]
pub(crate) struct JsonWriter {
    /// The text that was not moved yet.
    text: String,
    frames: Vec<OpenContainer>,
    /// Whether a key was written and its value must follow.
    awaiting: bool,
    /// The depth at which an omitted value began.
    muted: Option<usize>,
    /// The text of the omitted value.
    left_out: String,
    /// Complete values that were omitted.
    leftover: Vec<String>,
    notes: Vec<(&'static str, String)>,
}

impl JsonWriter {
    /// The number of open containers.
    pub(super) fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Appends to `out` the text that was not moved yet. It never ends inside an escape.
    pub(super) fn move_to(&mut self, out: &mut String) {
        out.push_str(&self.text);
        self.text.clear();
    }

    /// Whether the maximum depth is reached.
    pub(super) fn is_full(&self) -> bool {
        self.frames.len() >= MAX_DEPTH
    }

    pub(super) fn open_object(&mut self) {
        self.before_value();
        self.put("{");
        self.frames.push(OpenContainer::Object { names: HashSet::new() });
    }

    pub(super) fn open_array(&mut self) {
        self.before_value();
        self.put("[");
        self.frames.push(OpenContainer::Array { is_empty: true });
    }

    /// Begins a member of the open object.
    pub(super) fn key(&mut self, name: &str) {
        if self.awaiting {
            self.value("null");
        }
        let depth = self.frames.len();
        let Some(OpenContainer::Object { names }) = self.frames.last_mut() else { return };
        let first = names.is_empty();
        self.awaiting = true;
        if !names.insert(name.to_owned()) {
            if self.muted.is_none() {
                self.muted = Some(depth);
                self.note(
                    "arg_duplicate",
                    format!("`{name}` is given more than once; the first value counts"),
                );
            }
            return;
        }
        if !first {
            self.put(", ");
        }
        let target = self.target();
        quote(name, target);
        target.push_str(": ");
    }

    /// Writes a whole value, given as JSON text.
    pub(super) fn value(&mut self, text: &str) {
        self.before_value();
        self.put(text);
        self.after_value();
    }

    pub(super) fn begin_string(&mut self) {
        self.before_value();
        self.put("\"");
    }

    /// Writes a character of the open string.
    pub(super) fn push(&mut self, c: char) {
        escape(c, self.target());
    }

    pub(super) fn end_string(&mut self) {
        self.put("\"");
        self.after_value();
    }

    /// Closes the innermost container.
    pub(super) fn close(&mut self) {
        if self.awaiting {
            self.value("null");
        }
        match self.frames.pop() {
            Some(OpenContainer::Object { .. }) => self.put("}"),
            Some(OpenContainer::Array { .. }) => self.put("]"),
            None => {}
        }
        self.after_value();
    }

    /// Closes every container.
    pub(super) fn close_all(&mut self) {
        while !self.frames.is_empty() {
            self.close();
        }
    }

    pub(super) fn note(&mut self, code: &'static str, detail: String) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push((code, detail));
        }
    }

    pub(super) fn take_notes(&mut self) -> Vec<(&'static str, String)> {
        std::mem::take(&mut self.notes)
    }

    /// Stores text that is not part of the value.
    pub(super) fn leave_out(&mut self, text: String) {
        self.leftover.push(text);
    }

    /// Takes the omitted values.
    pub(super) fn take_leftover(&mut self) -> Vec<String> {
        std::mem::take(&mut self.leftover)
    }

    fn before_value(&mut self) {
        if std::mem::take(&mut self.awaiting) {
            return;
        }
        if let Some(OpenContainer::Array { is_empty }) = self.frames.last_mut()
            && !std::mem::replace(is_empty, false)
        {
            self.put(", ");
        }
    }

    fn after_value(&mut self) {
        if self.muted.is_some_and(|depth| depth >= self.frames.len()) {
            self.muted = None;
            self.leftover.push(std::mem::take(&mut self.left_out));
        }
    }

    fn put(&mut self, text: &str) {
        self.target().push_str(text);
    }

    fn target(&mut self) -> &mut String {
        if self.muted.is_none() { &mut self.text } else { &mut self.left_out }
    }
}

/// Appends `text` as a JSON string.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        escape(c, out);
    }
    out.push('"');
}

/// A text as a JSON string.
pub(super) fn quoted(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    quote(text, &mut json);
    json
}

fn escape(c: char, out: &mut String) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_in_any_order_write_valid_json() {
        let mut writer = JsonWriter::default();
        writer.open_object();
        writer.key("a");
        writer.open_array();
        writer.value("1");
        writer.begin_string();
        "x\"\u{1}".chars().for_each(|c| writer.push(c));
        writer.end_string();
        writer.close();
        writer.key("a");
        writer.open_object();
        writer.key("left out");
        writer.close();
        writer.key("b");
        writer.key("c");
        writer.close_all();
        let mut out = String::new();
        writer.move_to(&mut out);
        assert_eq!(out, "{\"a\": [1, \"x\\\"\\u0001\"], \"b\": null, \"c\": null}");
        assert_eq!(writer.take_notes().len(), 1);
    }
}
