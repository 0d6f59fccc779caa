//! Text that may be a call, until the commit point or until it can no longer be a call.
//!
//! All patterns that a call can have after the opening tag are read in parallel. The first pattern
//! that has read the name and the start of the arguments wins. If no pattern remains, the text
//! stays text.

use super::committed::without_closing;
use super::{AfterCall, Candidate, CommittedCall, ParserState, SuspendedText, Transition};
use crate::output::message::Destination;
use crate::output::parser::calls::call_reader::CallReader;
use crate::output::parser::calls::marker_set::{Marker, MarkerMatch};
use crate::output::parser::calls::{CALL_LIKE, MALFORMED};
use crate::output::parser::context::{FailedOpening, ParserContext, Source};
use crate::output::read::ReadStep;
use crate::output::read::json_scanner::is_whitespace;

/// The maximum length of a tag.
const MAX_TAG: usize = 128;

impl Candidate {
    pub(super) fn new(held: String, readers: Vec<CallReader>) -> Candidate {
        Candidate { held, readers, tags: 1, ..Candidate::default() }
    }

    /// A possible call after another call.
    pub(super) fn after(call: &mut AfterCall, readers: Vec<CallReader>) -> Candidate {
        Candidate {
            untagged: call.untagged,
            after_open_call: call.has_closing_tag,
            gap: call.held.len(),
            ..Candidate::new(std::mem::take(&mut call.held), readers)
        }
    }

    /// The held text as content. Brackets that close the previous call are removed.
    pub(crate) fn text(&self) -> String {
        if self.gap == 0 {
            return self.held.clone();
        }
        let (gap, rest) = self.held.split_at(self.gap);
        without_closing(gap).to_owned() + rest
    }

    /// Whether an empty list follows the opening tags, and nothing else.
    pub(crate) fn is_empty_list(&self) -> bool {
        !self.after_tag.trim().is_empty() && without_empty_list(&self.after_tag).is_empty()
    }

    /// Whether the text consists of complete tags only.
    pub(crate) fn is_whole_tag(&self) -> bool {
        self.is_opening_tag() && self.held.trim_end().ends_with(['>', ']'])
    }

    /// Whether nothing follows the opening tags.
    pub(crate) fn is_opening_tag(&self) -> bool {
        self.after_tag.is_empty()
    }

    pub(super) fn step(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        self.held.push(c);
        if self.after_tag.len() < MAX_TAG && !(self.after_tag.is_empty() && is_whitespace(c)) {
            self.after_tag.push(c);
        }
        let lacks_tag = self.lacks_tag(cx);
        let mut again = c.len_utf8();
        let mut at = 0;
        while at < self.readers.len() {
            let reader = &mut self.readers[at];
            let status = reader.step(c, &cx.settings.tools);
            if let ReadStep::Broken(bytes) = status {
                again = again.max(bytes);
            }
            if !cx.is_possible(reader, &status, self.untagged) {
                self.readers.remove(at);
                continue;
            }
            // If the grammar did not constrain the call, the whole call is validated.
            let unconstrained = lacks_tag || cx.needs_validation(self.untagged, reader);
            let validate = |reader: &mut CallReader| match lacks_tag {
                true => cx.settings.validate_untagged(reader),
                false => cx.settings.validate(reader),
            };
            if unconstrained
                && status != ReadStep::More
                && let Err(because) = validate(reader)
            {
                self.misfit = Some(because);
                if let ReadStep::Ended(rest) = &status {
                    again = again.max(rest.len());
                }
                self.readers.remove(at);
                continue;
            }
            if status != ReadStep::More || (reader.is_ready() && !unconstrained) {
                return self.accept(at, status, cx);
            }
            at += 1;
        }
        if self.readers.is_empty() {
            return self.reject(again, cx);
        }
        self.open_inner(cx);
        Transition::Stay
    }

    /// Whether the opening tag is missing that the format's calls have. The call then counts only as
    /// a whole.
    fn lacks_tag(&self, cx: &ParserContext) -> bool {
        self.untagged && !cx.forms.current.patterns.untagged
    }

    /// Reads the text after a second opening tag also as a call with that tag, because a model may
    /// write another family's call between its own tags.
    fn open_inner(&mut self, cx: &ParserContext) {
        let mut openings = cx.forms.current.patterns.opening_tags.iter();
        let opening = openings.find(|opening| opening.tag == self.after_tag);
        for (pattern, at) in opening.iter().flat_map(|opening| &opening.starts) {
            if !self.readers.iter().any(|reader| reader.pattern == Some(*pattern)) {
                self.readers.push(cx.forms.reader(*pattern, *at));
            }
        }
    }

    /// Handles text that is a call according to this reader.
    fn accept(&mut self, winner: usize, status: ReadStep, cx: &mut ParserContext) -> Transition {
        let reader = self.readers.swap_remove(winner);
        if cx.out.destination == Destination::Reasoning && cx.source != Source::Suspended {
            let ends_reasoning = cx.settings.calls_end_reasoning()
                && !cx.forms.is_foreign()
                && cx.settings.tools.has(reader.name().unwrap_or_default());
            if !(ends_reasoning && cx.settings.is_constrained_from(&self.held)) {
                let held = std::mem::take(&mut self.held);
                let text = SuspendedText { held, tail: String::new(), ends_reasoning };
                return Transition::to(ParserState::Suspended(text));
            }
        }
        cx.out.preceding.call_in_fence |= self.fenced;
        if self.tags > 1 {
            cx.out.note("dangling_marker", "a repeated opening tag was removed");
        }
        if self.lacks_tag(cx) {
            let name = reader.name().unwrap_or_default();
            cx.out.note("untagged_call", &format!("a call of `{name}` was read without its tags"));
        }
        if cx.forms.is_foreign() {
            cx.note_foreign(reader.pattern);
        } else if reader.foreign {
            let message = "the call is in the form of another family of models";
            cx.out.note("foreign_family", message);
        }
        let index = cx.commit(&reader);
        let mut call = CommittedCall::new(reader, index, self.untagged);
        match call.after_reader_step(status, cx) {
            Transition::Stay => Transition::to(ParserState::Committed(Box::new(call))),
            transition => transition,
        }
    }

    /// Handles text that is not a call. It is an empty section, another opening tag, the start of a
    /// tag, or plain text.
    fn reject(&mut self, again: usize, cx: &mut ParserContext) -> Transition {
        let after = without_empty_list(&self.after_tag);
        let form = &cx.forms.current;
        let spelled = cx.forms.is_spelled();
        if !spelled && form.patterns.closing_tags.iter().any(|closing| closing == after) {
            cx.empty_section();
            return Transition::text("");
        }
        let is_opening =
            |marker: Marker| matches!(marker, Marker::ForeignOpen(_) | Marker::CallOpen(_));
        let is_own = !cx.forms.is_foreign() && !self.untagged;
        if is_own && !cx.settings.own_calls_only && self.after_tag.len() < MAX_TAG {
            match form.markers.find(after, is_opening) {
                MarkerMatch::Full(Marker::ForeignOpen(opening), length) => {
                    let start = self.held.len() - after.len();
                    let rest = self.held.split_off(start + length);
                    let held = std::mem::take(&mut self.held);
                    let tag = held[start..].to_owned();
                    let calls = cx.out.parsed.tool_calls.len();
                    return Transition::To(cx.open_form(opening, held, &tag, Some(calls)), rest);
                }
                MarkerMatch::Prefix => return Transition::Stay,
                _ => {}
            }
        }
        let openings = &form.patterns.opening_tags;
        if let Some(opening) = openings.iter().position(|opening| opening.tag == after) {
            self.readers = cx.forms.readers_after_tag(opening);
            self.after_tag.clear();
            self.tags += 1;
            return Transition::Stay;
        }
        let openings = openings.iter().map(|opening| &opening.tag);
        let mut tags = form.patterns.closing_tags.iter().chain(openings);
        if tags.any(|tag| tag.starts_with(after)) {
            return Transition::Stay;
        }
        let object = after.trim_start_matches('[').trim_start().starts_with('{');
        if spelled && let Some(rest) = cx.drop_shown_end(&self.held) {
            return cx.release(rest, again);
        }
        self.report_no_call(object, cx);
        cx.pending_close |= self.after_open_call;
        let gap = &self.held[..self.gap];
        cx.out.keep_whitespace_after_call(&gap[..gap.len() - without_closing(gap).len()]);
        // A call may follow the tag of another family.
        let again = match cx.forms.is_foreign() && self.after_tag.len() < MAX_TAG {
            true => self.after_tag.len(),
            false => again.min(self.after_tag.len()),
        };
        let held = self.text();
        if self.untagged {
            // Parsing the first character again would open the same candidate again.
            let first = held
                .find(|c: char| !is_whitespace(c))
                .map_or(0, |at| at + held[at..].chars().next().map_or(0, char::len_utf8));
            let (head, rest) = held.split_at(first);
            cx.out.push_text(head);
            return cx.release(rest, again);
        }
        cx.release(&held, again)
    }
}

impl Candidate {
    /// Reports text that looks like a call but does not count as one. `object` says whether an object follows the
    /// opening tag.
    fn report_no_call(&mut self, object: bool, cx: &mut ParserContext) {
        let misfit = self.misfit.take();
        let has_own_tag = !self.untagged && !cx.forms.is_spelled();
        let is_reported =
            misfit.is_some() || object || cx.failed_opening == FailedOpening::Reported;
        match misfit {
            Some(because) if self.untagged => cx.note_no_call(CALL_LIKE, because),
            Some(because) => cx.note_no_call(MALFORMED, because),
            None if has_own_tag && is_reported => {
                let message = "the text after the call's opening tag is not a call";
                cx.out.note(MALFORMED, message);
            }
            None => {}
        }
        if has_own_tag {
            cx.failed_opening =
                if is_reported { FailedOpening::Reported } else { FailedOpening::Silent };
        }
    }
}

impl ParserState {
    /// A possible call after its opening tag, with which `held` ends.
    pub(super) fn candidate(held: String, readers: Vec<CallReader>) -> ParserState {
        ParserState::Candidate(Box::new(Candidate::new(held, readers)))
    }
}

impl ParserContext {
    /// Whether what a reader has read may be a call.
    fn is_possible(&mut self, reader: &CallReader, status: &ReadStep, untagged: bool) -> bool {
        let tools = &self.settings.tools;
        let possible = match status {
            ReadStep::Broken(_) => false,
            ReadStep::More => true,
            ReadStep::Closed | ReadStep::Ended(_) => reader.name().is_some(),
        };
        if !possible && *status == ReadStep::Closed && !self.forms.is_spelled() {
            self.failed_opening = FailedOpening::Reported;
        }
        let known = reader.name().is_none_or(|name| tools.has(name));
        let acceptable = known || self.forms.is_special() || !(untagged || reader.foreign);
        let lacks_arguments = *status != ReadStep::More && reader.lacks_arguments();
        let needs_none = || reader.name().is_some_and(|name| tools.needs_no_arguments(name));
        let other_object = untagged
            && (reader.has_foreign_key()
                || (lacks_arguments && !(self.out.is_empty() && needs_none())));
        possible && acceptable && !other_object
    }

    /// Starts a possible call in the form of another family. `held` ends with its opening tag.
    /// `inner` is the number of calls before it, if the model's own opening tag precedes.
    pub(super) fn open_form(
        &mut self,
        opening: usize,
        held: String,
        tag: &str,
        inner: Option<usize>,
    ) -> ParserState {
        self.forms.enter(opening, self.settings.is_special(tag), inner);
        let openings = &self.forms.current.patterns.opening_tags;
        let index = openings.iter().position(|opening| opening.tag == tag);
        let readers = self.forms.readers_after_tag(index.unwrap_or_default());
        ParserState::candidate(held, readers)
    }

    /// Makes held text part of the surrounding text. Only the last `again` bytes are parsed again,
    /// because they may start a marker.
    pub(super) fn release(&mut self, held: &str, again: usize) -> Transition {
        let mut at = held.len().saturating_sub(again);
        while !held.is_char_boundary(at) {
            at -= 1;
        }
        self.out.push_text(&held[..at]);
        Transition::text(&held[at..])
    }
}

/// A text without the empty list at its start.
fn without_empty_list(text: &str) -> &str {
    let inside = text.strip_prefix('[').and_then(|rest| rest.trim_start().strip_prefix(']'));
    inside.map_or(text, str::trim_start)
}
