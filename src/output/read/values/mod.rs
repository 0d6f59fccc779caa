//! Values as Python and Gemma write them -> JSON: strings of several kinds, bare words, lists,
//! tuples and objects.
//!
//! Reads one value at a time and says when a character is no part of it. Nothing is an error: what
//! is missing is filled in, what is too much is left out, text without quotes is a string. A quote
//! ends a string only where a value may end, so `'It's'` is one string; strings next to each other
//! are one, as in Python.

use crate::output::read::json_writer::{JsonWriter, quote};
use crate::output::read::literal::word;

/// Whether a character belonged to the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::output::read) enum Taken {
    Yes,
    /// The value ended before it.
    No,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueState {
    Value,
    /// A value, or the end of an array.
    ValueOrEnd,
    Key,
    Colon,
    AfterValue,
    /// A key or value without quotes, with the brackets open in it.
    Word {
        brackets: usize,
    },
    /// Behind the first quote of a string, or behind two.
    Opening {
        quote: char,
        count: usize,
    },
    /// Inside a string; so many quotes of a possible end were seen.
    Quoted {
        quote: char,
        triple: bool,
        count: usize,
    },
    /// In an escape of a string.
    Escape {
        quote: char,
        triple: bool,
    },
    /// Behind the quote that ended a string, if it did.
    Closing {
        quote: char,
    },
    /// In a string between markers.
    Marked,
    /// In a value that lies too deep; it is kept as text.
    Deep {
        brackets: usize,
    },
}

/// Reads values.
#[derive(Debug)]
pub(in crate::output::read) struct Values {
    /// Stands on both sides of a string; empty where there is no such marker.
    marker: String,
    /// Round brackets are lists too.
    tuples: bool,
    /// Whether the containers open are objects, from the outermost.
    open: Vec<bool>,
    state: ValueState,
    /// Text not decided upon: the beginning of a marker, an escape, or what follows a closing
    /// quote.
    held: String,
    word: String,
    /// The string under way is a key.
    key: Option<String>,
    /// The string under way takes no escapes.
    raw: bool,
    /// A high surrogate whose low half may still come.
    high: Option<u32>,
}

impl Values {
    pub(in crate::output::read) fn new(marker: &str, tuples: bool) -> Values {
        Values {
            marker: marker.to_owned(),
            tuples,
            open: Vec::new(),
            state: ValueState::Value,
            held: String::new(),
            word: String::new(),
            key: None,
            raw: false,
            high: None,
        }
    }

    /// A new value is due.
    pub(in crate::output::read) fn restart(&mut self) {
        self.state = ValueState::Value;
    }

    /// Containers that are open.
    pub(in crate::output::read) fn depth(&self) -> usize {
        self.open.len()
    }

    pub(in crate::output::read) fn step(
        &mut self,
        c: char,
        writer: &mut JsonWriter,
        out: &mut String,
    ) -> Taken {
        loop {
            let again = match self.state {
                ValueState::Value | ValueState::ValueOrEnd => return self.value(c, writer, out),
                ValueState::Key => {
                    self.before_key(c, writer, out);
                    false
                }
                ValueState::Colon => self.colon(c, writer, out),
                ValueState::AfterValue => return self.after_value(c, writer, out),
                ValueState::Word { brackets } => self.word_step(c, brackets, writer, out),
                ValueState::Opening { quote, count } => self.opening(c, quote, count),
                ValueState::Quoted { quote, triple, count } => {
                    self.quoted(c, quote, triple, count, writer, out)
                }
                ValueState::Escape { quote, triple } => self.escape(c, quote, triple, writer, out),
                ValueState::Closing { quote } => self.closing(c, quote, writer, out),
                ValueState::Marked => {
                    self.marked(c, writer, out);
                    false
                }
                ValueState::Deep { brackets } => {
                    self.deep(c, brackets, writer, out);
                    false
                }
            };
            if !again {
                return Taken::Yes;
            }
        }
    }

    /// The output ends: what is open is closed.
    pub(in crate::output::read) fn finish(&mut self, writer: &mut JsonWriter, out: &mut String) {
        match self.state {
            ValueState::Word { .. } => self.end_word(writer, out),
            ValueState::Opening { .. } | ValueState::Closing { .. } => self.end_string(writer, out),
            ValueState::Quoted { quote, count, .. } => {
                (0..count).for_each(|_| self.put(quote, writer, out));
                self.end_string(writer, out);
            }
            ValueState::Escape { .. } => {
                self.held.clear();
                self.end_string(writer, out);
            }
            ValueState::Marked => {
                // One character may well be text; more of them are the marker's beginning.
                if self.held.chars().count() == 1 {
                    self.put_held(writer, out);
                }
                self.held.clear();
                self.end_string(writer, out);
            }
            ValueState::Deep { .. } => writer.end_string(out),
            _ => {}
        }
        while self.open.pop().is_some() {
            writer.close(out);
        }
        self.state = ValueState::AfterValue;
    }

    fn value(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) -> Taken {
        if self.held.is_empty() && c.is_whitespace() {
            return Taken::Yes;
        }
        if self.marker_step(c) {
            if self.held.is_empty() {
                writer.begin_string(out);
                self.state = ValueState::Marked;
            }
            return Taken::Yes;
        }
        if !self.held.is_empty() {
            self.word = std::mem::take(&mut self.held);
            self.state = ValueState::Word { brackets: 0 };
            self.step(c, writer, out);
            return Taken::Yes;
        }
        match c {
            '{' | '[' => self.open(c, writer, out),
            '(' if self.tuples => self.open(c, writer, out),
            '"' | '\'' => {
                writer.begin_string(out);
                self.raw = false;
                self.state = ValueState::Opening { quote: c, count: 1 };
            }
            ',' if self.open.is_empty() => return Taken::No,
            ',' => self.next_member(),
            '}' | ']' => return self.close(c, writer, out),
            ')' if self.tuples => return self.close(c, writer, out),
            _ => {
                self.word.push(c);
                self.state = ValueState::Word { brackets: 0 };
            }
        }
        Taken::Yes
    }

    fn open(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) {
        if writer.is_full() {
            writer.note("arguments_too_deep", "the innermost values are kept as text".to_owned());
            writer.begin_string(out);
            writer.push(c, out);
            self.state = ValueState::Deep { brackets: 1 };
            return;
        }
        let object = c == '{';
        if object {
            writer.open_object(out);
        } else {
            writer.open_array(out);
        }
        self.open.push(object);
        self.state = if object { ValueState::Key } else { ValueState::ValueOrEnd };
    }

    /// A closing bracket: closes what stands inside the container it belongs to, too.
    fn close(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) -> Taken {
        if !self.open.contains(&(c == '}')) {
            return if self.open.is_empty() || self.tuples && c == ')' {
                Taken::No
            } else {
                Taken::Yes
            };
        }
        while let Some(object) = self.open.pop() {
            writer.close(out);
            if object == (c == '}') {
                break;
            }
        }
        self.state = ValueState::AfterValue;
        Taken::Yes
    }

    fn next_member(&mut self) {
        self.state =
            if self.open.last() == Some(&true) { ValueState::Key } else { ValueState::ValueOrEnd };
    }

    fn after_value(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) -> Taken {
        match c {
            c if c.is_whitespace() => Taken::Yes,
            _ if self.open.is_empty() => Taken::No,
            ',' => {
                self.next_member();
                Taken::Yes
            }
            '}' | ']' => self.close(c, writer, out),
            ')' if self.tuples => self.close(c, writer, out),
            // A comma is missing.
            _ => {
                self.next_member();
                self.step(c, writer, out)
            }
        }
    }

    fn before_key(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) {
        if self.marker_step(c) {
            if self.held.is_empty() {
                self.key = Some(String::new());
                self.state = ValueState::Marked;
            }
            return;
        }
        if !self.held.is_empty() {
            self.word = std::mem::take(&mut self.held);
            self.key = Some(String::new());
            self.state = ValueState::Word { brackets: 0 };
            self.step(c, writer, out);
            return;
        }
        match c {
            c if c.is_whitespace() || c == ',' => {}
            '}' | ']' => {
                self.close(c, writer, out);
            }
            '"' | '\'' => {
                self.key = Some(String::new());
                self.raw = false;
                self.state = ValueState::Opening { quote: c, count: 1 };
            }
            ':' => {
                writer.key("", out);
                self.state = ValueState::Value;
            }
            c => {
                self.key = Some(String::new());
                self.word.push(c);
                self.state = ValueState::Word { brackets: 0 };
            }
        }
    }

    fn colon(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) -> bool {
        match c {
            ':' | '=' => self.state = ValueState::Value,
            c if c.is_whitespace() => {}
            // A key without a value: the writer fills in null.
            ',' | '}' | ']' => {
                self.state = ValueState::Key;
                if c == ',' {
                    writer.value("null", out);
                }
                return true;
            }
            _ => {
                self.state = ValueState::Value;
                self.step(c, writer, out);
            }
        }
        false
    }

    fn word_step(
        &mut self,
        c: char,
        brackets: usize,
        writer: &mut JsonWriter,
        out: &mut String,
    ) -> bool {
        let is_key = self.key.is_some();
        let ends = match c {
            ',' | '}' | ']' => brackets == 0,
            ')' => brackets == 0 && self.tuples,
            ':' => is_key,
            // A string of Python's with a letter before it: `r'\d'`.
            '"' | '\'' if self.tuples && !is_key && is_prefix(&self.word) => {
                self.raw = self.word.contains(['r', 'R']);
                self.word.clear();
                writer.begin_string(out);
                self.state = ValueState::Opening { quote: c, count: 1 };
                return false;
            }
            _ => false,
        };
        if ends {
            self.end_word(writer, out);
            return true;
        }
        let brackets = match c {
            '(' | '[' | '{' => brackets + 1,
            ')' | ']' | '}' => brackets.saturating_sub(1),
            _ => brackets,
        };
        self.word.push(c);
        self.state = ValueState::Word { brackets };
        false
    }

    fn end_word(&mut self, writer: &mut JsonWriter, out: &mut String) {
        let text = std::mem::take(&mut self.word);
        let text = text.trim_end();
        if self.key.take().is_some() {
            writer.key(text, out);
            self.state = ValueState::Colon;
            return;
        }
        match word(text) {
            Some(json) => writer.value(&json, out),
            None => {
                let mut json = String::new();
                quote(text, &mut json);
                writer.value(&json, out);
            }
        }
        self.state = ValueState::AfterValue;
    }

    fn opening(&mut self, c: char, quote: char, count: usize) -> bool {
        match (c == quote, count) {
            (true, 1) => self.state = ValueState::Opening { quote, count: 2 },
            (true, _) => self.state = ValueState::Quoted { quote, triple: true, count: 0 },
            (false, 1) => {
                self.state = ValueState::Quoted { quote, triple: false, count: 0 };
                return true;
            }
            (false, _) => {
                self.held.push(quote);
                self.state = ValueState::Closing { quote };
                return true;
            }
        }
        false
    }

    fn quoted(
        &mut self,
        c: char,
        quote: char,
        triple: bool,
        count: usize,
        writer: &mut JsonWriter,
        out: &mut String,
    ) -> bool {
        if c == quote {
            self.flush_surrogate(writer, out);
            if !triple || count == 2 {
                self.held.extend(std::iter::repeat_n(quote, count + 1));
                self.state = ValueState::Closing { quote };
            } else {
                self.state = ValueState::Quoted { quote, triple, count: count + 1 };
            }
            return false;
        }
        if count > 0 {
            (0..count).for_each(|_| self.put(quote, writer, out));
            self.state = ValueState::Quoted { quote, triple, count: 0 };
        }
        if c == '\\' {
            self.held.push(c);
            self.state = ValueState::Escape { quote, triple };
        } else {
            self.flush_surrogate(writer, out);
            self.put(c, writer, out);
        }
        false
    }

    /// One character of an escape; true when it does not belong to it after all.
    fn escape(
        &mut self,
        c: char,
        quote: char,
        triple: bool,
        writer: &mut JsonWriter,
        out: &mut String,
    ) -> bool {
        let after = ValueState::Quoted { quote, triple, count: 0 };
        let kind = self.held.chars().nth(1);
        if self.raw {
            self.held.push(c);
            self.put_held(writer, out);
            self.state = after;
            return false;
        }
        let Some(kind) = kind else {
            self.held.push(c);
            if matches!(c, 'x' | 'u' | 'U' | '0'..='7') {
                return false;
            }
            self.flush_surrogate(writer, out);
            self.held.clear();
            match c {
                'n' => self.put('\n', writer, out),
                't' => self.put('\t', writer, out),
                'r' => self.put('\r', writer, out),
                'b' => self.put('\u{8}', writer, out),
                'f' => self.put('\u{c}', writer, out),
                'a' => self.put('\u{7}', writer, out),
                'v' => self.put('\u{b}', writer, out),
                '\\' | '\'' | '"' | '/' => self.put(c, writer, out),
                // A line that goes on.
                '\n' => {}
                other => {
                    self.put('\\', writer, out);
                    self.put(other, writer, out);
                }
            }
            self.state = after;
            return false;
        };
        let (length, base, start) = match kind {
            'x' => (2, 16, 2),
            'u' => (4, 16, 2),
            'U' => (8, 16, 2),
            _ => (3, 8, 1),
        };
        let is_digit = c.is_digit(base);
        if is_digit {
            self.held.push(c);
        }
        let digits = self.held.len() - start;
        if is_digit && digits < length {
            return false;
        }
        self.state = after;
        if digits < length && base == 16 {
            self.flush_surrogate(writer, out);
            self.put_held(writer, out);
        } else {
            let code = u32::from_str_radix(&self.held[start..], base).unwrap_or(u32::MAX);
            self.held.clear();
            self.put_code(code, writer, out);
        }
        !is_digit
    }

    fn put_code(&mut self, code: u32, writer: &mut JsonWriter, out: &mut String) {
        if let (Some(high), 0xDC00..=0xDFFF) = (self.high, code) {
            self.high = None;
            let code = 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00);
            self.put(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), writer, out);
            return;
        }
        self.flush_surrogate(writer, out);
        if (0xD800..=0xDBFF).contains(&code) {
            self.high = Some(code);
        } else {
            self.put(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER), writer, out);
        }
    }

    fn flush_surrogate(&mut self, writer: &mut JsonWriter, out: &mut String) {
        if self.high.take().is_some() {
            self.put(char::REPLACEMENT_CHARACTER, writer, out);
        }
    }

    /// Behind a quote: did it end the string?
    fn closing(&mut self, c: char, quote: char, writer: &mut JsonWriter, out: &mut String) -> bool {
        match c {
            c if c.is_whitespace() => {
                self.held.push(c);
                false
            }
            ',' | ')' | ']' | '}' | ':' => {
                self.held.clear();
                self.end_string(writer, out);
                true
            }
            '"' | '\'' => {
                self.held.clear();
                self.state = ValueState::Opening { quote: c, count: 1 };
                false
            }
            // The quote was part of the text.
            _ => {
                self.put_held(writer, out);
                self.state = ValueState::Quoted { quote, triple: false, count: 0 };
                true
            }
        }
    }

    fn end_string(&mut self, writer: &mut JsonWriter, out: &mut String) {
        self.flush_surrogate(writer, out);
        self.held.clear();
        match self.key.take() {
            Some(key) => {
                writer.key(&key, out);
                self.state = ValueState::Colon;
            }
            None => {
                writer.end_string(out);
                self.state = ValueState::AfterValue;
            }
        }
    }

    fn marked(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) {
        self.held.push(c);
        while !self.held.is_empty() && !self.marker.starts_with(self.held.as_str()) {
            let c = self.held.remove(0);
            self.put(c, writer, out);
        }
        if self.held == self.marker {
            self.end_string(writer, out);
        }
    }

    /// Whether the text held and this character begin a marker; a whole one leaves nothing held.
    fn marker_step(&mut self, c: char) -> bool {
        self.held.push(c);
        if self.marker.starts_with(self.held.as_str()) {
            if self.held == self.marker {
                self.held.clear();
            }
            return true;
        }
        self.held.pop();
        false
    }

    fn deep(&mut self, c: char, brackets: usize, writer: &mut JsonWriter, out: &mut String) {
        writer.push(c, out);
        let brackets = match c {
            '[' | '{' | '(' => brackets + 1,
            ']' | '}' | ')' => brackets - 1,
            _ => brackets,
        };
        self.state = ValueState::Deep { brackets };
        if brackets == 0 {
            writer.end_string(out);
            self.state = ValueState::AfterValue;
        }
    }

    fn put(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) {
        match &mut self.key {
            Some(key) => key.push(c),
            None => writer.push(c, out),
        }
    }

    fn put_held(&mut self, writer: &mut JsonWriter, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        held.chars().for_each(|c| self.put(c, writer, out));
    }
}

/// Whether a word may stand before a quote of Python's.
pub(in crate::output::read) fn is_prefix(word: &str) -> bool {
    matches!(word.to_ascii_lowercase().as_str(), "r" | "b" | "u" | "f" | "rb" | "br" | "rf" | "fr")
}
