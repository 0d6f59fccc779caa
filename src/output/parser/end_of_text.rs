//! Decides all held text at the end of the reply.

use super::ReplyParser;
use super::calls::call_reader::CallReader;
use super::calls::marker_set::Marker;
use super::context::{ParserContext, Source};
use super::states::{AfterCall, Candidate, CommittedCall, Header, ParserState, Transition};
use crate::output::format::FENCE;
use crate::output::message::Destination;

impl ReplyParser {
    /// Decides the held text. Suspended text is first parsed again, once. A call that does not end
    /// the reasoning stays reasoning if something other than the model ended the text (`early`).
    pub(super) fn end(&mut self, early: bool) {
        self.release_start();
        let mut tail = String::new();
        match std::mem::replace(&mut self.state, ParserState::text()) {
            ParserState::Text(text) => tail = text.tail,
            ParserState::Suspended(text) if !early || text.ends_reasoning => {
                self.cx.source = Source::Suspended;
                self.feed(&text.held);
                self.feed(&text.tail);
                return self.end(early);
            }
            state => {
                let transition = self.cx.end_state(state, early);
                self.follow(transition);
            }
        }
        self.leave_foreign();
        if let ParserState::Text(text) = &mut self.state {
            tail += &std::mem::take(&mut text.tail);
        }
        let cx = &mut self.cx;
        // A complete marker was held because a longer one may begin with it.
        match cx.forms.current.markers.exact(&tail) {
            Some(
                marker @ (Marker::End
                | Marker::Wrapper
                | Marker::WrapperOpen
                | Marker::ReasoningClose),
            ) => {
                self.state = cx.on_marker(marker, &tail);
            }
            _ => cx.out.push_text(&tail),
        }
        let out = &mut cx.out;
        let mut whitespace = out.take_whitespace();
        if out.preceding.removed {
            whitespace.clear();
        }
        match out.destination {
            Destination::Content => out.emit(&whitespace),
            Destination::Leftover | Destination::OtherTurn => out.leave_message(),
            Destination::Arguments(index) => {
                out.parsed.unfinished = Some(index);
                out.leave_message();
            }
            Destination::Reasoning => {
                out.emit(&whitespace);
                out.parsed.complete = false;
                if out.reasoning.opened_by_tag && out.reasoning.is_empty {
                    out.note(
                        "dangling_marker",
                        "an opening tag of reasoning at the end of the text was removed",
                    );
                } else {
                    out.note("reasoning_unclosed", "the text ends inside reasoning");
                }
            }
        }
    }

    /// Adds the call that a beginning of a text ends in, if it has the model's own tag and the name
    /// of a given tool. It has no arguments yet.
    pub(super) fn announce_call(&mut self) {
        let ParserState::Candidate(candidate) = &self.state else { return };
        let is_own = !candidate.untagged
            && !self.cx.forms.is_foreign()
            && self.cx.out.destination == Destination::Content;
        let named = || candidate.readers.iter().filter(|reader| reader.name().is_some());
        let Some(reader) = named().find(|reader| !reader.foreign).filter(|_| is_own) else {
            return;
        };
        let name = reader.name().unwrap_or_default();
        if self.cx.settings.tools.has(name) && named().all(|other| other.name() == Some(name)) {
            self.cx.commit(reader);
        }
    }
}

impl ParserContext {
    /// Decides what a state holds. Returns the text to read again.
    fn end_state(&mut self, state: ParserState, early: bool) -> Transition {
        match state {
            ParserState::Text(_) => {}
            ParserState::Header(header)
                if self.out.parsed.content.is_empty() && !header.is_marked() =>
            {
                return header.reject(self);
            }
            ParserState::Header(header) => self.end_header(header),
            ParserState::Candidate(candidate) => self.end_candidate(*candidate, early),
            ParserState::Committed(call) => self.end_committed(*call),
            ParserState::AfterCall(after) => return self.end_after_call(after),
            ParserState::Envelope(envelope) if envelope.has_calls() => self.cut_off(envelope.held),
            ParserState::Envelope(envelope) => self.out.push_text(&envelope.held),
            ParserState::Block(block) => block.end(self),
            ParserState::Suspended(text) => {
                self.out.push_text(&text.held);
                self.out.push_text(&text.tail);
            }
        }
        Transition::Stay
    }

    fn end_header(&mut self, header: Header) {
        if header.text.trim().is_empty() {
            return;
        }
        let message = "the header of a message at the end of the text was removed";
        self.out.note("dangling_marker", message);
        self.out.parsed.complete = false;
        self.out.parsed.leftover.push(header.text);
    }

    /// Decides the text after a call.
    fn end_after_call(&mut self, mut after: AfterCall) -> Transition {
        // A bracket was held because it may begin a tag.
        if after.tail.chars().all(|c| matches!(c, ']' | ')' | '}')) {
            after.held.push_str(&std::mem::take(&mut after.tail));
        }
        // The start of a closing tag does not belong to the reply.
        let tags = &self.forms.current.patterns.closing_tags;
        let closes = |tag: &String| after.tail.len() > 1 && tag.starts_with(&after.tail);
        if tags.iter().any(closes) {
            after.tail.clear();
        }
        if matches!(after.held.trim(), "" | "]" | ")" | ")]" | FENCE) {
            after.report_missing_tag(self);
            return Transition::text(after.tail);
        }
        after.leave(self).then(&after.tail)
    }

    fn end_candidate(&mut self, mut candidate: Candidate, early: bool) {
        // A call may end where its arguments would begin.
        let tools = &self.settings.tools;
        let needs_none = |reader: &CallReader| {
            reader.awaits_arguments()
                && !early
                && !candidate.untagged
                && !self.forms.is_spelled()
                && (!reader.foreign || self.forms.is_special())
                && reader.name().is_some_and(|name| tools.needs_no_arguments(name))
        };
        let called = candidate.readers.iter().position(needs_none);
        if let Some(at) = called.filter(|_| self.out.destination == Destination::Content) {
            let mut reader = candidate.readers.swap_remove(at);
            reader.omit_arguments();
            let index = self.commit(&reader);
            self.out.note("arguments_missing", "the call has no arguments");
            return self.end_call(&mut reader, index);
        }
        // Arguments that can only be emitted as a whole are now complete.
        let begins = |reader: &CallReader| {
            reader.has_begun() && !candidate.untagged && !self.needs_validation(false, reader)
        };
        let begun = candidate.readers.iter().position(begins);
        match begun.filter(|_| self.out.destination == Destination::Content) {
            Some(at) => {
                let reader = candidate.readers.swap_remove(at);
                let index = self.commit(&reader);
                self.end_committed(CommittedCall::new(reader, index, false));
            }
            None => self.end_undecided(candidate),
        }
    }

    fn end_committed(&mut self, call: CommittedCall) {
        let CommittedCall { mut reader, index, tail, .. } = call;
        let out = &mut self.out;
        if !reader.is_closed() {
            out.parsed.unfinished = Some(index);
        }
        if reader.finish() {
            let rest = reader.take_after() + &tail;
            out.end_arguments(&mut reader, index);
            out.note("unbalanced_wrapper", "the call's object is not closed");
            if !rest.trim().is_empty() {
                out.parsed.leftover.push(rest);
            }
        } else {
            out.emit_arguments(&mut reader, index);
            out.note_relaxed(&mut reader);
            out.note("truncated_call", "the text ends inside the call's arguments");
            out.parsed.complete = false;
            if !tail.is_empty() {
                out.parsed.leftover.push(tail);
            }
        }
    }

    fn end_undecided(&mut self, candidate: Candidate) {
        let own = self.forms.is_special() || candidate.readers.iter().any(|reader| !reader.foreign);
        let only_tags = candidate.is_opening_tag();
        if candidate.untagged
            || self.forms.is_spelled()
            || (!own && !only_tags && !candidate.readers.is_empty())
        {
            match self.drop_shown_end(&candidate.held) {
                Some(rest) => self.out.push_text(rest),
                None => self.out.push_text(&candidate.text()),
            }
        } else if only_tags && !candidate.is_whole_tag() {
            self.out.push_text(&candidate.text());
        } else if candidate.is_empty_list() {
            self.empty_section();
        } else if only_tags {
            let message = "an opening tag at the end of the text was removed";
            self.out.note("dangling_marker", message);
            self.out.marker_passed();
        } else {
            self.cut_off(candidate.held);
        }
    }

    /// Ends a call that the end of the text cut off before its commit point.
    fn cut_off(&mut self, held: String) {
        if self.out.destination == Destination::Reasoning {
            return self.out.push_text(&held);
        }
        self.out.note("truncated_call", "the text ends inside a call, before its arguments");
        self.out.parsed.complete = false;
        self.out.parsed.leftover.push(held);
    }
}
