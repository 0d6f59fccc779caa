//! The containers of [`ValueReader`]: lists, objects, and the sets of Python, which become lists.

use super::{FirstKey, OpenBracket, ValueReader, ValueState, ValueStep};

impl ValueReader {
    pub(super) fn open(&mut self, c: char) {
        if self.writer.is_full() {
            self.writer
                .note("arguments_too_deep", "the innermost values were kept as text".to_owned());
            self.writer.begin_string();
            self.writer.push(c);
            self.state = ValueState::Deep { brackets: 1 };
            return;
        }
        let container = match c {
            '{' if self.python => OpenBracket::Undecided,
            '{' => {
                self.writer.open_object();
                OpenBracket::Object
            }
            _ => {
                self.writer.open_array();
                OpenBracket::List
            }
        };
        self.open.push(container);
        self.next_member();
    }

    /// Decides what the innermost braces are, and writes their beginning.
    pub(super) fn decide(&mut self, container: OpenBracket) {
        let Some(last) = self.open.last_mut().filter(|last| **last == OpenBracket::Undecided)
        else {
            return;
        };
        *last = container;
        let first = self.first_key.take();
        if container == OpenBracket::Set {
            self.writer.open_array();
            first.into_iter().for_each(|first| self.writer.value(&first.value));
        } else {
            self.writer.open_object();
            first.into_iter().for_each(|first| self.writer.key(&first.text));
        }
    }

    /// Ends a key. `value` is what it is as a member of a set.
    pub(super) fn end_key(&mut self, key: &str, value: String) {
        if self.open.last() == Some(&OpenBracket::Undecided) {
            self.first_key = Some(FirstKey { text: key.to_owned(), value });
        } else {
            self.members.begin_member(key, self.open.len());
            self.writer.key(key);
        }
        self.state = ValueState::Colon;
    }

    /// Handles a closing bracket. It also closes the containers inside its own.
    pub(super) fn close(&mut self, c: char) -> ValueStep {
        if !self.open.iter().any(|container| container.ends_with(c)) {
            return if self.open.is_empty() || self.python && c == ')' {
                ValueStep::Ended
            } else {
                ValueStep::More
            };
        }
        self.decide(OpenBracket::Object);
        while let Some(container) = self.open.pop() {
            self.writer.close();
            if container.ends_with(c) {
                break;
            }
        }
        self.state = ValueState::AfterValue;
        ValueStep::More
    }

    pub(super) fn next_member(&mut self) {
        self.state = match self.open.last() {
            Some(OpenBracket::Object | OpenBracket::Undecided) => ValueState::Key,
            _ => ValueState::ValueOrEnd,
        };
    }
}
