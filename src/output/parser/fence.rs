//! Calls in fenced blocks. A block counts if it contains only a call of a given tool, a list of
//! such calls, or an object with such calls. It is decided as a whole, but becomes text as soon as
//! it can no longer be a call. A fence around a call with the format's own tags is dropped.

use std::sync::Arc;

use super::call_object::{CallKeys, ObjectProgress};
use super::call_patterns::PatternItem;
use super::call_reader::{CallReader, CallStatus};
use super::candidate::Candidate;
use super::envelope::Envelope;
use super::marker_set::{Marker, MarkerMatch};
use super::{FENCE, ParserState, ReplyParser, is_whitespace};
use crate::output::format::Encoding;

/// The languages that a fence may name.
const LANGUAGES: [&str; 4] = ["json", "xml", "tool_call", PYTHON];
/// The language of a block with a call in Python's notation: `f(a=1)` or `print(f(a=1))`.
const PYTHON: &str = "tool_code";

/// A fence at the start of a line, and the text after it.
#[derive(Debug, Default)]
pub(super) struct Fence {
    pub(super) held: String,
    language: String,
    /// Whether the language is complete, because whitespace or a bracket follows it.
    named: bool,
    /// Whether the block is a list.
    list: bool,
    /// The readers of the block's calls. The last one reads the current call.
    calls: Vec<CallReader>,
    /// Whether the last call has begun.
    open: bool,
    /// The number of parentheses that must still close.
    parentheses: usize,
    /// Text that may be the opening tag of a call.
    tag: String,
    /// The block's object as a whole, which may contain calls.
    envelope: Option<Box<Envelope>>,
    /// The text after the last call.
    tail: String,
}

impl Fence {
    pub(super) fn new(held: String) -> Fence {
        Fence { held, ..Fence::default() }
    }

    /// Whether no call is open.
    pub(super) fn is_closed(&self) -> bool {
        self.parentheses == 0 && (!self.list || self.tail.contains(']'))
    }

    /// The whole text of the block so far.
    pub(super) fn text(&self) -> String {
        self.held.clone() + &self.tail
    }

    fn is_python(&self) -> bool {
        self.named && self.language == PYTHON
    }
}

impl ReplyParser {
    pub(super) fn fence_step(&mut self, mut fence: Box<Fence>, c: char) {
        fence.held.push(c);
        if fence.open {
            return self.fence_call_step(fence, c);
        }
        if !fence.tag.is_empty() || (c == '<' && fence.calls.is_empty() && !fence.list) {
            return self.fence_tag_step(fence, c);
        }
        let known = fence.language.is_empty() || LANGUAGES.contains(&fence.language.as_str());
        let python = fence.is_python() && (c.is_alphabetic() || c == '_');
        if known && (c == '{' || python) {
            self.begin_fenced_call(&mut fence, python);
            return self.fence_call_step(fence, c);
        }
        let fits = if is_whitespace(c) {
            fence.named = true;
            known
        } else if c == '[' && known && !fence.list {
            (fence.named, fence.list) = (true, true);
            true
        } else {
            fence.language.push(c);
            !fence.named && LANGUAGES.iter().any(|language| language.starts_with(&fence.language))
        };
        if fits {
            self.state = ParserState::Fence(fence);
        } else {
            // The bracket may begin a tag.
            let bracket = fence.held.rfind('[').filter(|_| fence.list && fence.calls.is_empty());
            let again = bracket.map_or(c.len_utf8(), |at| fence.held.len() - at);
            self.release(&fence.held, again);
        }
    }

    /// Reads a character of a possible opening tag of a call.
    fn fence_tag_step(&mut self, mut fence: Box<Fence>, c: char) {
        fence.tag.push(c);
        match self.markers.find(&fence.tag, |marker| matches!(marker, Marker::CallOpen(_))) {
            MarkerMatch::Prefix => self.state = ParserState::Fence(fence),
            MarkerMatch::Full(Marker::CallOpen(opening), length) => {
                let (held, rest) =
                    fence.held.split_at(fence.held.len() - (fence.tag.len() - length));
                let readers = self.readers_after_tag(opening);
                let candidate = Candidate::fenced(held.to_owned(), readers);
                self.state = ParserState::Candidate(Box::new(candidate));
                self.feed(rest);
            }
            _ => self.release(&fence.held, fence.tag.len()),
        }
    }

    fn begin_fenced_call(&self, fence: &mut Fence, python: bool) {
        let items: Arc<[PatternItem]> = match python {
            true => {
                fence.parentheses += 1;
                let tag = |tag: &str| PatternItem::Tag(tag.to_owned());
                let arguments = PatternItem::Arguments(Encoding::Python);
                [PatternItem::Name, tag("("), arguments, tag(")")].into()
            }
            false => [PatternItem::Object(Arc::new(CallKeys::default()))].into(),
        };
        if !python && !fence.list {
            fence.envelope = Some(Box::new(Envelope::new(false)));
        }
        fence.calls.push(CallReader::new(&items, 0, &self.followers));
        fence.open = true;
    }

    fn fence_call_step(&mut self, mut fence: Box<Fence>, c: char) {
        let envelope = fence.envelope.as_mut().map(|envelope| envelope.step(c));
        if envelope == Some(ObjectProgress::Broken) {
            fence.envelope = None;
        }
        let Some(reader) = fence.calls.last_mut() else {
            return self.fence_envelope_step(fence, envelope, c);
        };
        let status = reader.step(c, &self.tools);
        let printed = fence.parentheses == 1 && reader.name() == Some("print");
        if printed && status == CallStatus::More && !self.tools.has("print") {
            fence.calls.pop();
            fence.open = false;
            self.state = ParserState::Fence(fence);
            return;
        }
        let known = reader.name().is_none_or(|name| self.tools.has(name));
        if !known
            || !reader.is_object()
            || reader.has_foreign_key()
            || matches!(status, CallStatus::Broken(_))
        {
            if envelope == Some(ObjectProgress::More) {
                fence.calls.clear();
                self.state = ParserState::Fence(fence);
                return;
            }
            return self.release(&fence.held, c.len_utf8());
        }
        if status == CallStatus::More {
            self.state = ParserState::Fence(fence);
        } else if reader.name().is_some() && !reader.lacks_arguments() {
            fence.open = false;
            // A call in Python's notation ends before its parenthesis.
            if let CallStatus::Ended(_) = status {
                fence.held.pop();
                return self.fence_end_step(fence, c);
            }
            self.state = ParserState::FenceEnd(fence);
        } else {
            self.push_text(&fence.held);
        }
    }

    /// Reads a character of an object that may contain calls.
    fn fence_envelope_step(
        &mut self,
        mut fence: Box<Fence>,
        progress: Option<ObjectProgress>,
        c: char,
    ) {
        if progress == Some(ObjectProgress::More) {
            self.state = ParserState::Fence(fence);
            return;
        }
        let envelope = fence.envelope.take().filter(|envelope| !envelope.has_content());
        match envelope.and_then(|envelope| self.calls_of(&envelope)) {
            Some(calls) if progress == Some(ObjectProgress::Closed) => {
                (fence.open, fence.calls) = (false, calls);
                self.state = ParserState::FenceEnd(fence);
            }
            _ => self.release(&fence.held, c.len_utf8()),
        }
    }

    pub(super) fn fence_end_step(&mut self, mut fence: Box<Fence>, c: char) {
        let after = fence.tail.trim_end();
        let closed = fence.is_closed();
        let fits = match c {
            // The backticks of the closing fence must be adjacent.
            '`' => closed && (!after.ends_with('`') || fence.tail.ends_with('`')),
            ')' => fence.parentheses > 0,
            ']' => fence.parentheses == 0 && fence.list && !after.contains(']'),
            ',' => fence.parentheses == 0 && fence.list && after.is_empty(),
            c => is_whitespace(c) && !fence.tail.ends_with('`'),
        };
        if !fits {
            self.note(
                "call_like_content",
                "a fenced block contains a call and more text; it was kept as text",
            );
            self.push_text(&fence.held);
            self.feed(&fence.tail);
            return self.feed(c.encode_utf8(&mut [0; 4]));
        }
        match c {
            ',' => {
                fence.held += &std::mem::take(&mut fence.tail);
                fence.held.push(c);
                self.state = ParserState::Fence(fence);
                return;
            }
            ')' => {
                fence.parentheses -= 1;
                fence.held += &std::mem::take(&mut fence.tail);
                fence.held.push(c);
            }
            _ => fence.tail.push(c),
        }
        if fence.tail.ends_with(FENCE) {
            self.commit_fence(*fence);
        } else {
            self.state = ParserState::FenceEnd(fence);
        }
    }

    pub(super) fn commit_fence(&mut self, mut fence: Fence) {
        if !fence.calls.iter_mut().all(|reader| self.passes_validator(reader)) {
            self.note(
                "call_like_content",
                "the arguments of a fenced call violate their schema; it was kept as text",
            );
            return self.push_text(&fence.text());
        }
        for mut reader in fence.calls {
            let Some(name) = reader.name().map(str::to_owned) else { continue };
            self.note("fenced_call", &format!("a fenced block was read as a call of `{name}`"));
            let index = self.commit(name, reader.id().map(str::to_owned));
            self.end_arguments(&mut reader, index);
            self.call_closed();
        }
    }
}
