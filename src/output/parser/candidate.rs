//! Text that may be a call, until the commit point or until it can no longer be a call.
//!
//! All patterns that a call can have after the opening tag are read in parallel. The first pattern
//! that has read the name and the start of the arguments wins. If no pattern remains, the text
//! stays text.

use super::after_call::{AfterCall, without_closing};
use super::call_patterns::{CallPattern, PatternItem};
use super::call_reader::{CallReader, CallStatus};
use super::committed::CommittedCall;
use super::marker_set::{Marker, MarkerMatch};
use super::{Destination, FailedOpening, ParserState, ReplyParser, is_whitespace};

/// The maximum length of a tag.
const MAX_TAG: usize = 128;

/// Text that may be a call.
#[derive(Debug, Default)]
pub(super) struct Candidate {
    /// All text since the opening tag, with the whitespace before it.
    pub(super) held: String,
    /// One reader for each pattern that is still possible.
    pub(super) readers: Vec<CallReader>,
    /// The text after the opening tag and whitespace, up to the length of a tag.
    after_tag: String,
    /// The number of opening tags read.
    tags: usize,
    /// Whether there was no opening tag. The call then counts only if it names a given tool.
    pub(super) untagged: bool,
    /// Whether the text follows a call whose closing tag is still missing.
    after_open_call: bool,
    /// Whether a fence directly precedes the opening tag.
    fenced: bool,
    /// The number of bytes of `held` between that call and this one.
    gap: usize,
}

impl Candidate {
    pub(super) fn new(held: String, readers: Vec<CallReader>) -> Candidate {
        Candidate { held, readers, tags: 1, ..Candidate::default() }
    }

    /// A possible call in a fence, including its opening tag.
    pub(super) fn fenced(held: String, readers: Vec<CallReader>) -> Candidate {
        Candidate { fenced: true, ..Candidate::new(held, readers) }
    }

    /// A possible call after another call.
    pub(super) fn after(call: AfterCall, readers: Vec<CallReader>) -> Candidate {
        Candidate {
            untagged: call.untagged,
            after_open_call: call.has_closing_tag,
            gap: call.held.len(),
            ..Candidate::new(call.held, readers)
        }
    }

    /// The held text as content. Brackets that close the previous call are removed.
    pub(super) fn text(&self) -> String {
        if self.gap == 0 {
            return self.held.clone();
        }
        let (gap, rest) = self.held.split_at(self.gap);
        without_closing(gap).to_owned() + rest
    }

    /// Whether an empty list follows the opening tags, and nothing else.
    pub(super) fn is_empty_list(&self) -> bool {
        !self.after_tag.trim().is_empty() && without_empty_list(&self.after_tag).is_empty()
    }

    /// Whether the text consists of complete tags only.
    pub(super) fn is_whole_tag(&self) -> bool {
        self.is_opening_tag() && self.held.trim_end().ends_with(['>', ']'])
    }

    /// Whether nothing follows the opening tags.
    pub(super) fn is_opening_tag(&self) -> bool {
        self.after_tag.is_empty()
    }
}

impl ReplyParser {
    /// Whether a call without a tag may begin here.
    pub(super) fn may_open_untagged(&self, c: char) -> bool {
        let first = self.untagged && self.is_empty();
        (matches!(c, '{' | '[') || self.may_begin_name(c))
            && self.calls_allowed
            && self.destination == Destination::Content
            && self.tail.is_empty()
            && (self.patterns.untagged || first)
    }

    /// Whether the message has no content and no calls yet.
    fn is_empty(&self) -> bool {
        self.parsed.content.is_empty() && self.parsed.tool_calls.is_empty()
    }

    /// Whether a line begins here that may name a given tool, in a format whose calls begin with
    /// the name.
    fn may_begin_name(&self, c: char) -> bool {
        self.patterns.begins_with_name
            && self.line_start
            && self.tools.names().any(|name| name.starts_with(c))
    }

    pub(super) fn open_untagged(&mut self, c: char) {
        let held = std::mem::take(&mut self.whitespace);
        let mut readers = self.readers_of_next_call(c, None);
        if readers.is_empty() {
            // The format's own calls are not objects, so an object is accepted if another pattern
            // matches it.
            readers.extend(self.object_reader());
        }
        let candidate = Candidate { untagged: true, ..Candidate::new(held, readers) };
        self.candidate_step(Box::new(candidate), c);
    }

    /// Starts a call at an opening tag in text.
    pub(super) fn open_call(&mut self, opening: usize, tag: &str) {
        let held = std::mem::take(&mut self.whitespace);
        self.open_call_after(&held, opening, tag);
    }

    /// Like [`open_call`](Self::open_call). If no call follows, `before` becomes text together with
    /// the tag.
    pub(super) fn open_call_after(&mut self, before: &str, opening: usize, tag: &str) {
        let readers = self.readers_after_tag(opening);
        self.state =
            ParserState::Candidate(Box::new(Candidate::new(format!("{before}{tag}"), readers)));
    }

    pub(super) fn readers_after_tag(&self, opening: usize) -> Vec<CallReader> {
        let starts = self.patterns.opening_tags[opening].starts.iter();
        starts.map(|(pattern, at)| self.reader(*pattern, *at)).collect()
    }

    /// Readers for a call without an opening tag that begins with this character. `last` is the
    /// pattern of the previous call.
    pub(super) fn readers_of_next_call(&self, c: char, last: Option<usize>) -> Vec<CallReader> {
        let own = self.patterns.list.iter().any(|pattern| !pattern.foreign && pattern.has_object());
        let mut readers = Vec::new();
        for (index, pattern) in self.patterns.list.iter().enumerate() {
            // Another family's pattern may repeat. If the format has no objects, any call may be
            // followed by a call that is a single object.
            let first = self.patterns.untagged && last.is_none() && self.is_empty() && c == '[';
            let of_any = pattern.has_object() && !own && pattern.items.len() == 1;
            let is_list = first && pattern.items.first() == Some(&PatternItem::Name);
            if pattern.foreign && last != Some(index) && !of_any && !is_list {
                continue;
            }
            let value = pattern.first_value().unwrap_or_default();
            match (&pattern.items[value], &pattern.items[pattern.call]) {
                (PatternItem::Object(_), _) if matches!(c, '{' | '[') => {
                    readers.push(self.reader(index, value))
                }
                (_, PatternItem::Name) if c.is_alphabetic() || matches!(c, '_' | '[') => {
                    readers.push(self.reader(index, pattern.call))
                }
                _ => {}
            }
        }
        readers
    }

    fn object_reader(&self) -> Option<CallReader> {
        let object = |pattern: &CallPattern| pattern.items.iter().position(PatternItem::is_object);
        let mut patterns = self.patterns.list.iter().enumerate();
        let (pattern, at) =
            patterns.find_map(|(index, pattern)| Some((index, object(pattern)?)))?;
        Some(self.reader(pattern, at))
    }

    /// A reader of this pattern, from this item on.
    pub(super) fn reader(&self, index: usize, at: usize) -> CallReader {
        let pattern = &self.patterns.list[index];
        let mut reader = CallReader::new(&pattern.items, at, &self.followers);
        reader.foreign = pattern.foreign || self.foreign.is_some();
        reader.has_closing_tag = pattern.has_closing_tag;
        reader.pattern = Some(index);
        reader
    }

    pub(super) fn candidate_step(&mut self, mut candidate: Box<Candidate>, c: char) {
        candidate.held.push(c);
        if candidate.after_tag.len() < MAX_TAG
            && !(candidate.after_tag.is_empty() && is_whitespace(c))
        {
            candidate.after_tag.push(c);
        }
        let (special, spelled) =
            (self.foreign.as_ref().is_some_and(|foreign| foreign.special), self.is_spelled());
        let mut again = c.len_utf8();
        let mut at = 0;
        while at < candidate.readers.len() {
            let reader = &mut candidate.readers[at];
            let status = reader.step(c, &self.tools);
            let known = reader.name().is_none_or(|name| self.tools.has(name));
            let acceptable = known || special || !(candidate.untagged || reader.foreign);
            let lacks_arguments = status != CallStatus::More && reader.lacks_arguments();
            let needs_none = reader.name().is_some_and(|name| self.tools.needs_no_arguments(name));
            let other_object = candidate.untagged
                && (reader.has_foreign_key()
                    || (lacks_arguments && !(self.is_empty() && needs_none)));
            let possible = match &status {
                CallStatus::Broken(bytes) => {
                    again = again.max(*bytes);
                    false
                }
                CallStatus::More => true,
                CallStatus::Closed | CallStatus::Ended(_) => reader.name().is_some(),
            };
            if !possible && status == CallStatus::Closed && !spelled {
                self.failed_opening = FailedOpening::Reported;
            }
            if !possible || !acceptable || other_object {
                candidate.readers.remove(at);
                continue;
            }
            // If the grammar did not constrain the call, the whole call is validated.
            let unconstrained = self.needs_validation(candidate.untagged, reader);
            if unconstrained && status != CallStatus::More && !self.passes_validator(reader) {
                candidate.readers.remove(at);
                continue;
            }
            if status != CallStatus::More || (reader.is_ready() && !unconstrained) {
                return self.accept(*candidate, at, status);
            }
            at += 1;
        }
        if candidate.readers.is_empty() {
            self.reject(candidate, again)
        } else {
            self.open_inner(&mut candidate);
            self.state = ParserState::Candidate(candidate)
        }
    }

    /// Reads the text after a second opening tag also as a call with that tag, because a model may
    /// write another family's call between its own tags.
    fn open_inner(&self, candidate: &mut Candidate) {
        let text = candidate.after_tag.as_str();
        let opening = self.patterns.opening_tags.iter().find(|opening| opening.tag == text);
        for (pattern, at) in opening.iter().flat_map(|opening| &opening.starts) {
            if !candidate.readers.iter().any(|reader| reader.pattern == Some(*pattern)) {
                candidate.readers.push(self.reader(*pattern, *at));
            }
        }
    }

    /// Whether the grammar did not constrain the call: it is in reasoning, has no tag, or has the
    /// form of another family.
    pub(super) fn needs_validation(&self, untagged: bool, reader: &CallReader) -> bool {
        self.call_validator.is_some() && (untagged || reader.foreign || self.replaying)
    }

    /// Whether the validator accepts the call. Without a validator every call is accepted.
    pub(super) fn passes_validator(&self, reader: &mut CallReader) -> bool {
        let Some(validator) = &self.call_validator else { return true };
        let arguments =
            if reader.lacks_arguments() { "{}".to_owned() } else { reader.arguments().to_owned() };
        let name = reader.name().map(|name| self.tools.tool_name(name).unwrap_or(name));
        name.is_some_and(|name| validator(name, &arguments))
    }

    /// Handles text that is a call according to this reader.
    fn accept(&mut self, mut candidate: Candidate, winner: usize, status: CallStatus) {
        let reader = candidate.readers.swap_remove(winner);
        let name = reader.name().unwrap_or_default().to_owned();
        if self.destination == Destination::Reasoning && !self.replaying {
            let ends_reasoning = self.reasoning.as_ref().is_some_and(|tags| tags.closed_by_call)
                && self.foreign.is_none()
                && self.tools.has(&name);
            if !ends_reasoning {
                self.state = ParserState::Suspended { held: candidate.held, tail: String::new() };
                return;
            }
        }
        self.in_call_fence |= candidate.fenced;
        if candidate.tags > 1 {
            self.note("dangling_marker", "a repeated opening tag was removed");
        }
        if self.foreign.is_some() {
            self.note_foreign(reader.pattern);
        } else if reader.foreign {
            self.note("foreign_family", "the call is in the form of another family of models");
        }
        let id = reader.id().map(str::to_owned);
        let index = self.commit(name, id);
        let call = CommittedCall::new(reader, index, candidate.untagged);
        self.after_reader_step(Box::new(call), status);
    }

    pub(super) fn empty_section(&mut self) {
        self.note("empty_section", "there is nothing between the call's tags");
        self.marker_passed();
    }

    /// Handles text that is not a call. It is an empty section, another opening tag, the start of a
    /// tag, or plain text.
    fn reject(&mut self, mut candidate: Box<Candidate>, again: usize) {
        let after = without_empty_list(&candidate.after_tag);
        let spelled = self.is_spelled();
        if !spelled && self.patterns.closing_tags.iter().any(|closing| closing == after) {
            return self.empty_section();
        }
        let is_opening =
            |marker: Marker| matches!(marker, Marker::ForeignOpen(_) | Marker::CallOpen(_));
        let is_own = self.foreign.is_none() && !candidate.untagged;
        if is_own && !self.own_calls_only && candidate.after_tag.len() < MAX_TAG {
            match self.markers.find(after, is_opening) {
                MarkerMatch::Full(Marker::ForeignOpen(opening), length) => {
                    let start = candidate.held.len() - after.len();
                    let (held, rest) = candidate.held.split_at(start + length);
                    let tag = &held[start..];
                    self.open_inner_foreign(opening, &held[..start], tag);
                    return self.feed(rest);
                }
                MarkerMatch::Prefix => {
                    self.state = ParserState::Candidate(candidate);
                    return;
                }
                _ => {}
            }
        }
        let mut openings = self.patterns.opening_tags.iter();
        if let Some(opening) = openings.position(|opening| opening.tag == after) {
            candidate.readers = self.readers_after_tag(opening);
            candidate.after_tag.clear();
            candidate.tags += 1;
            self.state = ParserState::Candidate(candidate);
            return;
        }
        let openings = self.patterns.opening_tags.iter().map(|opening| &opening.tag);
        let mut tags = self.patterns.closing_tags.iter().chain(openings);
        if tags.any(|tag| tag.starts_with(after)) {
            self.state = ParserState::Candidate(candidate);
            return;
        }
        let object = after.trim_start_matches('[').trim_start().starts_with('{');
        if spelled {
            if let Some(rest) = self.drop_shown_end(&candidate.held) {
                return self.release(&rest, again.min(rest.len()));
            }
        } else if !candidate.untagged && (object || self.failed_opening == FailedOpening::Reported)
        {
            self.note("malformed_call", "the text after the call's opening tag is not a call");
            self.failed_opening = FailedOpening::Reported;
        } else if !candidate.untagged {
            self.failed_opening = FailedOpening::Silent;
        }
        self.pending_close |= candidate.after_open_call;
        let again = again.min(candidate.after_tag.len());
        let held = candidate.text();
        if candidate.untagged {
            // Parsing the first character again would open the same candidate again.
            let first = held
                .find(|c: char| !is_whitespace(c))
                .map_or(0, |at| at + held[at..].chars().next().map_or(0, char::len_utf8));
            let (head, rest) = held.split_at(first);
            self.push_text(head);
            return self.release(rest, again.min(rest.len()));
        }
        self.release(&held, again);
    }
}

/// A text without the empty list at its start.
fn without_empty_list(text: &str) -> &str {
    let inside = text.strip_prefix('[').and_then(|rest| rest.trim_start().strip_prefix(']'));
    inside.map_or(text, str::trim_start)
}
