//! Appends text to the right part of the message, with the right whitespace, and collects the
//! deltas, calls and diagnostics. It does not know which text is markup.

mod code_scanner;
mod controls;
mod json_content;

use std::collections::HashSet;

use super::calls::call_reader::CallReader;
use crate::diagnostic::Diagnostic;
use crate::output::message::{Delta, Destination, ParsedReply, ToolCall};
use crate::output::read::json_scanner::is_whitespace;
use crate::output::read::{json, json_scanner};
use controls::PendingControls;

pub(super) use code_scanner::CodeScanner;
pub(super) use json_content::JsonContent;

pub use json_content::JsonValidator;

/// The maximum number of diagnostics of a reply.
const MAX_DIAGNOSTICS: usize = 64;

/// What precedes the next character of text.
#[derive(Debug, Default)]
pub(super) struct Preceding {
    /// Held whitespace. It is dropped if a marker follows.
    pub(super) whitespace: String,
    /// Whether only whitespace has followed the last marker.
    pub(super) marker: bool,
    pub(super) line_start: bool,
    /// The whitespace before the last calls and after them, if content precedes them. It belongs to
    /// the content if more content follows.
    around_calls: Option<[String; 2]>,
    /// The whitespace that was taken last.
    taken: String,
    /// Whether markup was removed and no text has followed it.
    pub(super) removed: bool,
    /// Whether a call with its tags was read from a fence that is still open.
    pub(super) call_in_fence: bool,
    /// Whether calls are not allowed and an opening tag was emitted as text.
    pub(super) call_tag_as_text: bool,
    /// Tracks code in the text.
    pub(super) code: CodeScanner,
}

/// The current reasoning block.
#[derive(Debug)]
pub(super) struct ReasoningBlock {
    /// Whether the model, not the prompt, opened it.
    pub(super) opened_by_tag: bool,
    /// Whether both the prompt and the model opened it.
    pub(super) opened_twice: bool,
    /// Whether it has no text yet.
    pub(super) is_empty: bool,
}

/// Collects the message.
pub(super) struct Emitter {
    pub(super) destination: Destination,
    pub(super) preceding: Preceding,
    pub(super) reasoning: ReasoningBlock,
    /// If reasoning stays in the content and the prompt opened a block that has no text yet: the end
    /// of the prompt, starting with the tag. The message has it only if text of the block follows.
    pub(super) kept_opening: Option<String>,
    pub(super) controls: PendingControls,
    /// Whether whitespace inside the content is emitted at once.
    pub(super) streams_whitespace: bool,
    /// Finds the value of a JSON reply.
    pub(super) json: Option<JsonContent>,
    /// The ids of all calls so far.
    pub(super) ids: HashSet<String>,
    new_id: Box<dyn FnMut() -> String + Send>,
    pub(super) deltas: Vec<Delta>,
    pub(super) parsed: ParsedReply,
}

impl Emitter {
    pub(super) fn new(new_id: Box<dyn FnMut() -> String + Send>) -> Emitter {
        Emitter {
            destination: Destination::Content,
            preceding: Preceding { line_start: true, ..Preceding::default() },
            reasoning: ReasoningBlock { opened_by_tag: false, opened_twice: false, is_empty: true },
            kept_opening: None,
            controls: PendingControls::default(),
            streams_whitespace: false,
            json: None,
            ids: HashSet::new(),
            new_id,
            deltas: Vec::new(),
            parsed: ParsedReply { complete: true, ..ParsedReply::default() },
        }
    }

    /// Whether the message has no content and no calls yet.
    pub(super) fn is_empty(&self) -> bool {
        self.parsed.content.is_empty() && self.parsed.tool_calls.is_empty()
    }

    /// Whether the last character was text of the message, in a place where the next character is
    /// text too unless it begins a marker or a call.
    pub(super) fn is_inside_text(&self) -> bool {
        let Preceding { whitespace, code, .. } = &self.preceding;
        whitespace.is_empty()
            && !self.preceding.line_start
            && !self.preceding.marker
            && !self.preceding.removed
            && !self.preceding.call_in_fence
            && !self.preceding.call_tag_as_text
            && self.kept_opening.is_none()
            && !code.follows_backtick()
    }

    /// Like [`note`](Self::note), but reports each code only once.
    pub(super) fn note_once(&mut self, code: &'static str, message: &str) {
        let known = |known: &Diagnostic| known.code == code && known.message == message;
        if !self.parsed.diagnostics.iter().any(known) {
            self.note(code, message);
        }
    }

    pub(super) fn note_next_turn(&mut self) {
        self.note_once(
            "next_turn_removed",
            "the reply continues with a turn of another role, which was removed",
        );
    }

    pub(super) fn note(&mut self, code: &'static str, message: &str) {
        self.report(Diagnostic::new(code, message));
    }

    pub(super) fn report(&mut self, diagnostic: Diagnostic) {
        if self.parsed.diagnostics.len() < MAX_DIAGNOSTICS {
            self.parsed.diagnostics.push(diagnostic);
        }
    }

    /// Drops the whitespace around a marker.
    pub(super) fn marker_passed(&mut self) {
        self.preceding.whitespace.clear();
        self.preceding.marker = true;
        self.preceding.line_start = true;
    }

    pub(super) fn take_whitespace(&mut self) -> String {
        self.preceding.taken.clone_from(&self.preceding.whitespace);
        std::mem::take(&mut self.preceding.whitespace)
    }

    /// Keeps the whitespace before a call, for content after it.
    pub(super) fn keep_whitespace_before_call(&mut self) {
        let taken = std::mem::take(&mut self.preceding.taken);
        let follows_content = !self.parsed.content.is_empty() && self.json.is_none();
        if follows_content && self.preceding.around_calls.is_none() {
            self.preceding.around_calls = Some([taken, String::new()]);
        }
    }

    /// Keeps the whitespace at the end of the text after a call.
    pub(super) fn keep_whitespace_after_call(&mut self, text: &str) {
        if let Some([_, after]) = &mut self.preceding.around_calls {
            after.push_str(&text[text.trim_end_matches(is_whitespace).len()..]);
        }
    }

    /// Drops markup that encloses a call, with the whitespace before it.
    pub(super) fn enclosing_marker_passed(&mut self) {
        if let Some([_, after]) = &mut self.preceding.around_calls {
            after.clear();
        }
        self.marker_passed();
    }

    pub(super) fn begin_reasoning(&mut self) {
        self.destination = Destination::Reasoning;
        self.preceding.code = CodeScanner::default();
        self.reasoning.is_empty = true;
        self.reasoning.opened_twice = false;
        self.marker_passed();
    }

    /// Ends a message to a function or to an unknown recipient.
    pub(super) fn leave_message(&mut self) {
        if let Destination::Arguments(_) = self.destination {
            self.note("arguments_invalid_json", "the message to the function is not a JSON object");
        }
        if self.destination != Destination::Reasoning {
            self.destination = Destination::Content;
        }
    }

    /// Starts a message that is no part of the reply.
    pub(super) fn begin_leftover(&mut self, destination: Destination) {
        self.destination = destination;
        self.parsed.leftover.push(String::new());
    }

    /// Like [`push_char`](Self::push_char), for each character.
    pub(super) fn push_text(&mut self, text: &str) {
        for c in text.chars() {
            self.push_char(c);
        }
    }

    /// Appends a character that is not part of a marker. Whitespace is held until text follows.
    pub(super) fn push_char(&mut self, c: char) {
        let preceding = &mut self.preceding;
        preceding.code.step(c, preceding.line_start);
        if is_whitespace(c) {
            preceding.line_start |= c == '\n';
            if !preceding.marker {
                preceding.whitespace.push(c);
            } else if let Some([_, after]) = &mut preceding.around_calls {
                after.push(c);
            }
            if self.may_stream_whitespace() {
                let whitespace = self.take_whitespace();
                self.emit(&whitespace);
            }
            return;
        }
        preceding.line_start = false;
        preceding.marker = false;
        preceding.removed = false;
        preceding.call_in_fence = false;
        if std::mem::take(&mut preceding.call_tag_as_text) && matches!(c, '{' | '[') {
            self.note(
                "call_without_tools",
                "the reply contains a call, but the request allows none; it was kept as text",
            );
        }
        // The prompt contains the tag, so it is in no delta.
        if self.destination == Destination::Content
            && let Some(opening) = self.kept_opening.take()
        {
            self.parsed.content.push_str(&opening);
        }
        if self.destination == Destination::Content
            && let Some(around) = self.preceding.around_calls.take()
        {
            self.emit(&around.concat());
        }
        if !self.preceding.whitespace.is_empty() {
            let whitespace = self.take_whitespace();
            self.emit(&whitespace);
        }
        self.emit(c.encode_utf8(&mut [0; 4]));
    }

    /// Whether held whitespace is content, whatever follows it.
    fn may_stream_whitespace(&self) -> bool {
        self.streams_whitespace
            && self.destination == Destination::Content
            && !self.parsed.content.is_empty()
            && !self.preceding.removed
            && self.kept_opening.is_none()
    }

    /// Appends text unchanged, except that its control tokens are removed.
    pub(super) fn emit(&mut self, text: &str) {
        self.emit_to(self.destination, text);
    }

    fn emit_to(&mut self, destination: Destination, text: &str) {
        if self.controls.is_empty() {
            return self.append(destination, text);
        }
        let text = self.without_controls(destination, text);
        self.append(destination, &text);
    }

    fn append(&mut self, destination: Destination, text: &str) {
        if text.is_empty() {
            return;
        }
        match destination {
            Destination::Leftover | Destination::OtherTurn => {
                match self.parsed.leftover.last_mut() {
                    Some(last) => last.push_str(text),
                    None => self.parsed.leftover.push(text.to_owned()),
                }
            }
            Destination::Arguments(index) => {
                self.parsed.tool_calls[index].arguments.push_str(text);
                match self.deltas.last_mut() {
                    Some(Delta::Arguments { index: last, fragment }) if *last == index => {
                        fragment.push_str(text)
                    }
                    _ => self.deltas.push(Delta::Arguments { index, fragment: text.to_owned() }),
                }
            }
            Destination::Content => match self.json.as_mut().map(|json| json.push(text)) {
                Some(text) => self.append_content(&text),
                None => self.append_content(text),
            },
            Destination::Reasoning => {
                let all = self.parsed.reasoning.get_or_insert_default();
                let join = if self.reasoning.is_empty && !all.is_empty() { "\n" } else { "" };
                self.reasoning.is_empty = false;
                all.push_str(join);
                all.push_str(text);
                match self.deltas.last_mut() {
                    Some(Delta::Reasoning(last)) => {
                        last.push_str(join);
                        last.push_str(text);
                    }
                    _ => self.deltas.push(Delta::Reasoning(format!("{join}{text}"))),
                }
            }
        }
    }

    fn append_content(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.parsed.content.push_str(text);
        match self.deltas.last_mut() {
            Some(Delta::Content(last)) => last.push_str(text),
            _ => self.deltas.push(Delta::Content(text.to_owned())),
        }
    }

    /// Adds a call to the message and returns its index. `id_expected` says whether a missing id is
    /// reported.
    pub(super) fn begin_call(
        &mut self,
        name: String,
        id: Option<String>,
        id_expected: bool,
    ) -> usize {
        let id = id.filter(|id| !id.is_empty());
        let is_repeated = id.as_ref().is_some_and(|id| self.ids.contains(id));
        match &id {
            Some(id) if is_repeated => self.note(
                "id_generated",
                &format!("another call has the id `{id}`; a new id was generated"),
            ),
            None if id_expected => {
                self.note("id_generated", "the call has no id; one was generated")
            }
            _ => {}
        }
        let id = id.filter(|_| !is_repeated).unwrap_or_else(&mut self.new_id);
        let index = self.parsed.tool_calls.len();
        self.ids.insert(id.clone());
        self.deltas.push(Delta::ToolCall { index, id: id.clone(), name: name.clone() });
        self.parsed.tool_calls.push(ToolCall { id, name, arguments: String::new() });
        index
    }

    /// Emits the arguments that the reader has read since the last time.
    pub(super) fn emit_arguments(&mut self, reader: &mut CallReader, index: usize) {
        self.emit_to(Destination::Arguments(index), reader.arguments());
        reader.clear_arguments();
    }

    /// Emits the rest of the arguments and reports their faults.
    pub(super) fn end_arguments(&mut self, reader: &mut CallReader, index: usize) {
        reader.end();
        self.emit_arguments(reader, index);
        if reader.lacks_arguments() {
            self.emit_to(Destination::Arguments(index), "{}");
            self.note("arguments_missing", "the call has no arguments");
        }
        self.note_relaxed(reader);
        if let Some(late) = reader.id().filter(|id| !self.ids.contains(*id)) {
            self.note(
                "id_generated",
                &format!("the id `{late}` follows the arguments; the call already has a new id"),
            );
        }
        let text = &self.parsed.tool_calls[index].arguments;
        let faults = json::check_object(text);
        if faults.too_deep {
            let max = json_scanner::NESTING_CAP;
            self.note("arguments_too_deep", &format!("more than {max} levels of nesting"));
        } else if faults.any() {
            let message = match json::repair(text) {
                Some(repaired) => {
                    format!("the arguments are not a JSON object; repaired: {repaired}")
                }
                None => "the arguments are not a JSON object".to_owned(),
            };
            self.note("arguments_invalid_json", &message);
        }
    }

    /// Reports the deviations that the reader accepted.
    pub(super) fn note_relaxed(&mut self, reader: &mut CallReader) {
        for (code, message) in reader.take_notes() {
            self.note(code, &message);
        }
        self.parsed.leftover.extend(reader.take_leftover());
    }

    pub(super) fn note_control(&mut self, text: &str) {
        self.note_once(
            "control_token_removed",
            &format!("the control token `{text}` is in no part of the format here and was removed"),
        );
    }

    /// The text for this part of the message, without pending control tokens.
    fn without_controls(&mut self, destination: Destination, text: &str) -> String {
        if self.controls.destination.is_some_and(|other| other != destination) {
            self.flush_controls();
        }
        self.controls.destination = Some(destination);
        let mut removed = Vec::new();
        let shown = self.controls.without(text, &mut removed);
        for text in removed {
            self.note_control(&text);
        }
        shown
    }

    /// A name or an id without pending control tokens.
    pub(super) fn word_without_controls(&mut self, mut word: String) -> String {
        for spelling in self.controls.spellings.clone() {
            if word.contains(&spelling) {
                let rest = word.replace(&spelling, "");
                if !rest.is_empty() {
                    word = rest;
                    self.note_control(&spelling);
                }
            }
        }
        word
    }

    /// Forgets pending control tokens, because everything read so far is decided.
    pub(super) fn forget_controls(&mut self) {
        if !self.controls.is_empty() {
            self.flush_controls();
            self.controls.spellings.clear();
        }
    }

    fn flush_controls(&mut self) {
        let held = std::mem::take(&mut self.controls.held);
        if let Some(destination) = self.controls.destination.take() {
            self.append(destination, &held);
        }
    }

    /// Emits what is held of a JSON reply, because the reply is more than a value.
    pub(super) fn release_json(&mut self) {
        if let Some(held) = self.json.as_mut().map(JsonContent::release) {
            self.append(Destination::Content, &held);
        }
    }

    /// Decides what is held of a JSON reply at its end.
    pub(super) fn end_json(&mut self) {
        let Some(json) = self.json.take() else { return };
        let (shown, unwrapped) = json.end(&self.parsed.content);
        if unwrapped {
            self.note("json_unwrapped", "the text around the JSON value was removed");
        }
        self.append(Destination::Content, &shown);
    }
}
