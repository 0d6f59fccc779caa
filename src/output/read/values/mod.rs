//! Converts values in the notation of Python and Gemma to JSON: strings of several kinds, bare
//! words, lists, tuples, sets and objects.
//!
//! Reads one value at a time and detects its end. Nothing is an error: missing parts are added,
//! surplus parts are left out, and text without quotes is a string. A quote ends a string only
//! where a value may end, so `'It's'` is one string. Adjacent strings are joined, as in Python.

mod containers;
mod member_types;
mod strings;

pub(crate) use member_types::MemberTypes;

use crate::output::read::json_word::{without_leading_zeros, word_to_json};
use crate::output::read::json_writer::{JsonWriter, quoted};

/// The result of one character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueStep {
    /// The character belongs to the value.
    More,
    /// The value ended before the character.
    Ended,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ValueState {
    #[default]
    Value,
    /// A value, or the end of an array.
    ValueOrEnd,
    Key,
    Colon,
    AfterValue,
    /// A key or value without quotes, and the number of brackets open in it.
    Word {
        brackets: usize,
    },
    /// After the first quote of a string, or after two.
    Opening {
        quote: char,
        count: usize,
    },
    /// Inside a string. `count` quotes of a possible end were read.
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
    /// After a quote that may have ended a string.
    Closing {
        quote: char,
    },
    /// In a string between the format's own quotes.
    Marked,
    /// In a value that is nested too deeply. It is kept as text.
    Deep {
        brackets: usize,
    },
}

/// The text of a key, and the value that it is without a colon.
#[derive(Debug)]
struct FirstKey {
    text: String,
    value: String,
}

/// An open container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OpenBracket {
    Object,
    List,
    /// Python's braces, of which nothing is written before the character after the first key.
    Undecided,
    /// A set of Python, which becomes a list.
    Set,
}

impl OpenBracket {
    fn ends_with(self, c: char) -> bool {
        (self == OpenBracket::List) != (c == '}')
    }
}

/// Reads values and writes them as JSON.
#[derive(Debug, Default)]
pub(crate) struct ValueReader {
    pub(crate) writer: JsonWriter,
    /// The format's own quote of strings. Empty if it has none.
    quote: String,
    /// Whether the notation is Python's: parentheses enclose lists too, and braces sets.
    python: bool,
    /// The open containers, from the outermost.
    open: Vec<OpenBracket>,
    state: ValueState,
    /// Text that is not decided yet: the start of the format's own quote, an escape, or the text
    /// after a closing quote.
    held: String,
    word: String,
    /// The text of the current string, if it is a key.
    key: Option<String>,
    /// Whether the current string is a raw string without escapes.
    raw: bool,
    /// The quote of values whose backslashes are text. Only for values outside containers.
    plain_quote: Option<char>,
    /// The first key in braces that are not decided. Without a colon, it is a member of a set.
    first_key: Option<FirstKey>,
    /// Whether zeros at the beginning of a number are dropped. Only for values outside containers.
    drops_zeros: bool,
    /// A high surrogate. Its low surrogate may follow.
    high: Option<u32>,
    /// The types of the members of the outermost object.
    members: MemberTypes,
}

impl ValueReader {
    /// Reads values whose strings may be in this quote, without escapes.
    pub(crate) fn with_quote(quote: &str, members: MemberTypes) -> ValueReader {
        ValueReader { quote: quote.to_owned(), members, ..ValueReader::default() }
    }

    /// Reads values in Python's notation. Outside containers, strings in `plain_quote` have no
    /// escapes.
    pub(crate) fn with_python(plain_quote: Option<char>) -> ValueReader {
        ValueReader { python: true, plain_quote, ..ValueReader::default() }
    }

    /// If a quote may have ended a string outside containers: whether the string has no escapes.
    /// The text after the quote decides whether it did.
    pub(crate) fn closing_is_plain(&self) -> Option<bool> {
        match self.state {
            ValueState::Closing { quote } if self.open.is_empty() => {
                Some(self.plain_quote == Some(quote))
            }
            _ => None,
        }
    }

    /// Continues a string whose last quote did not end it.
    pub(crate) fn continue_string(&mut self) {
        if let ValueState::Closing { quote } = self.state {
            self.put_held();
            self.state = ValueState::Quoted { quote, triple: false, count: 0 };
        }
    }

    /// Begins a new value. `drops_zeros`: `007` is the number 7 and not a text.
    pub(crate) fn restart(&mut self, drops_zeros: bool) {
        self.drops_zeros = drops_zeros;
        self.state = ValueState::Value;
    }

    /// The number of open containers.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn step(&mut self, c: char) -> ValueStep {
        loop {
            let again = match self.state {
                ValueState::Value | ValueState::ValueOrEnd => return self.value(c),
                ValueState::Key => {
                    self.before_key(c);
                    false
                }
                ValueState::Colon => self.colon(c),
                ValueState::AfterValue => return self.after_value(c),
                ValueState::Word { brackets } => self.word_step(c, brackets),
                ValueState::Opening { quote, count } => self.opening(c, quote, count),
                ValueState::Quoted { quote, triple, count } => self.quoted(c, quote, triple, count),
                ValueState::Escape { quote, triple } => self.escape(c, quote, triple),
                ValueState::Closing { .. } => self.closing(c),
                ValueState::Marked => {
                    self.marked(c);
                    false
                }
                ValueState::Deep { brackets } => {
                    self.deep(c, brackets);
                    false
                }
            };
            if !again {
                return ValueStep::More;
            }
        }
    }

    /// Ends the text. Closes all open values.
    pub(crate) fn finish(&mut self) {
        match self.state {
            ValueState::Word { .. } => self.end_word(),
            ValueState::Opening { .. } | ValueState::Closing { .. } => self.end_string(),
            ValueState::Quoted { quote, count, .. } => {
                (0..count).for_each(|_| self.put(quote));
                self.end_string();
            }
            ValueState::Escape { .. } => {
                self.held.clear();
                self.end_string();
            }
            ValueState::Marked => {
                // A single character is text. Several are the start of the quote.
                if self.held.chars().count() == 1 {
                    self.put_held();
                }
                self.held.clear();
                self.end_string();
            }
            ValueState::Deep { .. } => self.writer.end_string(),
            _ => {}
        }
        self.decide(OpenBracket::Object);
        while self.open.pop().is_some() {
            self.writer.close();
        }
        self.state = ValueState::AfterValue;
    }

    fn value(&mut self, c: char) -> ValueStep {
        if self.held.is_empty() && c.is_whitespace() {
            return ValueStep::More;
        }
        if self.own_quote_step(c) {
            if self.held.is_empty() {
                if !self.members.begin_marked(self.open.len()) {
                    self.writer.begin_string();
                }
                self.state = ValueState::Marked;
            }
            return ValueStep::More;
        }
        if !self.held.is_empty() {
            self.word = std::mem::take(&mut self.held);
            self.state = ValueState::Word { brackets: 0 };
            self.step(c);
            return ValueStep::More;
        }
        match c {
            '{' | '[' => self.open(c),
            '(' if self.python => self.open(c),
            '"' | '\'' => {
                self.writer.begin_string();
                self.raw = false;
                self.state = ValueState::Opening { quote: c, count: 1 };
            }
            ',' if self.open.is_empty() => return ValueStep::Ended,
            ',' => self.next_member(),
            '}' | ']' => return self.close(c),
            ')' if self.python => return self.close(c),
            _ => {
                self.word.push(c);
                self.state = ValueState::Word { brackets: 0 };
            }
        }
        ValueStep::More
    }

    fn after_value(&mut self, c: char) -> ValueStep {
        match c {
            c if c.is_whitespace() => ValueStep::More,
            _ if self.open.is_empty() => ValueStep::Ended,
            ',' => {
                self.next_member();
                ValueStep::More
            }
            '}' | ']' => self.close(c),
            ')' if self.python => self.close(c),
            // A comma is missing.
            _ => {
                self.next_member();
                self.step(c)
            }
        }
    }

    fn before_key(&mut self, c: char) {
        if self.own_quote_step(c) {
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
            self.step(c);
            return;
        }
        match c {
            c if c.is_whitespace() || c == ',' => {}
            '}' | ']' => {
                self.close(c);
            }
            '"' | '\'' => {
                self.key = Some(String::new());
                self.raw = false;
                self.state = ValueState::Opening { quote: c, count: 1 };
            }
            ':' => {
                self.decide(OpenBracket::Object);
                self.writer.key("");
                self.state = ValueState::Value;
            }
            c => {
                self.key = Some(String::new());
                self.word.push(c);
                self.state = ValueState::Word { brackets: 0 };
            }
        }
    }

    fn colon(&mut self, c: char) -> bool {
        if c.is_whitespace() {
            return false;
        }
        if self.open.last() == Some(&OpenBracket::Undecided) {
            let ends_member = matches!(c, ',' | '}');
            self.decide(if ends_member { OpenBracket::Set } else { OpenBracket::Object });
            if ends_member {
                self.state = ValueState::AfterValue;
                return true;
            }
        }
        match c {
            ':' | '=' => self.state = ValueState::Value,
            // The key has no value. The writer adds null.
            ',' | '}' | ']' => {
                self.state = ValueState::Key;
                if c == ',' {
                    self.writer.value("null");
                }
                return true;
            }
            _ => {
                self.state = ValueState::Value;
                self.step(c);
            }
        }
        false
    }

    fn word_step(&mut self, c: char, brackets: usize) -> bool {
        let is_key = self.key.is_some();
        let ends = match c {
            ',' | '}' | ']' => brackets == 0,
            ')' => brackets == 0 && self.python,
            ':' => is_key,
            // A Python string with a prefix: `r'\d'`.
            '"' | '\'' if self.python && !is_key && is_string_prefix(&self.word) => {
                self.raw = self.word.contains(['r', 'R']);
                self.word.clear();
                self.writer.begin_string();
                self.state = ValueState::Opening { quote: c, count: 1 };
                return false;
            }
            _ => false,
        };
        if ends {
            self.end_word();
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

    fn end_word(&mut self) {
        let text = std::mem::take(&mut self.word);
        let text = text.trim_end();
        let number =
            || without_leading_zeros(text).filter(|_| self.drops_zeros && self.open.is_empty());
        let value = word_to_json(text).or_else(number).unwrap_or_else(|| quoted(text));
        if self.key.take().is_some() {
            self.end_key(text, value);
            return;
        }
        self.writer.value(&value);
        self.state = ValueState::AfterValue;
    }

    /// Whether the held text and this character begin the format's own quote. A complete quote
    /// leaves no held text.
    fn own_quote_step(&mut self, c: char) -> bool {
        self.held.push(c);
        if self.quote.starts_with(self.held.as_str()) {
            if self.held == self.quote {
                self.held.clear();
            }
            return true;
        }
        self.held.pop();
        false
    }

    fn deep(&mut self, c: char, brackets: usize) {
        self.writer.push(c);
        let brackets = match c {
            '[' | '{' | '(' => brackets + 1,
            ']' | '}' | ')' => brackets - 1,
            _ => brackets,
        };
        self.state = ValueState::Deep { brackets };
        if brackets == 0 {
            self.writer.end_string();
            self.state = ValueState::AfterValue;
        }
    }
}

/// Whether a word is a prefix of Python strings.
pub(crate) fn is_string_prefix(word: &str) -> bool {
    matches!(word.to_ascii_lowercase().as_str(), "r" | "b" | "u" | "f" | "rb" | "br" | "rf" | "fr")
}
