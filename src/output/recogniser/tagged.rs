//! Calls between tags: from the opening tag to the closing one, or to where the text shows that there is none.

use super::{Failed, Marker, Match, Place, Recogniser, State, best, is_blank};
use crate::output::call::{CallObject, Progress};

/// An opening tag and what followed it.
#[derive(Debug)]
pub(super) struct Opened {
    /// Blanks, tag and blanks, to go back to text if no call follows.
    pub(super) held: String,
    /// The end of `held` that may be the beginning of a marker.
    pub(super) tail: String,
    pub(super) array: bool,
    pub(super) tags: usize,
}

/// An object that may be a call, or is one.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) call: CallObject,
    /// Everything since the opening tag, until the call is committed.
    pub(super) held: String,
    pub(super) tail: String,
    pub(super) array: bool,
    /// Another call stands before this one between the same tags.
    pub(super) follows: bool,
    pub(super) index: Option<usize>,
}

/// Text behind a call, until it is clear whose it is.
#[derive(Debug)]
pub(super) struct Gap {
    pub(super) held: String,
    pub(super) tail: String,
    pub(super) array: bool,
}

impl Candidate {
    pub(super) fn new(held: String, array: bool, follows: bool) -> Box<Candidate> {
        Box::new(Candidate { call: CallObject::new(), held, tail: String::new(), array, follows, index: None })
    }
}

impl Recogniser {
    pub(super) fn opened_step(&mut self, mut opened: Opened, c: char) {
        if opened.tail.is_empty() {
            if is_blank(c) {
                opened.held.push(c);
                self.state = State::Opened(opened);
                return;
            }
            if c == '[' && !opened.array {
                opened.array = true;
                opened.held.push(c);
                self.state = State::Opened(opened);
                return;
            }
            if c == '{' {
                let Opened { held, array, .. } = opened;
                if opened.tags > 1 {
                    self.note("dangling_marker", "an opening tag stands before another one and was left out");
                }
                return self.object_step(Candidate::new(held, array, false), c);
            }
        }
        opened.tail.push(c);
        match self.find_call_marker(&opened.tail) {
            Match::Whole(Marker::CallClose) => {
                self.note("empty_section", "there is nothing between the call's tags");
                self.marker_passed();
            }
            Match::Whole(_) => {
                opened.held.push_str(&std::mem::take(&mut opened.tail));
                opened.tags += 1;
                self.state = State::Opened(opened);
            }
            Match::Beginning => self.state = State::Opened(opened),
            Match::No => {
                self.failed = Failed::Silent;
                self.text_all(&opened.held);
                self.again(&opened.tail);
            }
        }
    }

    pub(super) fn object_step(&mut self, mut candidate: Box<Candidate>, c: char) {
        let at_marker = !candidate.tail.is_empty() || (!candidate.call.in_string() && self.may_open_marker(c));
        if at_marker {
            candidate.tail.push(c);
            match self.find_call_marker(&candidate.tail) {
                Match::Beginning => self.state = State::Object(candidate),
                Match::Whole(marker) => self.marker_in_object(candidate, marker),
                Match::No => {
                    let tail = std::mem::take(&mut candidate.tail);
                    let mut rest = tail.chars();
                    if let Some(first) = rest.next() {
                        self.feed_object(candidate, first);
                    }
                    self.again(rest.as_str());
                }
            }
            return;
        }
        self.feed_object(candidate, c);
    }

    /// A tag that JSON cannot contain ends the object, however incomplete it is.
    fn marker_in_object(&mut self, mut candidate: Box<Candidate>, marker: Marker) {
        let Some(index) = candidate.index else {
            self.not_a_call(&candidate, Failed::Silent);
            let tail = std::mem::take(&mut candidate.tail);
            // Not a loop: the tag is looked at as text, where it is a marker of its own.
            return self.again(&tail);
        };
        candidate.call.cut();
        self.end_arguments(&mut candidate.call, index);
        self.note("unbalanced_wrapper", "the call's object is not closed");
        self.call_closed();
        if marker == Marker::CallOpen {
            self.note("missing_end_marker", "the call has no closing tag");
            let tail = std::mem::take(&mut candidate.tail);
            self.on_marker(marker, &tail);
        }
    }

    fn feed_object(&mut self, mut candidate: Box<Candidate>, c: char) {
        let Some(format) = &self.format else { return };
        if candidate.index.is_none() {
            candidate.held.push(c);
        }
        let progress = candidate.call.step(c, format);
        if progress == Progress::Broken {
            return self.object_broken(candidate);
        }
        if candidate.index.is_none() && (candidate.call.is_ready() || progress == Progress::Closed) {
            let Some(name) = candidate.call.name().map(str::to_owned) else {
                self.note("malformed_call", "the object between the call's tags names no function");
                return self.not_a_call(&candidate, Failed::Reported);
            };
            if self.place == Place::Reasoning && !self.replaying {
                let Candidate { held, array, .. } = *candidate;
                self.state = State::Suspended(Gap { held, tail: String::new(), array });
                return;
            }
            candidate.index = Some(self.commit(name));
            candidate.held = String::new();
        }
        if let Some(index) = candidate.index {
            self.arguments(index, &candidate.call.take_arguments());
        }
        match (progress, candidate.index) {
            (Progress::Closed, Some(index)) => {
                self.end_arguments(&mut candidate.call, index);
                self.call_closed();
                let gap = Gap { held: String::new(), tail: String::new(), array: candidate.array };
                self.state = State::Closing(gap);
            }
            _ => self.state = State::Object(candidate),
        }
    }

    fn object_broken(&mut self, mut candidate: Box<Candidate>) {
        let Some(index) = candidate.index else {
            self.note("malformed_call", "the object between the call's tags is not JSON");
            return self.not_a_call(&candidate, Failed::Reported);
        };
        let rest = candidate.call.take_after();
        self.end_arguments(&mut candidate.call, index);
        self.note("unbalanced_wrapper", "the call's object is not closed");
        self.call_closed();
        self.owed_close = true;
        self.give_back(&rest);
    }

    fn not_a_call(&mut self, candidate: &Candidate, failed: Failed) {
        self.failed = failed;
        self.owed_close |= candidate.follows;
        self.give_back(&candidate.held);
    }

    pub(super) fn closing_step(&mut self, mut gap: Gap, c: char) {
        if gap.tail.is_empty() {
            if is_blank(c) || matches!(c, ',' | ';' | ']' | '}') {
                gap.held.push(c);
                self.state = State::Closing(gap);
                return;
            }
            if c == '{' {
                return self.object_step(Candidate::new(gap.held, gap.array, true), c);
            }
        }
        gap.tail.push(c);
        match self.find_call_marker(&gap.tail) {
            Match::Beginning => self.state = State::Closing(gap),
            Match::Whole(marker) => {
                self.report_gap(&gap);
                self.marker_passed();
                if marker == Marker::CallOpen {
                    self.note("missing_end_marker", "the call has no closing tag");
                    self.on_marker(marker, &gap.tail);
                }
            }
            Match::No => {
                self.leave_gap(&gap);
                self.again(&gap.tail);
            }
        }
    }

    /// No closing tag: the machine is back in text.
    pub(super) fn leave_gap(&mut self, gap: &Gap) {
        self.note("missing_end_marker", "the call has no closing tag");
        self.owed_close = true;
        let text = if gap.array { gap.held.trim_start().strip_prefix(']') } else { None };
        self.again(text.unwrap_or(&gap.held));
    }

    fn report_gap(&mut self, gap: &Gap) {
        let between = gap.held.trim();
        let expected = if gap.array { "]" } else { "" };
        if between != expected {
            self.note("unbalanced_wrapper", &format!("`{between}` between the call and its closing tag was left out"));
        }
    }

    fn may_open_marker(&self, c: char) -> bool {
        let json = c.is_ascii_alphanumeric() || is_blank(c) || "{}[]:,\"'+-._".contains(c);
        let format = self.format.as_ref();
        !json && format.is_some_and(|format| format.call_open.starts_with(c) || format.call_close.starts_with(c))
    }

    fn find_call_marker(&self, tail: &str) -> Match {
        let Some(format) = &self.format else { return Match::No };
        best(tail, [(Marker::CallOpen, &*format.call_open), (Marker::CallClose, &*format.call_close)])
    }
}
