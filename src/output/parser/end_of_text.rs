//! Decides all held text at the end of the reply.

use std::sync::Arc;

use super::after_call::AfterCall;
use super::call_object::{CallObject, ObjectProgress};
use super::call_patterns::PatternItem;
use super::call_reader::CallReader;
use super::candidate::Candidate;
use super::committed::CommittedCall;
use super::marker_set::Marker;
use super::{Destination, FENCE, ParserState, ReplyParser};
use crate::output::read::JsonKind;

impl ReplyParser {
    /// Decides the held text. Suspended text is first parsed again, once.
    pub(super) fn end(&mut self) {
        self.end_kept_opening();
        match std::mem::replace(&mut self.state, ParserState::Text) {
            ParserState::Text => {}
            ParserState::Header(header)
                if self.parsed.content.is_empty() && !header.is_marked() =>
            {
                self.not_a_header(&header)
            }
            ParserState::Header(header) => {
                if let Some(text) = header.into_text() {
                    self.note(
                        "dangling_marker",
                        "the header of a message at the end of the text was removed",
                    );
                    self.parsed.complete = false;
                    self.parsed.leftover.push(text);
                }
            }
            ParserState::Candidate(candidate) => self.end_candidate(*candidate),
            ParserState::Committed(call) => self.end_committed(*call),
            ParserState::AfterCall(after) => self.end_after_call(after),
            ParserState::Envelope(envelope) if envelope.has_calls() => self.cut_off(envelope.held),
            ParserState::Envelope(envelope) => self.push_text(&envelope.held),
            ParserState::Fence(fence) => self.push_text(&fence.held),
            ParserState::FenceEnd(fence) if !fence.is_closed() => self.push_text(&fence.text()),
            ParserState::FenceEnd(fence) => {
                self.note("missing_end_marker", "the fenced block of the call is not closed");
                self.commit_fence(*fence);
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
        self.leave_foreign();
        let tail = std::mem::take(&mut self.tail);
        // A complete marker was held because a longer one may begin with it.
        match self.markers.exact(&tail) {
            Some(marker @ (Marker::End | Marker::Wrapper | Marker::ReasoningClose)) => {
                self.on_marker(marker, &tail)
            }
            _ => self.push_text(&tail),
        }
        let mut whitespace = std::mem::take(&mut self.whitespace);
        if self.after_removed {
            whitespace.clear();
        }
        match self.destination {
            Destination::Content | Destination::Reasoning => self.emit(&whitespace),
            Destination::Leftover => self.leave_message(),
            Destination::Arguments(index) => {
                self.parsed.unfinished = Some(index);
                self.leave_message();
            }
        }
        if self.destination == Destination::Reasoning {
            self.parsed.complete = false;
            if self.opened_by_tag && self.block_empty {
                self.note(
                    "dangling_marker",
                    "an opening tag of reasoning at the end of the text was removed",
                );
            } else {
                self.note("reasoning_unclosed", "the text ends inside reasoning");
            }
        }
    }

    /// Decides the text after a call.
    fn end_after_call(&mut self, mut after: AfterCall) {
        // A bracket was held because it may begin a tag.
        if after.tail.chars().all(|c| matches!(c, ']' | ')' | '}')) {
            after.held.push_str(&std::mem::take(&mut after.tail));
        }
        let rest = after.held.trim();
        // The start of a closing tag does not belong to the reply.
        let tags = &self.patterns.closing_tags;
        let closes = |tag: &String| after.tail.len() > 1 && tag.starts_with(&after.tail);
        if tags.iter().any(closes) {
            after.tail.clear();
        }
        if !matches!(rest, "" | "]" | ")" | ")]" | FENCE) {
            self.leave_after_call(&after);
        } else if after.lacks_closing_tag() {
            self.note("missing_end_marker", "the call has no closing tag");
        }
        self.feed(&after.tail);
    }

    fn end_candidate(&mut self, mut candidate: Candidate) {
        // Arguments that can only be emitted as a whole are now complete.
        let begins = |reader: &CallReader| {
            reader.has_begun() && !candidate.untagged && !self.needs_validation(false, reader)
        };
        let begun = candidate.readers.iter().position(begins);
        match begun.filter(|_| self.destination == Destination::Content) {
            Some(at) => {
                let reader = candidate.readers.swap_remove(at);
                let name = reader.name().unwrap_or_default().to_owned();
                let index = self.commit(name, reader.id().map(str::to_owned));
                self.end_committed(CommittedCall::new(reader, index, false));
            }
            None => self.end_undecided(&candidate),
        }
    }

    fn end_committed(&mut self, call: CommittedCall) {
        let CommittedCall { mut reader, index, tail, .. } = call;
        if !reader.is_closed() {
            self.parsed.unfinished = Some(index);
        }
        if reader.finish() {
            let rest = reader.take_after() + &tail;
            self.end_arguments(&mut reader, index);
            self.note("unbalanced_wrapper", "the call's object is not closed");
            if !rest.trim().is_empty() {
                self.parsed.leftover.push(rest);
            }
        } else {
            self.emit_read_arguments(&mut reader, index);
            self.note_relaxed(&mut reader);
            self.note("truncated_call", "the text ends inside the call's arguments");
            self.parsed.complete = false;
            if !tail.is_empty() {
                self.parsed.leftover.push(tail);
            }
        }
    }

    fn end_undecided(&mut self, candidate: &Candidate) {
        let special = self.foreign.as_ref().is_some_and(|foreign| foreign.special);
        let own = special || candidate.readers.iter().any(|reader| !reader.foreign);
        if candidate.untagged
            || self.is_spelled()
            || (!own && !candidate.is_opening_tag() && !candidate.readers.is_empty())
        {
            let rest = self.drop_shown_end(&candidate.held);
            return self.push_text(&rest.unwrap_or_else(|| candidate.text()));
        }
        if candidate.is_opening_tag() && !candidate.is_whole_tag() {
            return self.push_text(&candidate.text());
        }
        if candidate.is_empty_list() {
            return self.empty_section();
        }
        if candidate.is_opening_tag() {
            self.note("dangling_marker", "an opening tag at the end of the text was removed");
            return self.marker_passed();
        }
        self.cut_off(candidate.held.clone());
    }

    /// Ends a call that the end of the text cut off before its commit point.
    fn cut_off(&mut self, held: String) {
        if self.destination == Destination::Reasoning {
            return self.push_text(&held);
        }
        self.note("truncated_call", "the text ends inside a call, before its arguments");
        self.parsed.complete = false;
        self.parsed.leftover.push(held);
    }

    /// Reports a reply that is a call without its tags. It stays text.
    pub(super) fn report_untagged_call(&mut self) {
        let content = self.parsed.content.trim();
        if !self.calls_allowed || !content.starts_with('{') {
            return;
        }
        let mut items = self.patterns.list.iter().flat_map(|pattern| pattern.items.iter());
        let own = items.find_map(|item| match item {
            PatternItem::Object(keys) => Some(Arc::clone(keys)),
            _ => None,
        });
        let keys = own.unwrap_or_default();
        let mut call = CallObject::default();
        let mut progress = ObjectProgress::More;
        for c in content.chars() {
            if progress != ObjectProgress::More {
                return;
            }
            progress = call.step(c, &keys, |_| false);
        }
        if progress == ObjectProgress::Closed
            && call.name().is_some()
            && call.kind() == Some(JsonKind::Object)
        {
            self.note("call_like_content", "the reply is a call without tags; it was kept as text");
        }
    }
}
