//! An incremental JSON scanner. It reads one character at a time and knows its position in the
//! value.
//!
//! Out: at most one event per character, and the text. The text is the model's own, except that
//! Python's notation is rewritten token by token (`'a'` -> `"a"`, `True` -> `true`), and comments
//! are left out. Faults are recorded and never fatal. Brackets and strings are balanced, so the end
//! of a broken value is found. There is no recursion. At most [`NESTING_CAP`] levels are stored,
//! deeper ones are counted.

use super::json_word::{self, WordFault, is_word};

/// The number of levels of nesting that are checked.
pub(crate) const NESTING_CAP: usize = 128;

/// The part of a value that a character begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanEvent {
    /// Nothing.
    None,
    /// A key is complete: [`Scanner::text`].
    Key,
    /// An object or array opened as a value.
    Open(Container),
    /// An object or array closed.
    Close,
    /// A string value began.
    StringStart,
    /// A string value ended: [`Scanner::text`].
    StringEnd,
    /// A number or literal began. Its end is reported by [`Scanner::close_word`].
    WordStart,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Container {
    Object,
    Array,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Expect {
    #[default]
    Value,
    ValueOrEnd,
    Key,
    KeyOrEnd,
    Colon,
    CommaOrEnd,
    Done,
}

/// The faults so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    /// A comma before a closing bracket.
    pub(crate) trailing_comma: bool,
    /// Text that JSON does not allow in a string.
    pub(crate) string: bool,
    /// Other text that JSON does not allow.
    pub(crate) syntax: bool,
    /// More levels than [`NESTING_CAP`].
    pub(crate) too_deep: bool,
    /// Python's notation. It was rewritten, so the emitted text has no fault.
    pub(crate) python: bool,
    /// Comments. The emitted text does not contain them.
    pub(crate) comments: bool,
    /// Numbers with leading zeros, rewritten without zeros or as strings.
    pub(crate) zeros: bool,
}

impl Faults {
    pub(crate) fn any(self) -> bool {
        self.trailing_comma || self.string || self.syntax || self.too_deep
    }
}

/// The part of a comment that was read: a slash, `//` up to the end of the line, or `/*`, where a
/// star may be the first half of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comment {
    Start,
    Line,
    Block { star: bool },
}

#[derive(Debug)]
struct Quoted {
    quote: char,
    key: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Scanner {
    stack: Vec<Container>,
    deeper: usize,
    expect: Expect,
    quoted: Option<Quoted>,
    /// The number of characters of the current escape, backslash included. 0 outside an escape.
    escape: usize,
    unit: u32,
    /// A high surrogate. Its low surrogate may follow.
    high: Option<u32>,
    /// Text that is not emitted yet: an incomplete escape or surrogate pair, a literal that may be
    /// Python's, or a number with leading zeros.
    held: String,
    /// Whether a number with leading zeros is a string.
    zeros_are_text: bool,
    word: Option<String>,
    comment: Option<Comment>,
    text: String,
    faults: Faults,
}

impl Scanner {
    /// The number of open containers.
    pub(crate) fn depth(&self) -> usize {
        self.stack.len() + self.deeper
    }

    pub(crate) fn in_string(&self) -> bool {
        self.quoted.is_some()
    }

    /// Whether `next` ends the open number or literal. [`Scanner::close_word`] must then be called
    /// before `step`.
    pub(crate) fn ends_word(&self, next: char) -> bool {
        self.word.is_some() && !is_word(next)
    }

    /// The last key or string value of the upper levels, without quotes and escapes.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults
    }

    /// Whether exactly one value was read.
    pub(super) fn is_done(&self) -> bool {
        self.expect == Expect::Done && self.comment.is_none()
    }

    /// Clears a syntax fault that was handled.
    pub(crate) fn forgive_syntax(&mut self) {
        self.faults.syntax = false;
    }

    /// Sets whether a number with leading zeros is a string: `007` is `"007"`, else 7.
    pub(crate) fn keep_zeros(&mut self, keep: bool) {
        self.zeros_are_text = keep;
    }

    /// Whether Python's notation was rewritten, comments were removed and leading zeros were
    /// rewritten since the last call.
    pub(super) fn take_rewritten(&mut self) -> [bool; 3] {
        let Faults { python, comments, zeros, .. } = &mut self.faults;
        [python, comments, zeros].map(std::mem::take)
    }

    /// Ends the open number or literal.
    pub(crate) fn close_word(&mut self, out: &mut String) {
        let Some(word) = self.word.take() else { return };
        let (json, fault) = json_word::as_json(&word, self.zeros_are_text);
        if !std::mem::take(&mut self.held).is_empty() {
            out.push_str(&json);
        }
        match fault {
            None => {}
            Some(WordFault::Python) => self.faults.python = true,
            Some(WordFault::Zeros) => self.faults.zeros = true,
            Some(WordFault::Syntax) => self.faults.syntax = true,
        }
    }

    /// Emits the held text, because the text ends.
    pub(crate) fn flush(&mut self, out: &mut String) {
        if self.comment.take() == Some(Comment::Start) {
            out.push('/');
        }
        out.push_str(&std::mem::take(&mut self.held));
    }

    pub(crate) fn step(&mut self, c: char, out: &mut String) -> ScanEvent {
        if self.quoted.is_some() {
            let is_escape = self.escape > 0 && self.escape_step(c, out);
            return if is_escape { ScanEvent::None } else { self.plain_step(c, out) };
        }
        if let Some(comment) = self.comment
            && self.comment_step(comment, c, out)
        {
            return ScanEvent::None;
        }
        if let Some(word) = &mut self.word {
            if is_word(c) {
                word.push(c);
                if self.held.is_empty() {
                    out.push(c)
                } else {
                    self.held.push(c)
                }
                return ScanEvent::None;
            }
            self.close_word(out);
        }
        match c {
            c if is_whitespace(c) => {
                out.push(c);
                ScanEvent::None
            }
            '{' => self.open(Container::Object, c, out),
            '[' => self.open(Container::Array, c, out),
            '}' => self.close(Container::Object, c, out),
            ']' => self.close(Container::Array, c, out),
            ':' => {
                self.require(self.expect == Expect::Colon);
                self.expect = Expect::Value;
                out.push(c);
                ScanEvent::None
            }
            ',' => {
                self.require(self.expect == Expect::CommaOrEnd);
                self.expect = if self.stack.last() == Some(&Container::Object) {
                    Expect::Key
                } else {
                    Expect::Value
                };
                out.push(c);
                ScanEvent::None
            }
            '"' | '\'' => self.open_string(c, out),
            '/' => {
                self.comment = Some(Comment::Start);
                ScanEvent::None
            }
            _ if is_word(c) => {
                self.begin_value();
                self.word = Some(c.to_string());
                if json_word::may_be_rewritten(c) {
                    self.held.push(c)
                } else {
                    out.push(c)
                }
                ScanEvent::WordStart
            }
            _ => {
                self.require(false);
                out.push(c);
                ScanEvent::None
            }
        }
    }

    /// A character in a comment. Returns whether it belongs to the comment.
    fn comment_step(&mut self, comment: Comment, c: char, out: &mut String) -> bool {
        self.comment = match (comment, c) {
            (Comment::Start, '/') => Some(Comment::Line),
            (Comment::Start, '*') => Some(Comment::Block { star: false }),
            (Comment::Start, _) => {
                self.comment = None;
                self.require(false);
                out.push('/');
                return false;
            }
            (Comment::Line, '\n') => {
                out.push(c);
                None
            }
            (Comment::Block { star: true }, '/') => None,
            (Comment::Block { .. }, c) => Some(Comment::Block { star: c == '*' }),
            (Comment::Line, _) => Some(Comment::Line),
        };
        self.faults.comments |= self.comment.is_some();
        true
    }

    fn require(&mut self, condition: bool) {
        self.faults.syntax |= !condition;
    }

    /// Begins a value. A comma or an end must follow it.
    fn begin_value(&mut self) {
        self.require(matches!(self.expect, Expect::Value | Expect::ValueOrEnd));
        self.expect = Expect::CommaOrEnd;
    }

    fn open(&mut self, container: Container, c: char, out: &mut String) -> ScanEvent {
        out.push(c);
        self.begin_value();
        if self.stack.len() == NESTING_CAP {
            self.deeper += 1;
            self.faults.too_deep = true;
        } else {
            self.stack.push(container);
        }
        self.expect = match container {
            Container::Object => Expect::KeyOrEnd,
            Container::Array => Expect::ValueOrEnd,
        };
        ScanEvent::Open(container)
    }

    fn close(&mut self, container: Container, c: char, out: &mut String) -> ScanEvent {
        out.push(c);
        if self.deeper > 0 {
            self.deeper -= 1;
            self.expect = Expect::CommaOrEnd;
            return ScanEvent::Close;
        }
        let after_comma = match container {
            Container::Object => self.expect == Expect::Key,
            // In an array, `Value` is expected only after a comma. An empty one has `ValueOrEnd`.
            Container::Array => self.expect == Expect::Value,
        };
        let top = self.stack.pop();
        if after_comma && top == Some(container) {
            self.faults.trailing_comma = true;
        } else {
            let may_end =
                matches!(self.expect, Expect::CommaOrEnd | Expect::KeyOrEnd | Expect::ValueOrEnd);
            self.require(may_end && top == Some(container));
        }
        self.expect = if self.stack.is_empty() { Expect::Done } else { Expect::CommaOrEnd };
        ScanEvent::Close
    }

    fn open_string(&mut self, quote: char, out: &mut String) -> ScanEvent {
        out.push('"');
        self.text.clear();
        self.faults.python |= quote == '\'';
        let key = matches!(self.expect, Expect::Key | Expect::KeyOrEnd);
        self.quoted = Some(Quoted { quote, key });
        if key {
            self.expect = Expect::Colon;
            return ScanEvent::None;
        }
        self.begin_value();
        ScanEvent::StringStart
    }

    /// A character of a string outside an escape.
    fn plain_step(&mut self, c: char, out: &mut String) -> ScanEvent {
        if c == '\\' {
            self.held.push(c);
            self.escape = 1;
            return ScanEvent::None;
        }
        self.lone_surrogate();
        if !self.held.is_empty() {
            self.flush(out);
        }
        let Some(quoted) = &self.quoted else { return ScanEvent::None };
        let (quote, key) = (quoted.quote, quoted.key);
        if c == quote {
            out.push('"');
            self.quoted = None;
            return if key { ScanEvent::Key } else { ScanEvent::StringEnd };
        }
        self.faults.string |= c < ' ';
        if c == '"' {
            out.push('\\');
        }
        out.push(c);
        self.remember(c);
        ScanEvent::None
    }

    /// A character in an escape. Returns whether it belongs to the escape.
    fn escape_step(&mut self, c: char, out: &mut String) -> bool {
        if self.escape == 1 {
            self.held.push(c);
            if c == 'u' {
                self.escape = 2;
                self.unit = 0;
                return true;
            }
            self.lone_surrogate();
            let decoded = match c {
                '"' | '\\' | '/' => c,
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                '\'' if self.quoted.as_ref().is_some_and(|quoted| quoted.quote == '\'') => {
                    self.held.truncate(self.held.len() - 2);
                    self.held.push('\'');
                    c
                }
                other => {
                    self.faults.string = true;
                    other
                }
            };
            self.remember(decoded);
            self.escape = 0;
            self.flush(out);
            return true;
        }
        let Some(digit) = c.to_digit(16) else {
            self.faults.string = true;
            self.escape = 0;
            return false;
        };
        self.held.push(c);
        self.unit = self.unit * 16 + digit;
        self.escape += 1;
        if self.escape == 6 {
            self.escape = 0;
            self.end_of_unit(out);
        }
        true
    }

    fn end_of_unit(&mut self, out: &mut String) {
        match (self.high, self.unit) {
            (_, 0xD800..=0xDBFF) => {
                self.lone_surrogate();
                self.high = Some(self.unit);
                return;
            }
            (Some(high), low @ 0xDC00..=0xDFFF) => {
                self.high = None;
                self.remember(join_surrogates(high, low));
            }
            (_, unit) => {
                self.lone_surrogate();
                self.faults.string |= char::from_u32(unit).is_none();
                self.remember(char::from_u32(unit).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
        }
        self.flush(out);
    }

    fn lone_surrogate(&mut self) {
        if self.high.take().is_some() {
            self.faults.string = true;
            self.remember(char::REPLACEMENT_CHARACTER);
        }
    }

    /// Stores a character of a key or string of the upper levels. Deeper ones are not needed.
    fn remember(&mut self, c: char) {
        if self.stack.len() <= 2 {
            self.text.push(c);
        }
    }
}

/// The character of a surrogate pair.
pub(super) fn join_surrogates(high: u32, low: u32) -> char {
    let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The whitespace characters of JSON.
pub(crate) fn is_whitespace(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}
