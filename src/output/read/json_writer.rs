//! Events of a reader -> the text of one JSON value, in one layout: `{"a": 1, "b": ["x"]}`.
//!
//! Whatever order the events come in, the text is valid JSON once everything is closed. A key that
//! comes twice in one object is left out with its value, and noted.

use std::collections::HashSet;

use super::super::read::json_scanner::NESTING_CAP;

/// Levels of nesting that are written. One fewer than are scanned: serde_json refuses to read the
/// last one.
pub(super) const MAX_DEPTH: usize = NESTING_CAP - 1;

/// Notes that are kept: a hostile reply must not fill the memory with them.
const MAX_NOTES: usize = 64;

#[derive(Debug)]
enum OpenContainer {
    Object { names: HashSet<String> },
    Array { any: bool },
}

/// Writes JSON piece by piece.
#[derive(Debug, Default)]
pub(super) struct JsonWriter {
    frames: Vec<OpenContainer>,
    /// A key is written whose value is due.
    awaiting: bool,
    /// Levels open where a value that is left out began.
    muted: Option<usize>,
    /// Its text, and those of the values left out before it.
    left_out: String,
    leftover: Vec<String>,
    notes: Vec<(&'static str, String)>,
}

impl JsonWriter {
    /// Containers that are open.
    pub(super) fn depth(&self) -> usize {
        self.frames.len()
    }

    /// Whether a container must not be opened any more.
    pub(super) fn is_full(&self) -> bool {
        self.frames.len() >= MAX_DEPTH
    }

    pub(super) fn open_object(&mut self, out: &mut String) {
        self.before_value(out);
        self.put("{", out);
        self.frames.push(OpenContainer::Object { names: HashSet::new() });
    }

    pub(super) fn open_array(&mut self, out: &mut String) {
        self.before_value(out);
        self.put("[", out);
        self.frames.push(OpenContainer::Array { any: false });
    }

    /// The next member of the object that is open.
    pub(super) fn key(&mut self, name: &str, out: &mut String) {
        if self.awaiting {
            self.value("null", out);
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
                    format!("{name} is given more than once; the first counts"),
                );
            }
            return;
        }
        if !first {
            self.put(", ", out);
        }
        let out = if self.muted.is_none() { out } else { &mut self.left_out };
        quote(name, out);
        out.push_str(": ");
    }

    /// A whole value, as JSON text.
    pub(super) fn value(&mut self, text: &str, out: &mut String) {
        self.before_value(out);
        self.put(text, out);
        self.after_value();
    }

    pub(super) fn begin_string(&mut self, out: &mut String) {
        self.before_value(out);
        self.put("\"", out);
    }

    /// One character of the string that is open.
    pub(super) fn push(&mut self, c: char, out: &mut String) {
        escape(c, if self.muted.is_none() { out } else { &mut self.left_out });
    }

    pub(super) fn end_string(&mut self, out: &mut String) {
        self.put("\"", out);
        self.after_value();
    }

    /// Closes the innermost container.
    pub(super) fn close(&mut self, out: &mut String) {
        if self.awaiting {
            self.value("null", out);
        }
        match self.frames.pop() {
            Some(OpenContainer::Object { .. }) => self.put("}", out),
            Some(OpenContainer::Array { .. }) => self.put("]", out),
            None => {}
        }
        self.after_value();
    }

    /// Closes every container.
    pub(super) fn close_all(&mut self, out: &mut String) {
        while !self.frames.is_empty() {
            self.close(out);
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

    /// Keeps text that is no part of the value.
    pub(super) fn leave_out(&mut self, text: String) {
        self.leftover.push(text);
    }

    /// Values that were left out.
    pub(super) fn take_leftover(&mut self) -> Vec<String> {
        std::mem::take(&mut self.leftover)
    }

    fn before_value(&mut self, out: &mut String) {
        if std::mem::take(&mut self.awaiting) {
            return;
        }
        if let Some(OpenContainer::Array { any }) = self.frames.last_mut()
            && std::mem::replace(any, true)
        {
            self.put(", ", out);
        }
    }

    fn after_value(&mut self) {
        if self.muted.is_some_and(|depth| depth >= self.frames.len()) {
            self.muted = None;
            self.leftover.push(std::mem::take(&mut self.left_out));
        }
    }

    fn put(&mut self, text: &str, out: &mut String) {
        if self.muted.is_none() { out } else { &mut self.left_out }.push_str(text);
    }
}

/// Appends `text` as a JSON string.
pub(super) fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        escape(c, out);
    }
    out.push('"');
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
    fn whatever_the_order_the_text_is_json() {
        let mut writer = JsonWriter::default();
        let mut out = String::new();
        writer.open_object(&mut out);
        writer.key("a", &mut out);
        writer.open_array(&mut out);
        writer.value("1", &mut out);
        writer.begin_string(&mut out);
        "x\"\u{1}".chars().for_each(|c| writer.push(c, &mut out));
        writer.end_string(&mut out);
        writer.close(&mut out);
        writer.key("a", &mut out);
        writer.open_object(&mut out);
        writer.key("left out", &mut out);
        writer.close(&mut out);
        writer.key("b", &mut out);
        writer.key("c", &mut out);
        writer.close_all(&mut out);
        assert_eq!(out, "{\"a\": [1, \"x\\\"\\u0001\"], \"b\": null, \"c\": null}");
        assert_eq!(writer.take_notes().len(), 1);
    }
}
