//! Python keyword arguments without the parentheses -> JSON: `a=1, b='x'` is `{"a": 1, "b": "x"}`.
//!
//! The text begins after `(` and ends before the `)` that closes it. A value without a name gets
//! the name of the only required parameter, or of the only parameter. Otherwise it gets a name by
//! its position: `arg0`, `arg1`… A call cannot begin with such a value.
//!
//! Models and templates do not always escape quotes in strings. A quote before a comma ends a
//! string only if another argument follows. If the format writes strings without escapes, a quote
//! before a parenthesis ends a string only if the end of the call follows.

use super::arguments::{ArgumentsReader, ReadStep};
use super::json_writer::JsonWriter;
use super::values::{ValueReader, ValueStep, is_string_prefix};
use crate::json_schema::{ArgumentsSchema, TypeSet};
use crate::output::format::Keywords;

/// The maximum length of the text after a quote that decides whether the quote ends a string.
const MAX_AHEAD: usize = 160;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PythonState {
    /// Before or in a name, or in a value without a name.
    Name,
    Value,
    Finished,
}

/// Reads keyword arguments.
#[derive(Debug)]
pub(super) struct PythonReader {
    schema: ArgumentsSchema,
    values: ValueReader,
    state: PythonState,
    /// Text that may be a name, whitespace included.
    name: String,
    /// The number of arguments so far.
    count: usize,
    /// Whether the only parameter already has a value.
    only_given: bool,
    /// The text after a quote that may end a string, from a comma or bracket on.
    ahead: String,
}

impl PythonReader {
    pub(super) fn new(form: &Keywords, schema: ArgumentsSchema) -> PythonReader {
        PythonReader {
            schema,
            values: ValueReader::with_python(form.raw_quote),
            state: PythonState::Name,
            name: String::new(),
            count: 0,
            only_given: false,
            ahead: String::new(),
        }
    }

    fn name_step(&mut self, c: char) -> ReadStep {
        let name = self.name.trim_end();
        match c {
            '=' | ':' if is_name(name) || self.is_parameter(name) => {
                let name = name.to_owned();
                self.begin(&name);
                self.name.clear();
            }
            c if c.is_whitespace() => {
                if !self.name.is_empty() {
                    self.name.push(c);
                }
            }
            ',' if name.is_empty() => {}
            ')' | ']' | '}' if name.is_empty() => return self.end(c),
            ',' | ')' | ']' | '}' | '(' | '[' | '{' => return self.positional(c),
            '"' | '\'' if name.is_empty() || is_string_prefix(name) => {
                return self.positional(c);
            }
            c => self.name.push(c),
        }
        ReadStep::More
    }

    /// Whether the schema has a parameter of this name.
    fn is_parameter(&self, name: &str) -> bool {
        !name.is_empty() && !self.schema.parameter(name).pointers.is_empty()
    }

    /// Reads a value without a name. `c` belongs to it or ends it.
    fn positional(&mut self, c: char) -> ReadStep {
        let only = self.schema.only_parameter().filter(|_| !self.only_given);
        let name = match only {
            Some(name) => name,
            None if self.count == 0 => return ReadStep::Broken(c.len_utf8()),
            None => format!("arg{}", self.count),
        };
        self.values
            .writer
            .note("arg_positional", format!("a value without a name was assigned to `{name}`"));
        self.begin(&name);
        let text = std::mem::take(&mut self.name);
        for c in text.chars() {
            self.values.step(c);
        }
        self.value_step(c)
    }

    fn begin(&mut self, name: &str) {
        if self.count == 0 {
            self.values.writer.open_object();
        }
        self.count += 1;
        self.only_given |= self.schema.only_parameter().is_some_and(|only| only == name);
        let parameter = self.schema.parameter(name);
        if parameter.unknown {
            self.values.writer.note("arg_unknown", format!("the tool has no parameter `{name}`"));
        }
        self.values.writer.key(name);
        let types = self.schema.types(&parameter.pointers);
        let is_number = |types: TypeSet| types.has(TypeSet::INTEGER) && !types.has(TypeSet::STRING);
        self.values.restart(types.is_some_and(is_number));
        self.state = PythonState::Value;
    }

    fn value_step(&mut self, c: char) -> ReadStep {
        if self.values.step(c) == ValueStep::More {
            return ReadStep::More;
        }
        self.state = PythonState::Name;
        match c {
            ',' => ReadStep::More,
            ')' | ']' | '}' => self.end(c),
            // A comma is missing.
            c => self.name_step(c),
        }
    }

    fn end(&mut self, c: char) -> ReadStep {
        self.close();
        ReadStep::Ended(c.to_string())
    }

    fn close(&mut self) {
        self.values.finish();
        if self.count == 0 {
            self.values.writer.open_object();
        }
        self.values.writer.close_all();
        self.state = PythonState::Finished;
    }

    fn read(&mut self, c: char) -> ReadStep {
        match self.state {
            PythonState::Name => self.name_step(c),
            PythonState::Value => self.value_step(c),
            PythonState::Finished => ReadStep::Ended(c.to_string()),
        }
    }

    /// Decides by the text after a quote whether the quote ends a string, and reads that text.
    fn read_ahead(&mut self, is_end: Option<bool>) -> ReadStep {
        let is_end = match is_end.or((self.ahead.len() > MAX_AHEAD).then_some(false)) {
            Some(is_end) => is_end,
            None => return ReadStep::More,
        };
        let ahead = std::mem::take(&mut self.ahead);
        if !is_end {
            self.values.continue_string();
        }
        let mut rest = ahead.chars();
        // The first character follows a quote, so its meaning is decided.
        let mut step = match rest.next() {
            Some(first) => self.read(first),
            None => return ReadStep::More,
        };
        for (at, c) in ahead.char_indices().skip(1) {
            match step {
                ReadStep::More => step = self.read_char(c),
                ReadStep::Ended(text) => return ReadStep::Ended(text + &ahead[at..]),
                other => return other,
            }
        }
        step
    }

    fn read_char(&mut self, c: char) -> ReadStep {
        if !self.ahead.is_empty() {
            self.ahead.push(c);
            let raw = self.values.closing_is_plain() == Some(true);
            return self.read_ahead(ends_string(&self.ahead, raw));
        }
        let closing = self.values.closing_is_plain().filter(|_| self.state == PythonState::Value);
        let raw = closing == Some(true);
        match c {
            ',' if closing.is_some() => self.ahead.push(c),
            ')' | ']' | '}' if raw => self.ahead.push(c),
            // Without escapes, any other text continues the string.
            c if raw && !c.is_whitespace() => {
                self.values.continue_string();
                return self.read(c);
            }
            c => return self.read(c),
        }
        ReadStep::More
    }
}

/// Whether a quote before this text ends a string: before another argument, or the end of the
/// call. `None` if more text decides. Strings without escapes (`raw`) need the clearer sign.
fn ends_string(ahead: &str, raw: bool) -> Option<bool> {
    let (first, rest) = ahead.split_at(ahead.chars().next()?.len_utf8());
    let text = rest.trim_start();
    let Some(next) = text.chars().next() else {
        return if first == ")" && rest.contains('\n') { Some(true) } else { None };
    };
    let begins_name = next.is_alphabetic() || next == '_';
    // The text after the name that begins here. `None` if the name may continue.
    let after_name = || {
        let end = text.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')));
        let after = text[end?..].trim_start();
        after.chars().next()
    };
    match first {
        "," if begins_name => {
            let after = after_name()?;
            Some(after == '=' || !raw && matches!(after, ',' | ')'))
        }
        "," => Some(!raw || next == ')'),
        ")" if rest.starts_with('\n') => Some(true),
        ")" if next == ',' => {
            let call = text[1..].trim_start();
            let end = call.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')));
            let end = end.or_else(|| (call.len() > MAX_AHEAD).then_some(0))?;
            Some(end > 0 && call[end..].starts_with('('))
        }
        ")" if raw => Some(matches!(next, ']' | ';' | '<' | '`')),
        ")" => Some(matches!(next, ']' | ';' | '<' | '`' | ')' | '[' | '}')),
        "]" | "}" if raw => Some(next == '<'),
        _ => Some(true),
    }
}

impl ArgumentsReader for PythonReader {
    fn step(&mut self, c: char, out: &mut String) -> ReadStep {
        let step = self.read_char(c);
        self.values.writer.move_to(out);
        step
    }

    fn finish(&mut self, out: &mut String) -> bool {
        let has_ended = !self.ahead.is_empty() && self.read_ahead(Some(true)) != ReadStep::More;
        if !has_ended && self.state != PythonState::Finished {
            self.close();
        }
        self.values.writer.move_to(out);
        has_ended
    }

    fn is_certain(&self) -> bool {
        self.count > 0
    }

    fn writer(&mut self) -> Option<&mut JsonWriter> {
        Some(&mut self.values.writer)
    }
}

/// Whether a word may be a parameter's name. Models also use `-` and `.`.
fn is_name(word: &str) -> bool {
    let first = word.chars().next().is_some_and(|c| c.is_alphabetic() || matches!(c, '_' | '$'));
    first && word.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$'))
}
