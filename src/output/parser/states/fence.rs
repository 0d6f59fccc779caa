//! Calls in fenced blocks, and replies that are one object with calls. A block counts if it
//! contains only a call of a given tool, a list of such calls, or an object with such calls. It is
//! decided as a whole, but becomes text as soon as it can no longer be a call. A fence around a
//! call with the format's own tags is dropped.

use super::{Candidate, Fence, ParserState, Transition};
use crate::output::format::FENCE;
use crate::output::parser::calls::call_object::ObjectProgress;
use crate::output::parser::calls::call_patterns::{object_items, python_items};
use crate::output::parser::calls::call_reader::{CallReader, CallStatus};
use crate::output::parser::calls::envelope::Envelope;
use crate::output::parser::calls::marker_set::{Marker, MarkerMatch};
use crate::output::parser::context::ParserContext;
use crate::output::read::json_scanner::is_whitespace;

/// The languages that a fence may name.
const LANGUAGES: [&str; 4] = ["json", "xml", "tool_call", PYTHON];
/// The language of a block with a call in Python's notation: `f(a=1)` or `print(f(a=1))`.
const PYTHON: &str = "tool_code";

impl Fence {
    /// Whether no call is open.
    pub(crate) fn is_closed(&self) -> bool {
        self.parentheses == 0 && (!self.list || self.tail.contains(']'))
    }

    /// The whole text of the block so far.
    pub(crate) fn text(&self) -> String {
        self.held.clone() + &self.tail
    }

    pub(super) fn step(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        if self.ended {
            return self.read_end(c, cx);
        }
        self.held.push(c);
        if self.open {
            return self.read_call(c, cx);
        }
        if !self.tag.is_empty() || (c == '<' && self.calls.is_empty() && !self.list) {
            return self.read_tag(c, cx);
        }
        let known = self.language.is_empty() || LANGUAGES.contains(&self.language.as_str());
        let python = self.named && self.language == PYTHON && (c.is_alphabetic() || c == '_');
        if known && (c == '{' || python) {
            self.begin_call(python, cx);
            return self.read_call(c, cx);
        }
        let fits = if is_whitespace(c) {
            self.named = true;
            known
        } else if c == '[' && known && !self.list {
            (self.named, self.list) = (true, true);
            true
        } else {
            self.language.push(c);
            !self.named && LANGUAGES.iter().any(|language| language.starts_with(&self.language))
        };
        if fits {
            return Transition::Stay;
        }
        // The bracket may begin a tag.
        let bracket = self.held.rfind('[').filter(|_| self.list && self.calls.is_empty());
        cx.release(&self.held, bracket.map_or(c.len_utf8(), |at| self.held.len() - at))
    }

    /// Reads a character of a possible opening tag of a call.
    fn read_tag(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        self.tag.push(c);
        let is_opening = |marker| matches!(marker, Marker::CallOpen(_));
        match cx.forms.current.markers.find(&self.tag, is_opening) {
            MarkerMatch::Prefix => Transition::Stay,
            MarkerMatch::Full(Marker::CallOpen(opening), length) => {
                let mut held = std::mem::take(&mut self.held);
                let rest = held.split_off(held.len() - (self.tag.len() - length));
                let candidate = Candidate::new(held, cx.forms.readers_after_tag(opening));
                let candidate = Box::new(Candidate { fenced: true, ..candidate });
                Transition::To(ParserState::Candidate(candidate), rest)
            }
            _ => cx.release(&self.held, self.tag.len()),
        }
    }

    fn begin_call(&mut self, python: bool, cx: &ParserContext) {
        self.parentheses += usize::from(python);
        if !python && !self.list {
            self.envelope = Some(Box::new(Envelope::new(false)));
        }
        let items = if python { python_items() } else { object_items() };
        let reader = CallReader::new(&items, 0, &cx.forms.current.followers);
        self.calls.push(reader);
        self.open = true;
    }

    fn read_call(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        let envelope = self.envelope.as_mut().map(|envelope| envelope.read(c));
        if envelope == Some(ObjectProgress::Broken) {
            self.envelope = None;
        }
        let Some(reader) = self.calls.last_mut() else {
            return self.read_object(envelope, c, cx);
        };
        let tools = &cx.settings.tools;
        let status = reader.step(c, tools);
        let printed = self.parentheses == 1 && reader.name() == Some("print");
        if printed && status == CallStatus::More && !tools.has("print") {
            self.calls.pop();
            self.open = false;
            return Transition::Stay;
        }
        let known = reader.name().is_none_or(|name| tools.has(name));
        if !known
            || !reader.is_object()
            || reader.has_foreign_key()
            || matches!(status, CallStatus::Broken(_))
        {
            if envelope == Some(ObjectProgress::More) {
                self.calls.clear();
                return Transition::Stay;
            }
            return cx.release(&self.held, c.len_utf8());
        }
        if status == CallStatus::More {
            return Transition::Stay;
        }
        if reader.name().is_none() || reader.lacks_arguments() {
            cx.out.push_text(&self.held);
            return Transition::text("");
        }
        (self.open, self.ended) = (false, true);
        // A call in Python's notation ends before its parenthesis.
        if let CallStatus::Ended(_) = status {
            self.held.pop();
            return self.read_end(c, cx);
        }
        Transition::Stay
    }

    /// Reads a character of an object that may contain calls.
    fn read_object(
        &mut self,
        progress: Option<ObjectProgress>,
        c: char,
        cx: &mut ParserContext,
    ) -> Transition {
        if progress == Some(ObjectProgress::More) {
            return Transition::Stay;
        }
        let envelope = self.envelope.take().filter(|envelope| envelope.content.is_empty());
        match envelope.and_then(|envelope| cx.calls_of(&envelope)) {
            Some(calls) if progress == Some(ObjectProgress::Closed) => {
                (self.open, self.ended, self.calls) = (false, true, calls);
                Transition::Stay
            }
            _ => cx.release(&self.held, c.len_utf8()),
        }
    }

    /// Reads a character after a call.
    fn read_end(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        let after = self.tail.trim_end();
        let fits = match c {
            // The backticks of the closing fence must be adjacent.
            '`' => self.is_closed() && (!after.ends_with('`') || self.tail.ends_with('`')),
            ')' => self.parentheses > 0,
            ']' => self.parentheses == 0 && self.list && !after.contains(']'),
            ',' => self.parentheses == 0 && self.list && after.is_empty(),
            c => is_whitespace(c) && !self.tail.ends_with('`'),
        };
        self.tail.push(c);
        if !fits {
            cx.out.note(
                "call_like_content",
                "a fenced block contains a call and more text; it was kept as text",
            );
            cx.out.push_text(&self.held);
            return Transition::text(std::mem::take(&mut self.tail));
        }
        if matches!(c, ',' | ')') {
            self.held.push_str(&self.tail);
            self.tail.clear();
            self.ended = c == ')';
            self.parentheses -= usize::from(c == ')');
        }
        if !self.tail.ends_with(FENCE) {
            return Transition::Stay;
        }
        self.commit(cx);
        Transition::text("")
    }

    /// Adds the block's calls to the message, or keeps the block as text.
    pub(crate) fn commit(&mut self, cx: &mut ParserContext) {
        if !self.calls.iter_mut().all(|reader| cx.settings.passes_validator(reader)) {
            cx.out.note(
                "call_like_content",
                "the arguments of a fenced call violate their schema; it was kept as text",
            );
            return cx.out.push_text(&self.text());
        }
        for reader in self.calls.drain(..) {
            let Some(name) = reader.name() else { continue };
            let message = format!("a fenced block was read as a call of `{name}`");
            cx.out.note("fenced_call", &message);
            cx.add_call(reader);
        }
    }
}

impl Envelope {
    pub(super) fn step(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        match self.read(c) {
            ObjectProgress::More => return Transition::Stay,
            ObjectProgress::Broken => {}
            ObjectProgress::Closed => {
                if let Some(calls) = cx.calls_of(self) {
                    cx.out.preceding.whitespace.clear();
                    cx.out.emit(&self.content);
                    if !self.own {
                        cx.out.note(
                            "call_in_foreign_format",
                            "the reply is a JSON object with calls in it, which is not the \
                             model's own form",
                        );
                    }
                    calls.into_iter().for_each(|reader| cx.add_call(reader));
                    return Transition::text("");
                }
                if self.own {
                    cx.out.note(
                        "malformed_call",
                        "an object in `tool_calls` is not a call, or violates the tool's schema",
                    );
                }
            }
        }
        // The object is a call without tags, or text. Its brace is emitted first, so that it does
        // not start another envelope.
        let mut again = std::mem::take(&mut self.held);
        if cx.may_open_untagged('{') {
            return Transition::To(cx.open_untagged('{'), again);
        }
        cx.out.push_char('{');
        again.remove(0);
        Transition::text(again)
    }
}

impl ParserContext {
    /// The calls in the object; `None` if one of the entries is not a call.
    fn calls_of(&self, envelope: &Envelope) -> Option<Vec<CallReader>> {
        let (tools, items) = (&self.settings.tools, object_items());
        let read = |text: &str| {
            let mut reader = CallReader::new(&items, 0, &self.forms.current.followers);
            let status = text.chars().fold(CallStatus::More, |_, c| reader.step(c, tools));
            let is_call = status == CallStatus::Closed
                && reader.name().is_some_and(|name| envelope.own || tools.has(name))
                && self.settings.passes_validator(&mut reader);
            is_call.then_some(reader)
        };
        envelope.calls().map(read).collect()
    }
}
