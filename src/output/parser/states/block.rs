//! Calls without the format's own tags: in a fenced block, in an element of any name, or as objects
//! and lists that fill a line. A block counts if it contains only calls of given tools whose
//! arguments fit, or an object with such calls. It is decided as a whole, but becomes text as soon
//! as it can no longer be calls. A fence around a call with the format's own tags is dropped.

use super::{BlockOpening, BlockPart, CallBlock, Candidate, ParserState, Transition};
use crate::diagnostic::Diagnostic;
use crate::output::format::FENCE;
use crate::output::message::Destination;
use crate::output::parser::call_like::unknown_tool;
use crate::output::parser::calls::call_object::ObjectProgress;
use crate::output::parser::calls::call_patterns::python_items;
use crate::output::parser::calls::call_reader::CallReader;
use crate::output::parser::calls::envelope::Envelope;
use crate::output::parser::calls::marker_set::{Marker, MarkerMatch};
use crate::output::parser::calls::{CALL_LIKE, MALFORMED};
use crate::output::parser::context::ParserContext;
use crate::output::read::ReadStep;
use crate::output::read::json_scanner::is_whitespace;

/// The language of a fence with calls in Python's notation: `f(a=1)` or `print(f(a=1))`.
const PYTHON: &str = "tool_code";
/// The maximum length of a fence's language or of an element's name.
const MAX_WORD: usize = 64;

impl CallBlock {
    /// A block whose opening is read next. `held` is the fence, or the whitespace before the block.
    /// `in_code` says whether code is open, so that a fence without a language closes it.
    pub(super) fn new(opening: BlockOpening, held: String, in_code: bool) -> CallBlock {
        let part =
            if opening == BlockOpening::Bare { BlockPart::Start } else { BlockPart::Opening };
        CallBlock { held, opening, part, in_code, ..CallBlock::default() }
    }

    pub(super) fn step(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        if self.part == BlockPart::After {
            return self.read_after(c, cx);
        }
        self.held.push(c);
        match self.part {
            BlockPart::Opening => self.read_opening(c, cx),
            BlockPart::Tag => self.read_tag(c, cx),
            BlockPart::Call => self.read_call(c, cx),
            BlockPart::Start | BlockPart::After => self.read_start(c, cx),
        }
    }

    /// Reads a character of the fence's language, or of the element's tag.
    fn read_opening(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        let is_element = self.opening == BlockOpening::Element;
        let is_tag_start = is_element && self.word.is_empty() && c == '<';
        let fits = if is_element { is_name(c) } else { is_language(c) };
        if is_tag_start || (fits && self.word.len() < MAX_WORD) {
            self.word.push(c);
            return Transition::Stay;
        }
        if is_element {
            if c != '>' || self.word.len() < 2 {
                return self.release(c, cx);
            }
            self.part = BlockPart::Start;
            return Transition::Stay;
        }
        if self.in_code && self.word.is_empty() {
            return self.release(c, cx);
        }
        self.part = BlockPart::Start;
        self.read_start(c, cx)
    }

    /// Reads a character before the first call.
    fn read_start(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        // In reasoning, only calls with their tags count.
        let in_content = cx.out.destination == Destination::Content;
        let python = (self.list || self.word == PYTHON) && begins_name(c);
        if in_content && (c == '{' || python) {
            return self.begin_call(c, cx);
        }
        if self.opening == BlockOpening::Fence && !self.list && begins_tag(c, cx) {
            self.part = BlockPart::Tag;
            return self.read_tag(c, cx);
        }
        if is_whitespace(c) || (in_content && c == '[' && !self.list) {
            self.list |= c == '[';
            return Transition::Stay;
        }
        self.release(c, cx)
    }

    /// Reads a character of a possible opening tag of a call.
    fn read_tag(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        self.tag.push(c);
        let is_opening = |marker| matches!(marker, Marker::CallOpen(_));
        match cx.forms.current.markers.find(&self.tag, is_opening) {
            MarkerMatch::Prefix => Transition::Stay,
            MarkerMatch::Full(Marker::CallOpen(opening), length) => {
                let mut held = std::mem::take(&mut self.held);
                let rest = held.split_off(held.len() - (self.tag.len() - length));
                let candidate = Candidate::new(held, cx.forms.readers_after_tag(opening));
                let candidate = Box::new(Candidate { fenced: true, ..candidate });
                Transition::To(ParserState::Candidate(candidate), rest)
            }
            _ => cx.release(&self.held, self.tag.len()),
        }
    }

    /// Begins a call with its first character, which is held.
    fn begin_call(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        let python = c != '{';
        self.parentheses += usize::from(python);
        if !python && !self.list && self.calls.is_empty() {
            self.envelope = Some(Box::new(Envelope::new(false)));
        }
        let items = if python { python_items() } else { cx.forms.object_items() };
        self.calls.push(cx.forms.reader_of(&items));
        self.part = BlockPart::Call;
        self.read_call(c, cx)
    }

    fn read_call(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        let envelope = self.envelope.as_mut().map(|envelope| envelope.read(c));
        if envelope == Some(ObjectProgress::Broken) {
            self.envelope = None;
        }
        let Some(reader) = self.calls.last_mut() else {
            return self.read_object(envelope, c, cx);
        };
        let tools = &cx.settings.tools;
        let status = reader.step(c, tools);
        let printed = self.parentheses == 1 && reader.name() == Some("print");
        if printed && self.word == PYTHON && status == ReadStep::More && !tools.has("print") {
            self.calls.pop();
            self.part = BlockPart::Start;
            return Transition::Stay;
        }
        let known = reader.name().is_none_or(|name| tools.has(name));
        if !known || reader.has_foreign_key() || matches!(status, ReadStep::Broken(_)) {
            if envelope == Some(ObjectProgress::More) {
                self.calls.clear();
                return Transition::Stay;
            }
            return self.release(c, cx);
        }
        if status == ReadStep::More {
            return Transition::Stay;
        }
        let needs_none = || reader.name().is_some_and(|name| tools.needs_no_arguments(name));
        let may_omit = cx.settings.untagged || cx.forms.current.patterns.untagged;
        let may_lack = || may_omit && cx.out.is_empty() && needs_none();
        if reader.name().is_none() || (reader.lacks_arguments() && !may_lack()) {
            return cx.release(&self.held, 0);
        }
        if let Err(because) = cx.settings.validate_untagged(reader) {
            cx.note_no_call(CALL_LIKE, because);
            return cx.release(&self.held, 0);
        }
        self.part = BlockPart::After;
        // A call in Python's notation ends before its parenthesis.
        if let ReadStep::Ended(_) = status {
            self.held.pop();
            return self.read_after(c, cx);
        }
        Transition::Stay
    }

    /// Reads a character of an object that may contain calls.
    fn read_object(
        &mut self,
        progress: Option<ObjectProgress>,
        c: char,
        cx: &mut ParserContext,
    ) -> Transition {
        if progress == Some(ObjectProgress::More) {
            return Transition::Stay;
        }
        let envelope = self.envelope.take().filter(|envelope| envelope.content.is_empty());
        let is_whole = progress == Some(ObjectProgress::Closed);
        match envelope.filter(|_| is_whole).map(|envelope| cx.calls_of(&envelope)) {
            Some(Ok(calls)) => {
                (self.part, self.calls) = (BlockPart::After, calls);
                return Transition::Stay;
            }
            Some(Err(Some(because))) => cx.note_no_call(CALL_LIKE, because),
            _ => {}
        }
        self.release(c, cx)
    }

    /// Reads a character after a call.
    fn read_after(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        if !self.closer.is_empty() {
            return self.read_closer(c, cx);
        }
        let may_separate = self.parentheses == 0 && !self.list_closed;
        let next_line = self.tail.contains('\n');
        // An object on another line is a block of its own.
        let ends = self.opening == BlockOpening::Bare && next_line && self.is_closed();
        match c {
            ')' if self.parentheses > 0 => self.parentheses -= 1,
            ']' if may_separate && self.list && !self.separated => self.list_closed = true,
            ',' | ';' if may_separate && !self.separated && !ends => self.separated = true,
            c if is_whitespace(c) => {}
            '{' if may_separate && (self.separated || !(self.list || ends)) => {
                return self.begin_next(c, cx);
            }
            c if begins_name(c) && may_separate && self.may_name_next(next_line) => {
                return self.begin_next(c, cx);
            }
            // A bracket too many before the end of the block.
            '}' if self.opening != BlockOpening::Bare && self.is_closed() && !self.separated => {}
            c if self.is_closed() => return self.read_closer(c, cx),
            c => return self.reject(c.into(), cx),
        }
        self.tail.push(c);
        Transition::Stay
    }

    /// Whether the name of another call in Python's notation may follow.
    fn may_name_next(&self, next_line: bool) -> bool {
        if self.list { self.separated } else { self.word == PYTHON && next_line }
    }

    fn begin_next(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        self.held.push_str(&std::mem::take(&mut self.tail));
        self.held.push(c);
        self.separated = false;
        self.begin_call(c, cx)
    }

    /// Reads a character of what may close the block: a fence, a closing tag, or another marker.
    fn read_closer(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        self.closer.push(c);
        let closer = std::mem::take(&mut self.closer);
        let is_fence = self.opening == BlockOpening::Fence;
        if is_fence && closer == FENCE {
            self.closed = true;
            self.commit(cx);
            return Transition::text("");
        }
        if FENCE.starts_with(&closer) || (!is_fence && may_become_tag(&closer)) {
            self.closer = closer;
            return Transition::Stay;
        }
        if !is_fence {
            if let Some(after) = closer.strip_prefix(FENCE) {
                // With a language, the fence opens another block.
                self.commit(cx);
                return Transition::text(if is_whitespace(c) { after } else { &closer });
            }
            if closer.starts_with("</") && c == '>' {
                self.closed = true;
                self.commit(cx);
                return Transition::text("");
            }
            match cx.forms.current.markers.find(&closer, |marker| marker != Marker::Fence) {
                MarkerMatch::Prefix => {
                    self.closer = closer;
                    return Transition::Stay;
                }
                MarkerMatch::Full(..) => {
                    self.commit(cx);
                    return Transition::text(closer);
                }
                MarkerMatch::None => {}
            }
        }
        if self.opening == BlockOpening::Bare && self.tail.contains('\n') {
            self.commit(cx);
            return Transition::text(closer);
        }
        self.reject(closer, cx)
    }

    /// Whether no call or list is open.
    fn is_closed(&self) -> bool {
        let is_list_closed = if self.list { self.list_closed } else { true };
        self.parentheses == 0 && is_list_closed
    }

    /// The whole text of the block so far.
    fn text(&self) -> String {
        self.held.clone() + &self.tail + &self.closer
    }

    /// Decides the block at the end of the reply.
    pub(crate) fn end(mut self, cx: &mut ParserContext) {
        let is_whole = self.part == BlockPart::After && self.is_closed();
        if !is_whole {
            let is_cut = |call: &CallReader| call.has_begun() || call.is_closed();
            if self.calls.last().is_some_and(is_cut) || self.part == BlockPart::After {
                let message = "the reply ends inside calls without their tags; they were kept as \
                               text";
                cx.out.note(CALL_LIKE, message);
            }
            return cx.out.push_text(&self.text());
        }
        let closer = std::mem::take(&mut self.closer);
        self.commit(cx);
        // The start of a closing tag does not belong to the reply.
        if !(FENCE.starts_with(&closer) || closer.starts_with("</")) {
            cx.out.push_text(&closer);
        }
    }

    /// Adds the block's calls to the message.
    fn commit(&mut self, cx: &mut ParserContext) {
        let is_fence = self.opening == BlockOpening::Fence;
        if self.opening != BlockOpening::Bare && !self.closed {
            let what = if is_fence { "fenced block of" } else { "element around" };
            let message = format!("the {what} the call is not closed");
            cx.out.note("missing_end_marker", &message);
        }
        let is_own = self.opening == BlockOpening::Bare && cx.forms.current.patterns.untagged;
        for reader in std::mem::take(&mut self.calls) {
            let name = reader.name().unwrap_or_default();
            if is_fence {
                let message = format!("a fenced block was read as a call of `{name}`");
                cx.out.note("fenced_call", &message);
            } else if !is_own {
                let message = format!("a call of `{name}` was read without its tags");
                cx.out.note("untagged_call", &message);
            }
            cx.add_call(reader);
        }
        if self.opening == BlockOpening::Bare {
            cx.out.keep_whitespace_after_call(&self.tail);
        }
    }

    /// Makes complete calls text, because `rest` follows them.
    fn reject(&mut self, rest: String, cx: &mut ParserContext) -> Transition {
        let message = "a call without its tags has more text around it; it was kept as text";
        cx.out.note(CALL_LIKE, message);
        cx.out.push_text(&self.held);
        Transition::text(std::mem::take(&mut self.tail) + &rest)
    }

    /// Makes the block text, because its last character `c` fits no call.
    fn release(&self, c: char, cx: &mut ParserContext) -> Transition {
        // The bracket may begin a tag.
        let is_start = match &*self.calls {
            [] => true,
            [call] => self.parentheses > 0 && !call.has_begun(),
            _ => false,
        };
        let may_be_tag = self.list && is_start && self.opening != BlockOpening::Bare;
        let bracket = self.held.rfind('[').filter(|_| may_be_tag);
        cx.release(&self.held, bracket.map_or(c.len_utf8(), |at| self.held.len() - at))
    }
}

/// Whether a character may occur in the language of a fence.
fn is_language(c: char) -> bool {
    c.is_alphabetic() || matches!(c, '_' | '-' | '+' | '.')
}

/// Whether a character may occur in the name of an element.
fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '|')
}

/// Whether a character may begin an opening tag of a call. A bracket may begin a list, and a word
/// other code.
fn begins_tag(c: char, cx: &ParserContext) -> bool {
    let is_opening = |marker| matches!(marker, Marker::CallOpen(_));
    let found = cx.forms.current.markers.find(c.encode_utf8(&mut [0; 4]), is_opening);
    c == '<' || (c != '[' && !c.is_alphanumeric() && found != MarkerMatch::None)
}

/// Whether a character may begin the name of a call in Python's notation.
fn begins_name(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Whether a text may be the start of a closing tag.
fn may_become_tag(text: &str) -> bool {
    let name = text.strip_prefix('<').map(|rest| rest.strip_prefix('/').unwrap_or(rest));
    let has_slash = text.len() < 2 || text.starts_with("</");
    has_slash && name.is_some_and(|name| name.len() < MAX_WORD && name.chars().all(is_name))
}

impl Envelope {
    pub(super) fn step(&mut self, c: char, cx: &mut ParserContext) -> Transition {
        match self.read(c) {
            ObjectProgress::More => return Transition::Stay,
            ObjectProgress::Broken => {}
            ObjectProgress::Closed => {
                match cx.calls_of(self) {
                    Ok(calls) => {
                        cx.out.preceding.whitespace.clear();
                        cx.out.emit(&self.content);
                        if !self.own {
                            cx.out.note(
                                "call_in_foreign_format",
                                "the reply is a JSON object with calls in it, which is not the \
                                 model's own form",
                            );
                        }
                        calls.into_iter().for_each(|reader| cx.add_call(reader));
                        return Transition::text("");
                    }
                    Err(because) if self.own => {
                        let no_call = "an object in `tool_calls` is not a call";
                        let because =
                            because.unwrap_or_else(|| Diagnostic::new(MALFORMED, no_call));
                        cx.note_no_call(MALFORMED, because);
                    }
                    // The object is read again as a block, which reports it.
                    Err(_) => {}
                }
            }
        }
        // The object is a call without tags, or text. Its brace is emitted first, so that it does
        // not start another envelope.
        let mut again = std::mem::take(&mut self.held);
        if let Some(state) = cx.open_without_tag('{') {
            return Transition::To(state, again);
        }
        cx.out.push_char('{');
        again.remove(0);
        Transition::text(again)
    }
}

impl ParserContext {
    /// The calls in the object, or why one of the entries is not a call, if it has the members of
    /// one.
    fn calls_of(&self, envelope: &Envelope) -> Result<Vec<CallReader>, Option<Diagnostic>> {
        let (tools, items) = (&self.settings.tools, self.forms.object_items());
        let read = |text: &str| {
            let mut reader = self.forms.reader_of(&items);
            let status = text.chars().fold(ReadStep::More, |_, c| reader.step(c, tools));
            let Some(name) = reader.name().filter(|_| status == ReadStep::Closed) else {
                return Err(None);
            };
            if !envelope.own && !tools.has(name) {
                return Err(Some(unknown_tool(name, tools)));
            }
            self.settings.validate(&mut reader).map_err(Some)?;
            Ok(reader)
        };
        envelope.calls().map(read).collect()
    }
}
