//! The states of [`ValueReader`] inside strings: quotes, escapes, and the format's own quotes.

use super::{ValueReader, ValueState};
use crate::output::read::json_scanner::join_surrogates;
use crate::output::read::json_writer::quoted;

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

    pub(super) fn quoted(&mut self, c: char, quote: char, triple: bool, count: usize) -> bool {
        if c == quote {
            self.flush_surrogate();
            if !triple || count == 2 {
                self.held.extend(std::iter::repeat_n(quote, count + 1));
                self.state = ValueState::Closing { quote };
            } else {
                self.state = ValueState::Quoted { quote, triple, count: count + 1 };
            }
            return false;
        }
        if count > 0 {
            (0..count).for_each(|_| self.put(quote));
            self.state = ValueState::Quoted { quote, triple, count: 0 };
        }
        let is_plain = self.open.is_empty() && self.plain_quote == Some(quote);
        if c == '\\' && !is_plain {
            self.held.push(c);
            self.state = ValueState::Escape { quote, triple };
        } else {
            self.flush_surrogate();
            self.put(c);
        }
        false
    }

    /// Reads a character in an escape. Returns whether the next state must read it.
    pub(super) fn escape(&mut self, c: char, quote: char, triple: bool) -> bool {
        let after = ValueState::Quoted { quote, triple, count: 0 };
        let kind = self.held.chars().nth(1);
        if self.raw {
            self.held.push(c);
            self.put_held();
            self.state = after;
            return false;
        }
        let Some(kind) = kind else {
            self.held.push(c);
            if matches!(c, 'x' | 'u' | 'U' | '0'..='7') {
                return false;
            }
            self.flush_surrogate();
            self.held.clear();
            match c {
                'n' => self.put('\n'),
                't' => self.put('\t'),
                'r' => self.put('\r'),
                'b' => self.put('\u{8}'),
                'f' => self.put('\u{c}'),
                'a' => self.put('\u{7}'),
                'v' => self.put('\u{b}'),
                '\\' | '\'' | '"' | '/' => self.put(c),
                // A line continuation.
                '\n' => {}
                other => {
                    self.put('\\');
                    self.put(other);
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
            self.flush_surrogate();
            self.put_held();
        } else {
            let code = u32::from_str_radix(&self.held[start..], base).unwrap_or(u32::MAX);
            self.held.clear();
            self.put_code(code);
        }
        !is_digit
    }

    fn put_code(&mut self, code: u32) {
        if let (Some(high), 0xDC00..=0xDFFF) = (self.high, code) {
            self.high = None;
            self.put(join_surrogates(high, code));
            return;
        }
        self.flush_surrogate();
        if (0xD800..=0xDBFF).contains(&code) {
            self.high = Some(code);
        } else {
            self.put(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
    }

    fn flush_surrogate(&mut self) {
        if self.high.take().is_some() {
            self.put(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Reads the character after a quote, which decides whether the quote ended the string. Returns
    /// whether the next state must read it.
    pub(super) fn closing(&mut self, c: char) -> bool {
        match c {
            c if c.is_whitespace() => {
                self.held.push(c);
                false
            }
            ',' | ')' | ']' | '}' | ':' => {
                self.held.clear();
                self.end_string();
                true
            }
            '"' | '\'' => {
                self.held.clear();
                self.state = ValueState::Opening { quote: c, count: 1 };
                false
            }
            // The quote is part of the text.
            _ => {
                self.continue_string();
                true
            }
        }
    }

    pub(super) fn end_string(&mut self) {
        self.flush_surrogate();
        self.held.clear();
        if let Some(key) = self.key.take() {
            return self.end_key(&key, quoted(&key));
        }
        if !self.members.end_marked(&mut self.writer) {
            self.writer.end_string();
        }
        self.state = ValueState::AfterValue;
    }

    pub(super) fn marked(&mut self, c: char) {
        self.held.push(c);
        while !self.held.is_empty() && !self.quote.starts_with(self.held.as_str()) {
            let c = self.held.remove(0);
            self.put(c);
        }
        if self.held == self.quote {
            self.end_string();
        }
    }

    pub(super) fn put(&mut self, c: char) {
        match self.key.as_mut().or(self.members.marked_text()) {
            Some(text) => text.push(c),
            None => self.writer.push(c),
        }
    }

    pub(super) fn put_held(&mut self) {
        let held = std::mem::take(&mut self.held);
        held.chars().for_each(|c| self.put(c));
    }
}
