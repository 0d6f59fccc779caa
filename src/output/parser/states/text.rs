//! Content and reasoning, and the markers in them.

use super::{
    BlockOpening, CallBlock, Candidate, Header, ParserState, SuspendedText, TextState, Transition,
};
use crate::output::format::FENCE;
use crate::output::message::Destination;
use crate::output::parser::calls::MALFORMED;
use crate::output::parser::calls::call_reader::CallReader;
use crate::output::parser::calls::envelope::Envelope;
use crate::output::parser::calls::marker_set::{Marker, MarkerMatch};
use crate::output::parser::context::{FailedOpening, ParserContext, Source};

impl TextState {
    pub(super) fn step(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        let markers = &cx.forms.current.markers;
        let may_begin = markers.may_begin(c);
        let may_begin_line = markers.may_begin_line(c);
        if self.tail.is_empty() {
            if c == '{' && cx.may_open_envelope() {
                let envelope = Envelope::new(cx.settings.envelope);
                return Transition::To(ParserState::Envelope(Box::new(envelope)), c.into());
            }
            if !may_begin && let Some(state) = cx.open_without_tag(c) {
                return Transition::To(state, c.into());
            }
            if !(may_begin || cx.out.preceding.line_start && may_begin_line) {
                cx.out.push_char(c);
                return Transition::Stay;
            }
        }
        self.tail.push(c);
        let markers = &cx.forms.current.markers;
        let content = cx.out.destination == Destination::Content;
        let in_message = content || cx.out.destination == Destination::Reasoning;
        let is_model = cx.source != Source::Prompt;
        let opens_answer = content || in_message && cx.out.preceding.line_start && is_model;
        let fence = in_message && cx.out.preceding.line_start && cx.calls_allowed();
        let found = markers.find(&self.tail, |marker| match marker {
            Marker::CallClose | Marker::Wrapper => content,
            Marker::WrapperOpen => opens_answer,
            Marker::Fence => fence,
            _ => true,
        });
        match found {
            MarkerMatch::Prefix => Transition::Stay,
            MarkerMatch::Full(marker, length) => {
                let (text, again) = self.tail.split_at(length);
                Transition::To(cx.on_marker(marker, text), again.to_owned())
            }
            MarkerMatch::None => {
                let mut again = std::mem::take(&mut self.tail);
                if let Some(first) = again.chars().next() {
                    if let Some(state) = cx.open_without_tag(first) {
                        return Transition::To(state, again);
                    }
                    cx.out.push_char(first);
                    again.drain(..first.len_utf8());
                }
                Transition::Again(again)
            }
        }
    }
}

impl ParserContext {
    /// Starts a possible call that has no tag, or a block of such calls, if it may begin with this
    /// character. The character is read again.
    pub(super) fn open_without_tag(&mut self, c: char) -> Option<ParserState> {
        if self.may_open_untagged(c) {
            return Some(self.open_untagged(c));
        }
        if self.settings.untagged_calls && self.may_open_block(BlockOpening::Bare) {
            let readers = self.forms.readers_without_tag(c, &self.settings.tools);
            if !readers.is_empty() {
                return Some(self.untagged_candidate(readers));
            }
        }
        let opening = match c {
            '{' | '[' => BlockOpening::Bare,
            '<' => BlockOpening::Element,
            _ => return None,
        };
        self.may_open_block(opening).then(|| {
            let held = self.out.take_whitespace();
            ParserState::Block(Box::new(CallBlock::new(opening, held, false)))
        })
    }

    /// Whether calls without tags may begin here in this way: at the start of a line outside of
    /// code. Calls of a format without tags may begin anywhere.
    fn may_open_block(&self, opening: BlockOpening) -> bool {
        let settings = &self.settings;
        if !self.calls_allowed() || self.out.destination != Destination::Content {
            return false;
        }
        if opening == BlockOpening::Bare && self.forms.current.patterns.untagged {
            return true;
        }
        let of_format = settings.untagged && self.out.is_empty() && opening == BlockOpening::Bare;
        (settings.untagged_calls || of_format)
            && !(settings.json || settings.own_calls_only)
            && self.out.preceding.line_start
            && !self.out.preceding.code.is_fenced()
    }

    /// Starts a possible call in a format whose calls have no tag.
    fn open_untagged(&mut self, c: char) -> ParserState {
        let first = self.out.is_empty();
        let mut readers = self.forms.readers_of_next_call(c, None, first);
        if readers.is_empty() {
            // The format's own calls are not objects, so an object is accepted if another pattern
            // matches it.
            readers.extend(self.forms.object_reader());
        }
        self.untagged_candidate(readers)
    }

    fn untagged_candidate(&mut self, readers: Vec<CallReader>) -> ParserState {
        let candidate = Candidate::new(self.out.take_whitespace(), readers);
        ParserState::Candidate(Box::new(Candidate { untagged: true, ..candidate }))
    }

    /// Handles a marker in text, or one that ended another state.
    pub(crate) fn on_marker(&mut self, marker: Marker, text: &str) -> ParserState {
        use Destination::{Arguments, Content, Leftover, OtherTurn, Reasoning};
        match (self.out.destination, marker) {
            (OtherTurn, Marker::End | Marker::Turn | Marker::OtherTurn)
            | (
                Leftover | Arguments(_),
                Marker::End | Marker::Turn | Marker::OtherTurn | Marker::Header,
            ) => {
                self.out.leave_message();
                return self.on_marker(marker, text);
            }
            (Leftover | Arguments(_) | OtherTurn, _) => self.out.push_text(text),
            (_, Marker::CallOpen(index)) if self.calls_allowed() => {
                let held = self.out.take_whitespace() + text;
                return ParserState::candidate(held, self.forms.readers_after_tag(index));
            }
            (_, Marker::CallOpen(_)) => {
                self.out.push_text(text);
                self.out.preceding.call_tag_as_text = true;
            }
            (_, Marker::ForeignOpen(index)) => return self.open_foreign(index, text),
            (_, Marker::CallClose) => self.stray_close(text),
            (_, Marker::Fence) if std::mem::take(&mut self.out.preceding.call_in_fence) => {
                self.out.enclosing_marker_passed()
            }
            (_, Marker::Fence) => {
                let held = self.out.take_whitespace() + text;
                let in_code = self.out.preceding.code.is_fenced();
                let block = CallBlock::new(BlockOpening::Fence, held, in_code);
                return ParserState::Block(Box::new(block));
            }
            (Reasoning, Marker::WrapperOpen) if self.source == Source::Suspended => {
                let message = format!("`{text}` begins the answer inside reasoning");
                self.out.note("reasoning_unclosed", &message);
                self.close_reasoning();
            }
            (Reasoning, Marker::WrapperOpen) => {
                let held = self.out.take_whitespace() + text;
                let text = SuspendedText { held, tail: String::new(), ends_reasoning: true };
                return ParserState::Suspended(text);
            }
            (_, Marker::Wrapper | Marker::WrapperOpen) => {
                if marker == Marker::WrapperOpen {
                    // The answer begins, so a block that the prompt opened stays empty.
                    self.out.kept_opening = None;
                }
                self.out.marker_passed();
            }
            (_, Marker::End) => self.message_ended(text),
            (_, Marker::Turn) => return self.open_header("", text),
            (_, Marker::OtherTurn) => self.open_other_turn(text),
            (_, Marker::Header) => return self.open_header(text, ""),
            (Content, Marker::ReasoningOpen) => {
                let tags = self.settings.reasoning();
                let has_several = tags.is_some_and(|tags| !tags.others.is_empty());
                if !self.out.is_empty() || self.out.parsed.reasoning.is_some() && !has_several {
                    let message = "reasoning opens after the answer has begun";
                    self.out.note("reasoning_reopened", message);
                }
                self.out.reasoning.opened_by_tag = true;
                self.out.begin_reasoning();
            }
            (Reasoning, Marker::ReasoningOpen) if self.out.reasoning.is_empty => {
                let is_control = self.out.controls.contains(text);
                let block = &mut self.out.reasoning;
                block.opened_twice = !block.opened_by_tag && !self.turn_repeated && !is_control;
                self.out.marker_passed();
            }
            (Reasoning, Marker::ReasoningClose) => self.close_reasoning(),
            (Content, Marker::ReasoningClose) => self.stray_reasoning_close(text),
            (Reasoning, _) => self.out.push_text(text),
        }
        ParserState::text()
    }

    /// Starts the header of a message. `before` becomes text if it is not a header.
    fn open_header(&mut self, text: &str, before: &str) -> ParserState {
        let before = self.out.take_whitespace() + before;
        self.out.preceding.marker = true;
        ParserState::Header(Header { before, text: text.to_owned(), primed: false })
    }

    /// Starts a call at an opening tag of another family, or treats the tag as text. A tag that is
    /// only spelled in text does not count in code or inside JSON.
    fn open_foreign(&mut self, opening: usize, tag: &str) -> ParserState {
        let special = self.settings.is_special(tag);
        let in_json = self.settings.json && !self.out.parsed.content.is_empty();
        let is_text = !special && (self.out.preceding.code.is_open() || in_json);
        if !self.calls_allowed() || self.settings.own_calls_only || is_text {
            match self.forms.current.markers.is_shadowed_end(tag) {
                true => self.message_ended(tag),
                false => self.out.push_text(tag),
            }
            return ParserState::text();
        }
        let held = self.out.take_whitespace() + tag;
        self.open_form(opening, held, tag, None)
    }

    /// Handles a message of another role, which is not part of the reply. In the middle of a
    /// message the marker is text.
    fn open_other_turn(&mut self, text: &str) {
        if self.out.preceding.marker && self.source != Source::Prompt {
            self.out.note_next_turn();
            self.out.begin_leftover(Destination::OtherTurn);
        }
        self.out.push_text(text);
    }

    /// Handles a closing tag of reasoning in content.
    fn stray_reasoning_close(&mut self, text: &str) {
        let close_only = self.settings.reasoning().is_some_and(|tags| tags.close_only);
        let expected = close_only && self.out.parsed.content.is_empty();
        if self.settings.close_is_end || self.source == Source::Prompt || expected {
            return self.out.marker_passed();
        }
        let what = if close_only { "removed" } else { "kept as text" };
        if close_only {
            self.out.marker_passed();
        } else {
            self.out.push_text(text);
        }
        self.out.note("stray_end_marker", &format!("`{text}` closes nothing and was {what}"));
    }

    /// Handles a closing tag of a call in content.
    fn stray_close(&mut self, text: &str) {
        if std::mem::take(&mut self.pending_close) {
            return self.out.enclosing_marker_passed();
        }
        self.out.push_text(text);
        // A fence is common in ordinary text.
        if !self.calls_allowed() || text == FENCE {
            return;
        }
        match std::mem::replace(&mut self.failed_opening, FailedOpening::None) {
            FailedOpening::None => {
                let message = format!("`{text}` closes nothing and was kept as text");
                self.out.note("stray_end_marker", &message);
            }
            FailedOpening::Silent => {
                self.out.note(MALFORMED, "the text between the call's tags is not a call")
            }
            FailedOpening::Reported => {}
        }
    }
}

impl SuspendedText {
    pub(super) fn step(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        let SuspendedText { held, tail, .. } = self;
        tail.push(c);
        let tags: Vec<_> =
            cx.settings.reasoning().into_iter().flat_map(|it| it.closings()).collect();
        let ends = cx.settings.channels.as_ref().map_or(&[][..], |channels| &*channels.ends);
        let may_close =
            |tail: &str| tags.iter().copied().chain(ends).any(|closing| closing.starts_with(tail));
        while !tail.is_empty() && !may_close(tail) {
            held.push(tail.remove(0));
        }
        let closes = !tail.is_empty() && tags.iter().any(|closing| *closing == tail);
        if !closes && (tail.is_empty() || !ends.iter().any(|end| end == tail)) {
            return Transition::Stay;
        }
        cx.out.push_text(held);
        if closes {
            cx.close_reasoning();
        } else {
            cx.message_ended(tail);
        }
        Transition::text("")
    }
}
