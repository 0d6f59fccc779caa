//! The containers of [`ValueReader`]: lists, objects, and the sets of Python, which become lists.

use super::{FirstKey, OpenBracket, ValueReader, ValueState, ValueStep};
use crate::output::read::json_writer::JsonWriter;

impl ValueReader {
    pub(super) fn open(&mut self, c: char, writer: &mut JsonWriter, out: &mut String) {
        if writer.is_full() {
            writer.note("arguments_too_deep", "the innermost values were kept as text".to_owned());
            writer.begin_string(out);
            writer.push(c, out);
            self.state = ValueState::Deep { brackets: 1 };
            return;
        }
        let container = match c {
            '{' if self.python => OpenBracket::Undecided,
            '{' => {
                writer.open_object(out);
                OpenBracket::Object
            }
            _ => {
                writer.open_array(out);
                OpenBracket::List
            }
        };
        self.open.push(container);
        self.next_member();
    }

    /// Decides what the innermost braces are, and writes their beginning.
    pub(super) fn decide(
        &mut self,
        container: OpenBracket,
        writer: &mut JsonWriter,
        out: &mut String,
    ) {
        let Some(last) = self.open.last_mut().filter(|last| **last == OpenBracket::Undecided)
        else {
            return;
        };
        *last = container;
        let first = self.first_key.take();
        if container == OpenBracket::Set {
            writer.open_array(out);
            first.into_iter().for_each(|first| writer.value(&first.value, out));
        } else {
            writer.open_object(out);
            first.into_iter().for_each(|first| writer.key(&first.text, out));
        }
    }

    /// Ends a key. `value` is what it is as a member of a set.
    pub(super) fn end_key(
        &mut self,
        key: &str,
        value: String,
        writer: &mut JsonWriter,
        out: &mut String,
    ) {
        if self.open.last() == Some(&OpenBracket::Undecided) {
            self.first_key = Some(FirstKey { text: key.to_owned(), value });
        } else {
            self.members.begin_member(key, self.open.len());
            writer.key(key, out);
        }
        self.state = ValueState::Colon;
    }

    /// Handles a closing bracket. It also closes the containers inside its own.
    pub(super) fn close(
        &mut self,
        c: char,
        writer: &mut JsonWriter,
        out: &mut String,
    ) -> ValueStep {
        if !self.open.iter().any(|container| container.ends_with(c)) {
            return if self.open.is_empty() || self.python && c == ')' {
                ValueStep::Ended
            } else {
                ValueStep::More
            };
        }
        self.decide(OpenBracket::Object, writer, out);
        while let Some(container) = self.open.pop() {
            writer.close(out);
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
