//! The states of [`ValueReader`] inside strings: quotes, escapes, and the format's own quotes.

use super::{ValueReader, ValueState};
use crate::output::read::json_scanner::join_surrogates;
use crate::output::read::json_writer::{JsonWriter, quoted};

impl ValueReader {
    pub(super) fn opening(&mut self, c: char, quote: char, count: usize) -> bool {
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

    pub(super) fn quoted(
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
        let is_plain = self.open.is_empty() && self.plain_quote == Some(quote);
        if c == '\\' && !is_plain {
            self.held.push(c);
            self.state = ValueState::Escape { quote, triple };
        } else {
            self.flush_surrogate(writer, out);
            self.put(c, writer, out);
        }
        false
    }

    /// Reads a character in an escape. Returns whether the next state must read it.
    pub(super) fn escape(
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
                // A line continuation.
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
            self.put(join_surrogates(high, code), writer, out);
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

    /// Reads the character after a quote, which decides whether the quote ended the string. Returns
    /// whether the next state must read it.
    pub(super) fn closing(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) -> bool {
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
            // The quote is part of the text.
            _ => {
                self.continue_string(writer, out);
                true
            }
        }
    }

    pub(super) fn end_string(&mut self, writer: &mut JsonWriter, out: &mut String) {
        self.flush_surrogate(writer, out);
        self.held.clear();
        if let Some(key) = self.key.take() {
            return self.end_key(&key, quoted(&key), writer, out);
        }
        if !self.members.end_marked(writer, out) {
            writer.end_string(out);
        }
        self.state = ValueState::AfterValue;
    }

    pub(super) fn marked(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) {
        self.held.push(c);
        while !self.held.is_empty() && !self.quote.starts_with(self.held.as_str()) {
            let c = self.held.remove(0);
            self.put(c, writer, out);
        }
        if self.held == self.quote {
            self.end_string(writer, out);
        }
    }

    pub(super) fn put(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) {
        match self.key.as_mut().or(self.members.marked_text()) {
            Some(text) => text.push(c),
            None => writer.push(c, out),
        }
    }

    pub(super) fn put_held(&mut self, writer: &mut JsonWriter, out: &mut String) {
        let held = std::mem::take(&mut self.held);
        held.chars().for_each(|c| self.put(c, writer, out));
    }
}
