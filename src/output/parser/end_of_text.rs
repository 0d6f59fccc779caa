//! The end of the text: whatever is still held is decided now.

use std::sync::Arc;

use super::call_patterns::PatternItem;
use super::call_reader::CallReader;
use super::candidate::Candidate;
use super::{Destination, Marker, ParserState, ReplyParser};
use crate::output::parser::call_object::{ArgumentsKind, CallKeys, CallObject, ObjectProgress};

impl ReplyParser {
    /// Decides what is held. What was suspended is read again first, once.
    pub(super) fn end(&mut self) {
        match std::mem::replace(&mut self.state, ParserState::Text) {
            ParserState::Text => {}
            ParserState::Header(header)
                if self.parsed.content.is_empty() && !header.is_marked() =>
            {
                self.not_a_header(&header)
            }
            ParserState::Header(header) => self.parsed.leftover.extend(header.into_text()),
            ParserState::Call(candidate) => self.end_call(candidate),
            ParserState::AfterCall(mut gap) => {
                // A bracket that might have begun a tag.
                if gap.tail.chars().all(|c| matches!(c, ']' | ')' | '}')) {
                    gap.held.push_str(&std::mem::take(&mut gap.tail));
                }
                let rest = gap.held.trim();
                if rest.is_empty() || matches!(rest, "]" | ")" | ")]") {
                    if gap.owes_close() {
                        self.note("missing_end_marker", "the call has no closing tag");
                    }
                } else {
                    self.leave_after_call(&gap);
                }
                self.feed(&gap.tail);
            }
            ParserState::Envelope(envelope) if envelope.has_calls() => self.cut_off(envelope.held),
            ParserState::Envelope(envelope) => self.push_text(&envelope.held),
            ParserState::Fence(fence) => self.push_text(&fence.held),
            ParserState::FenceEnd(fence) => {
                self.note("missing_end_marker", "the fenced call's block is not closed");
                self.commit_fence(fence);
            }
            ParserState::Suspended { held, tail } if self.early => {
                self.push_text(&held);
                self.push_text(&tail);
            }
            ParserState::Suspended { held, tail } => {
                self.replaying = true;
                self.feed(&held);
                self.feed(&tail);
                return self.end();
            }
        }
        let tail = std::mem::take(&mut self.tail);
        // It waited for the rest of a longer marker.
        match self.markers.exact(&tail) {
            Some(marker @ (Marker::End | Marker::Wrapper | Marker::ReasoningClose)) => {
                self.on_marker(marker, &tail)
            }
            Some(Marker::Fence) if self.in_fence => self.on_marker(Marker::Fence, &tail),
            _ => self.push_text(&tail),
        }
        let blanks = std::mem::take(&mut self.whitespace);
        match self.destination {
            Destination::Content | Destination::Reasoning => self.emit(&blanks),
            Destination::Elsewhere => self.leave_message(),
            Destination::Arguments(index) => {
                self.parsed.unfinished = Some(index);
                self.leave_message();
            }
        }
        if self.destination == Destination::Reasoning {
            self.parsed.complete = false;
            if self.opened_by_tag && self.block_empty {
                self.note("dangling_marker", "a reasoning tag at the end of the text was left out");
            } else {
                self.note("reasoning_unclosed", "the text ends inside reasoning");
            }
        }
    }

    fn end_call(&mut self, mut candidate: Box<Candidate>) {
        let tail = std::mem::take(&mut candidate.tail);
        if candidate.index.is_none() && self.destination == Destination::Content {
            // Arguments that are shown only as a whole: here this is the whole.
            let begins = |reader: &CallReader| {
                reader.has_begun() && !candidate.is_bare() && !self.needs_validation(false, reader)
            };
            let begun = candidate.readers.iter().position(begins);
            if let Some(at) = begun {
                candidate.readers.swap(0, at);
                let (name, id) = (
                    candidate.readers[0].name().map(str::to_owned),
                    candidate.readers[0].id().map(str::to_owned),
                );
                candidate.index = name.map(|name| self.commit(name, id));
            }
        }
        let (Some(index), Some(reader)) = (candidate.index, candidate.readers.first_mut()) else {
            return self.end_undecided(&candidate);
        };
        if !reader.is_closed() {
            self.parsed.unfinished = Some(index);
        }
        if reader.finish() {
            let rest = reader.take_after() + &tail;
            self.end_arguments(reader, index);
            self.note("unbalanced_wrapper", "the call's object is not closed");
            if !rest.trim().is_empty() {
                self.parsed.leftover.push(rest);
            }
        } else {
            let fragment = reader.take_arguments();
            self.emit_arguments(index, &fragment);
            self.note_relaxed(reader);
            self.note("truncated_call", "the text ends inside the call's arguments");
            self.parsed.complete = false;
            if !tail.is_empty() {
                self.parsed.leftover.push(tail);
            }
        }
    }

    fn end_undecided(&mut self, candidate: &Candidate) {
        let own = candidate.readers.iter().any(|reader| !reader.foreign);
        if candidate.is_bare()
            || (!own && !candidate.is_opening_tag() && !candidate.readers.is_empty())
        {
            return self.push_text(&candidate.text());
        }
        if candidate.is_opening_tag() && !candidate.is_whole_tag() {
            return self.push_text(&candidate.text());
        }
        if candidate.is_opening_tag() {
            self.note("dangling_marker", "an opening tag at the end of the text was left out");
            return self.marker_passed();
        }
        self.cut_off(candidate.held.clone());
    }

    /// A call that ends before it can be told to be one.
    fn cut_off(&mut self, held: String) {
        if self.destination == Destination::Reasoning {
            return self.push_text(&held);
        }
        self.note("truncated_call", "the text ends inside a call, before its arguments");
        self.parsed.complete = false;
        self.parsed.leftover.push(held);
    }

    /// A reply that is nothing but a call without its tags stays text, but is worth a word.
    pub(super) fn report_untagged_call(&mut self) {
        let content = self.parsed.content.trim();
        if !self.calls_allowed || !content.starts_with('{') {
            return;
        }
        let own = self.patterns.list.iter().flat_map(|shape| shape.items.iter()).find_map(|item| {
            match item {
                PatternItem::Object(keys) => Some(Arc::clone(keys)),
                _ => None,
            }
        });
        let keys = own.unwrap_or_else(|| Arc::new(CallKeys::default()));
        let mut call = CallObject::default();
        let mut progress = ObjectProgress::More;
        for c in content.chars() {
            if progress != ObjectProgress::More {
                return;
            }
            progress = call.step(c, &keys);
            call.take_arguments();
        }
        if progress == ObjectProgress::Closed
            && call.name().is_some()
            && call.kind() == Some(ArgumentsKind::Object)
        {
            self.note(
                "call_like_content",
                "the reply is a call without its tags; it was kept as text",
            );
        }
    }
}
