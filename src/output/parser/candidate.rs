//! From a tag that may begin a call to the call's commit point, or to where the text shows that
//! there is none.
//!
//! All list that a call may have behind this tag are read side by side. The first one that knows
//! its function and sees the arguments begin is the call; when none is left, what was read is text
//! again.

use super::call_patterns::{CallPattern, PatternItem};
use super::call_reader::{CallReader, CallStatus};
use super::{Destination, FailedOpening, ParserState, ReplyParser, is_whitespace};

/// No tag is longer.
const MAX_TAG: usize = 128;

/// Text that may be a call, or is one.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Everything since the opening tag, with the blanks before it, until the call is committed.
    pub(super) held: String,
    pub(super) readers: Vec<CallReader>,
    /// What follows the opening tag and its blanks, as long as it may be another tag.
    after: String,
    /// Opening tags read so far.
    tags: usize,
    /// No tag stands before it: it counts only with the name of a given tool.
    pub(super) bare: bool,
    /// Another call stands before it between the same tags.
    pub(super) follows: bool,
    /// So much of what is held stands behind that call.
    pub(super) behind: usize,
    /// The body of a message to a function, which is a call whatever it holds.
    pub(super) message: bool,
    /// Its place among the calls, once it is committed.
    pub(super) index: Option<usize>,
    /// Characters that may be a tag where no tag belongs.
    pub(super) tail: String,
}

impl Candidate {
    pub(super) fn new(held: String, readers: Vec<CallReader>) -> Candidate {
        Candidate {
            held,
            readers,
            after: String::new(),
            tags: 1,
            bare: false,
            follows: false,
            behind: 0,
            message: false,
            index: None,
            tail: String::new(),
        }
    }
}

impl Candidate {
    pub(super) fn is_bare(&self) -> bool {
        self.bare
    }

    /// Whether the call that was read should have a closing tag.
    pub(super) fn closes(&self) -> bool {
        !self.bare && self.readers.first().is_some_and(|reader| reader.closes)
    }

    /// What is held, as text: brackets that close the call before it are none.
    pub(super) fn text(&self) -> String {
        let (gap, rest) = self.held.split_at(self.behind);
        match self.behind {
            0 => self.held.clone(),
            _ => gap.trim_start().trim_start_matches([']', ')']).to_owned() + rest,
        }
    }

    /// Whether all that was read is a tag from its first character to its last.
    pub(super) fn is_whole_tag(&self) -> bool {
        self.after.is_empty() && self.held.trim_end().ends_with(['>', ']'])
    }

    /// Whether nothing but a tag, or several, has been read.
    pub(super) fn is_opening_tag(&self) -> bool {
        self.after.is_empty()
    }
}

impl ReplyParser {
    /// Whether a call without a tag may begin here.
    pub(super) fn may_open_untagged(&self, c: char) -> bool {
        let first =
            self.untagged && self.parsed.content.is_empty() && self.parsed.tool_calls.is_empty();
        matches!(c, '{' | '[')
            && self.calls_allowed
            && self.destination == Destination::Content
            && self.tail.is_empty()
            && (self.patterns.bare || first)
    }

    pub(super) fn open_untagged(&mut self, c: char) {
        let held = std::mem::take(&mut self.whitespace);
        let mut readers = self.readers_of_next_call(c, None);
        if readers.is_empty() {
            // The format has no object of its own: one that another writes behind the same tag will
            // do.
            readers.extend(self.object_reader());
        }
        self.candidate_step(Box::new(Candidate { bare: true, ..Candidate::new(held, readers) }), c);
    }

    /// An opening tag was read in text.
    pub(super) fn open_call(&mut self, opener: usize, tag: &str) {
        let mut held = std::mem::take(&mut self.whitespace);
        held.push_str(tag);
        let readers = self.readers_after_tag(opener);
        self.state = ParserState::Call(Box::new(Candidate::new(held, readers)));
    }

    fn readers_after_tag(&self, opener: usize) -> Vec<CallReader> {
        let starts = self.patterns.opening_tags[opener].starts.iter();
        starts.map(|(shape, at)| self.reader(*shape, *at)).collect()
    }

    /// Readers of a call behind another one, or of one that no tag stands before, that begins with
    /// this character.
    pub(super) fn readers_of_next_call(&self, c: char, last: Option<usize>) -> Vec<CallReader> {
        let objects = |shape: &CallPattern| {
            shape.items.iter().any(|item| matches!(item, PatternItem::Object(_)))
        };
        let own = self.patterns.list.iter().any(|shape| !shape.foreign && objects(shape));
        let mut readers = Vec::new();
        for (index, shape) in self.patterns.list.iter().enumerate() {
            // Behind a call another of its kind may follow; behind any an object, if need be one
            // that is nothing but a call.
            if shape.foreign && last != Some(index) && (own || shape.items.len() > 1) {
                continue;
            }
            let value = shape
                .items
                .iter()
                .position(|item| !matches!(item, PatternItem::Tag(_)))
                .unwrap_or_default();
            match (&shape.items[value], &shape.items[shape.call]) {
                (PatternItem::Object(_), _) if matches!(c, '{' | '[') => {
                    readers.push(self.reader(index, value))
                }
                (_, PatternItem::Name) if c.is_alphabetic() || matches!(c, '_' | '[') => {
                    readers.push(self.reader(index, shape.call))
                }
                _ => {}
            }
        }
        readers
    }

    fn object_reader(&self) -> Option<CallReader> {
        let object = |shape: &CallPattern| {
            shape.items.iter().position(|item| matches!(item, PatternItem::Object(_)))
        };
        let (shape, at) = self
            .patterns
            .list
            .iter()
            .enumerate()
            .find_map(|(index, shape)| Some((index, object(shape)?)))?;
        Some(self.reader(shape, at))
    }

    pub(super) fn reader(&self, index: usize, at: usize) -> CallReader {
        let shape = &self.patterns.list[index];
        let mut reader = CallReader::new(&shape.items, at, shape.foreign, &self.followers);
        reader.closes = shape.closes;
        reader.shape = Some(index);
        reader
    }

    pub(super) fn candidate_step(&mut self, mut candidate: Box<Candidate>, c: char) {
        if candidate.index.is_some() {
            return self.committed_step(candidate, c);
        }
        candidate.held.push(c);
        if candidate.after.len() < MAX_TAG && !(candidate.after.is_empty() && is_whitespace(c)) {
            candidate.after.push(c);
        }
        let mut back = c.len_utf8();
        let mut at = 0;
        while at < candidate.readers.len() {
            let reader = &mut candidate.readers[at];
            let status = reader.step(c, &self.tools);
            let given = reader.name().is_none_or(|name| self.tools.has(name));
            let wanted = given || !(candidate.bare || reader.foreign);
            let lacks = !matches!(status, CallStatus::More) && reader.lacks_arguments();
            let alien = candidate.bare && (reader.has_foreign_key() || lacks);
            let lives = match &status {
                CallStatus::Broken(bytes) => {
                    back = back.max(*bytes);
                    false
                }
                CallStatus::More => true,
                CallStatus::Closed | CallStatus::Ended(_) => reader.name().is_some(),
            };
            if !lives && matches!(status, CallStatus::Closed) {
                self.failed_opening = FailedOpening::Reported;
            }
            if !lives || !wanted || alien {
                candidate.readers.remove(at);
                continue;
            }
            // What no grammar held to a schema is judged as a whole.
            let doubtful = self.needs_validation(candidate.bare, reader);
            if doubtful
                && status != CallStatus::More
                && !self.passes_validator(&mut candidate.readers[at])
            {
                candidate.readers.remove(at);
                continue;
            }
            let reader = &candidate.readers[at];
            if status != CallStatus::More || (reader.is_ready() && !doubtful) {
                return self.accept(candidate, at, status);
            }
            at += 1;
        }
        if candidate.readers.is_empty() {
            self.reject(candidate, back)
        } else {
            self.state = ParserState::Call(candidate)
        }
    }

    /// One reader knows that this is a call.
    fn accept(&mut self, mut candidate: Box<Candidate>, winner: usize, status: CallStatus) {
        let reader = candidate.readers.swap_remove(winner);
        let name = reader.name().unwrap_or_default().to_owned();
        if self.destination == Destination::Reasoning && !self.replaying {
            let ends = self.reasoning.as_ref().is_some_and(|tags| tags.closed_by_call)
                && self.tools.has(&name);
            if !ends {
                self.state = ParserState::Suspended { held: candidate.held, tail: String::new() };
                return;
            }
        }
        if candidate.tags > 1 {
            self.note(
                "dangling_marker",
                "an opening tag stands before another one and was left out",
            );
        }
        if reader.foreign {
            self.note(
                "foreign_family",
                "the call is written as another family of models writes it",
            );
        }
        let id = reader.id().map(str::to_owned);
        candidate.index = Some(self.commit(name, id));
        candidate.held = String::new();
        candidate.readers = vec![reader];
        self.after_step(candidate, status);
    }

    /// What was read is no call: nothing, another opening tag, the beginning of a tag, or text.
    fn reject(&mut self, mut candidate: Box<Candidate>, back: usize) {
        let after = &candidate.after;
        if self.patterns.closing_tags.iter().any(|closer| closer == after) {
            self.note("empty_section", "there is nothing between the call's tags");
            return self.marker_passed();
        }
        if let Some(opener) =
            self.patterns.opening_tags.iter().position(|opener| opener.tag == *after)
        {
            candidate.readers = self.readers_after_tag(opener);
            candidate.after.clear();
            candidate.tags += 1;
            self.state = ParserState::Call(candidate);
            return;
        }
        let mut tags = self
            .patterns
            .closing_tags
            .iter()
            .chain(self.patterns.opening_tags.iter().map(|opener| &opener.tag));
        if tags.any(|tag| tag.starts_with(after.as_str())) {
            self.state = ParserState::Call(candidate);
            return;
        }
        let object = after.trim_start_matches('[').trim_start().starts_with('{');
        if !candidate.bare && (object || self.failed_opening == FailedOpening::Reported) {
            self.note("malformed_call", "the text behind the call's opening tag is not a call");
            self.failed_opening = FailedOpening::Reported;
        } else if !candidate.bare {
            self.failed_opening = FailedOpening::Silent;
        }
        self.pending_close |= candidate.follows;
        let back = back.min(candidate.after.len());
        let held = candidate.text();
        if candidate.bare {
            // Its first character is text now, or it would open the same again.
            let first = held
                .find(|c: char| !is_whitespace(c))
                .map_or(0, |at| at + held[at..].chars().next().map_or(0, char::len_utf8));
            let (head, rest) = held.split_at(first);
            self.push_text(head);
            return self.release(rest, back.min(rest.len()));
        }
        self.release(&held, back);
    }
}
