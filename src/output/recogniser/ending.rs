//! The end of the text: whatever is still held is decided now.

use super::tagged::Candidate;
use super::{Place, Recogniser, State};
use crate::output::call::{CallObject, Kind, Progress};

impl Recogniser {
    /// Decides what is held. What was suspended is read again first, once.
    pub(super) fn end(&mut self) {
        match std::mem::replace(&mut self.state, State::Text) {
            State::Text => {}
            State::Opened(opened) => {
                if opened.array || !opened.tail.is_empty() {
                    self.cut_off(opened.held + &opened.tail);
                } else {
                    self.note("dangling_marker", "an opening tag at the end of the text was left out");
                    self.marker_passed();
                }
            }
            State::Object(candidate) => self.end_object(candidate),
            State::Closing(gap) => {
                let rest = gap.held.trim();
                let expected = if gap.array { "]" } else { "" };
                if rest.is_empty() || rest == expected {
                    self.note("missing_end_marker", "the call has no closing tag");
                } else {
                    self.leave_gap(&gap);
                }
                self.again(&gap.tail);
            }
            State::Envelope(envelope) if envelope.has_calls() => self.cut_off(envelope.held),
            State::Envelope(envelope) => self.text_all(&envelope.held),
            State::Fence(fence) => self.text_all(&fence.held),
            State::FenceObject(candidate) => self.text_all(&candidate.held),
            State::FenceEnd(candidate) => {
                self.note("missing_end_marker", "the fenced call's block is not closed");
                self.commit_fence(candidate);
            }
            State::Suspended(gap) => {
                self.replaying = true;
                self.again(&gap.held);
                self.again(&gap.tail);
                return self.end();
            }
        }
        let tail = std::mem::take(&mut self.tail);
        self.text_all(&tail);
        let blanks = std::mem::take(&mut self.blanks);
        self.emit(&blanks);
        if self.place == Place::Reasoning {
            self.parsed.complete = false;
            if self.opened_by_tag && self.block_empty {
                self.note("dangling_marker", "a reasoning tag at the end of the text was left out");
            } else {
                self.note("reasoning_unclosed", "the text ends inside reasoning");
            }
        }
    }

    fn end_object(&mut self, mut candidate: Box<Candidate>) {
        let tail = std::mem::take(&mut candidate.tail);
        let begun = candidate.call.kind().is_some() && !candidate.call.arguments_complete();
        let name = candidate.call.name().map(str::to_owned);
        if candidate.index.is_none() && begun && self.place == Place::Content {
            // The arguments are text inside a string, which is shown only as a whole; here this is the whole.
            candidate.index = name.map(|name| self.commit(name));
        }
        let Some(index) = candidate.index else {
            return self.cut_off(candidate.held + &tail);
        };
        if candidate.call.arguments_complete() {
            let rest = candidate.call.take_after() + &tail;
            self.end_arguments(&mut candidate.call, index);
            self.note("unbalanced_wrapper", "the call's object is not closed");
            if !rest.trim().is_empty() {
                self.parsed.leftover.push(rest);
            }
        } else {
            candidate.call.cut();
            self.arguments(index, &candidate.call.take_arguments());
            self.note_relaxed(&candidate.call);
            self.note("truncated_call", "the text ends inside the call's arguments");
            self.parsed.complete = false;
            if !tail.is_empty() {
                self.parsed.leftover.push(tail);
            }
        }
    }

    /// A call that ends before it can be told to be one.
    fn cut_off(&mut self, held: String) {
        if self.place == Place::Reasoning {
            return self.text_all(&held);
        }
        self.note("truncated_call", "the text ends inside a call, before its arguments");
        self.parsed.complete = false;
        self.parsed.leftover.push(held);
    }

    /// A reply that is nothing but a call without its tags stays text, but is worth a word.
    pub(super) fn report_bare_call(&mut self) {
        let content = self.parsed.content.trim();
        let (true, true, Some(format)) = (self.calls_allowed, content.starts_with('{'), &self.format) else { return };
        let mut call = CallObject::new();
        let mut progress = Progress::More;
        for c in content.chars() {
            if progress != Progress::More {
                return;
            }
            progress = call.step(c, format);
            call.take_arguments();
        }
        let given = call.name().is_some_and(|name| self.tools.contains(name));
        if progress == Progress::Closed && given && call.kind() == Some(Kind::Object) {
            self.note("call_like_content", "the reply is a call without its tags; it was kept as text");
        }
    }
}
