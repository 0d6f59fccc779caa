//! The reply parser: generated text -> deltas, and at the end the message they form.
//!
//! The parser processes one character at a time, so the way the text was cut into pieces has no
//! effect. It holds back text that may still become a marker, whitespace next to a marker, and a
//! call up to its commit point. It emits all other text at once and never takes it back. Held text
//! is decided once, as a whole, so the work is linear in the length of the text.
//!
//! [`ParserState`] lists the states. Each state has its own file.

mod after_call;
mod call_object;
mod call_patterns;
mod call_reader;
mod candidate;
mod committed;
mod controls;
mod emit;
mod end_of_text;
mod envelope;
mod fence;
mod foreign;
mod generation_prompt;
mod header;
mod json_content;
mod kept_opening;
mod marker_set;
mod prepared_format;
mod request_tools;
mod suspended;
mod text;

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::format::{Channels, Format, FormatText, ReasoningTags};
use super::message::{Delta, ParsedReply};
use crate::diagnostic::Diagnostic;
use after_call::AfterCall;
use call_patterns::CallPatterns;
use candidate::Candidate;
use committed::CommittedCall;
use controls::{PendingControls, Surroundings};
use envelope::Envelope;
use fence::Fence;
use foreign::{CodeScanner, ForeignCall, ForeignForm};
use header::Header;
use json_content::JsonContent;
use kept_opening::KeptOpening;
use marker_set::MarkerSet;
use request_tools::RequestTools;

pub use prepared_format::PreparedFormat;

const FENCE: &str = "```";
/// The maximum number of diagnostics of a reply.
const MAX_DIAGNOSTICS: usize = 64;

/// What a reply parser needs before the first piece of text.
pub struct ReplyParserInput<'a> {
    /// How the model writes calls and reasoning. None means plain text.
    pub format: Option<&'a Format>,
    /// The request's tools, as OpenAI tool objects.
    pub tools: Arc<Vec<Value>>,
    /// Whether the request has tools and `tool_choice` is not `none`. If not, the markup of calls
    /// is ordinary text.
    pub calls_allowed: bool,
    /// Whether reasoning is separated from content. If not, it stays in the content with its tags.
    pub reasoning: bool,
    /// Whether the request asks for JSON. A fence and sentences around the value are then removed.
    pub json: bool,
    /// Whether the request allows more than one call. A second call is accepted anyway, but
    /// reported if it is not allowed.
    pub parallel: bool,
    /// Generates the id of a call that has none.
    pub new_id: Box<dyn FnMut() -> String + Send>,
}

/// Checks the arguments of a call. The parameters are the function's name and the arguments as JSON
/// text.
pub type CallValidator = Box<dyn Fn(&str, &str) -> bool + Send>;

/// Checks whether JSON text is what the request asks for.
pub type JsonValidator = Box<dyn Fn(&str) -> bool + Send>;

/// The part of the message that text is appended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Destination {
    Content,
    Reasoning,
    /// No part, because the text is in a message to an unknown recipient.
    Leftover,
    /// The arguments of this call, because the text is in a message to a function but not in the
    /// format's encoding.
    Arguments(usize),
}

/// The state of the last opening tag that was not followed by a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FailedOpening {
    /// No such tag.
    None,
    /// There was such a tag, and it was not reported. A closing tag would show that a call was
    /// intended.
    Silent,
    Reported,
}

#[derive(Debug)]
enum ParserState {
    /// Content or reasoning. `ReplyParser::tail` may hold the start of a marker.
    Text,
    /// The header of a message.
    Header(Header),
    /// Text that may be a call: after an opening tag, or after a brace where calls have no tag.
    Candidate(Box<Candidate>),
    /// A call after its commit point.
    Committed(Box<CommittedCall>),
    /// After a call. A closing tag, another call or text may follow.
    AfterCall(AfterCall),
    /// A fenced block up to the end of its object.
    Fence(Box<Fence>),
    /// A fenced block after the object. Only the closing fence may follow.
    FenceEnd(Box<Fence>),
    /// A JSON object that may be the whole reply, calls included.
    Envelope(Box<Envelope>),
    /// A complete call inside reasoning. If the reasoning never closes it is a call, otherwise
    /// text.
    Suspended { held: String, tail: String },
}

/// Separates content, reasoning and calls in a model's reply.
pub struct ReplyParser {
    patterns: Arc<CallPatterns>,
    followers: Arc<[FormatText]>,
    markers: Arc<MarkerSet>,
    /// The texts of the format, in which its control tokens occur.
    format_texts: Arc<[String]>,
    surroundings: Surroundings,
    pending_controls: PendingControls,
    /// Whether markup was removed and no text has followed it.
    after_removed: bool,
    /// Whether the model repeated the header of its turn.
    turn_repeated: bool,
    /// Whether the reply continued with another turn.
    next_turn: bool,
    splits_reasoning: bool,
    /// The tags of reasoning that is separated from content.
    reasoning: Option<ReasoningTags>,
    /// The tags of reasoning that stays in the content.
    unsplit_reasoning: Option<ReasoningTags>,
    /// Whether the closing tag of reasoning closes other messages too.
    close_is_end: bool,
    channels: Option<Arc<Channels>>,
    json: bool,
    /// Finds the value of a JSON reply.
    json_content: Option<JsonContent>,
    envelope: bool,
    untagged: bool,
    tools: RequestTools,
    calls_allowed: bool,
    parallel: bool,
    new_id: Box<dyn FnMut() -> String + Send>,
    /// The special tokens of the vocabulary that may begin a call.
    special_openings: Arc<[String]>,
    own_calls_only: bool,
    /// The call of another family that is being read.
    foreign: Option<Box<ForeignCall>>,
    /// The forms of calls of other families that occurred.
    foreign_forms: Vec<ForeignForm>,
    /// Checks calls that no grammar constrained.
    call_validator: Option<CallValidator>,

    destination: Destination,
    state: ParserState,
    /// Text that may become a marker.
    tail: String,
    /// Held whitespace. It is dropped if a marker follows.
    whitespace: String,
    /// Whether only whitespace has followed the last marker.
    after_marker: bool,
    line_start: bool,
    /// Tracks code in the text.
    code: CodeScanner,
    /// Whether the text is a message of another role.
    in_other_turn: bool,
    /// Whether a call with its tags was read from a fence that is still open.
    in_call_fence: bool,
    /// Whether the model, not the prompt, opened the current reasoning block.
    opened_by_tag: bool,
    /// Whether the current reasoning block has no text yet.
    block_empty: bool,
    /// Whether both the prompt and the model opened the current reasoning block.
    opened_twice: bool,
    failed_opening: FailedOpening,
    /// Whether a call ended without its closing tag. The next closing tag is then dropped.
    pending_close: bool,
    /// Whether calls are not allowed and an opening tag was emitted as text.
    call_tag_was_text: bool,
    /// Whether the header of the current message was emitted as text, because reasoning is not
    /// separated.
    shown_header: bool,
    /// Set if reasoning stays in the content and the prompt opened a block that has no text yet.
    kept_opening: Option<KeptOpening>,
    /// Whether the generation prompt is being read.
    priming: bool,
    /// Whether a suspended call is being read again as a call, after the end of the text.
    replaying: bool,
    /// Whether the text was ended by something other than the model.
    early: bool,
    /// Whether the text is only the beginning of a longer one.
    partial: bool,

    /// The ids of all calls so far.
    ids: HashSet<String>,
    deltas: Vec<Delta>,
    parsed: ParsedReply,
}

impl ReplyParser {
    /// Creates a parser at the start of a reply.
    pub fn new(input: ReplyParserInput<'_>) -> ReplyParser {
        let prepared = input.format.map(PreparedFormat::new).unwrap_or_default();
        ReplyParser::with_prepared(&prepared, input)
    }

    /// Like [`new`](Self::new), with `prepared` made from the same format.
    pub fn with_prepared(prepared: &PreparedFormat, input: ReplyParserInput<'_>) -> ReplyParser {
        let format = input.format;
        let PreparedFormat { patterns, followers, channels, texts, .. } = prepared.clone();
        let tags = format.and_then(|format| format.reasoning.clone());
        let close_is_end = tags
            .as_ref()
            .is_some_and(|tags| format.is_some_and(|format| format.ends.contains(&tags.close)));
        // Tags that stay in the content are not removed with the text around a value.
        let keeps_tags = !input.reasoning && tags.is_some();
        let (reasoning, unsplit_reasoning) =
            if input.reasoning { (tags, None) } else { (None, tags) };
        ReplyParser {
            markers: prepared.markers_for(&input),
            followers,
            patterns,
            format_texts: texts,
            surroundings: Surroundings::default(),
            pending_controls: PendingControls::default(),
            after_removed: false,
            turn_repeated: false,
            next_turn: false,
            splits_reasoning: input.reasoning,
            reasoning,
            unsplit_reasoning,
            close_is_end,
            channels,
            json: input.json,
            json_content: (input.json && !keeps_tags).then(JsonContent::default),
            envelope: format.is_some_and(|format| format.envelope),
            untagged: !input.json && format.is_some_and(|format| format.untagged),
            tools: RequestTools::new(input.tools),
            calls_allowed: input.calls_allowed,
            parallel: input.parallel,
            new_id: input.new_id,
            special_openings: Arc::new([]),
            own_calls_only: false,
            foreign: None,
            foreign_forms: Vec::new(),
            call_validator: None,
            destination: Destination::Content,
            state: ParserState::Text,
            tail: String::new(),
            whitespace: String::new(),
            after_marker: false,
            line_start: true,
            code: CodeScanner::default(),
            in_other_turn: false,
            in_call_fence: false,
            opened_by_tag: false,
            block_empty: true,
            opened_twice: false,
            failed_opening: FailedOpening::None,
            pending_close: false,
            call_tag_was_text: false,
            shown_header: false,
            kept_opening: None,
            priming: false,
            replaying: false,
            early: false,
            partial: false,
            ids: HashSet::new(),
            deltas: Vec::new(),
            parsed: ParsedReply { complete: true, ..ParsedReply::default() },
        }
    }

    /// Reserves the ids of earlier calls of the conversation. If the model repeats one of them, the
    /// call gets a new id.
    pub fn reserve_ids(&mut self, ids: impl Iterator<Item = String>) {
        self.ids.extend(ids);
    }

    /// Sets the check for calls that no grammar constrained. The grammar takes effect at the
    /// model's own opening tag. A call that begins differently (in a fence, without a tag, in the
    /// form of another family, in reasoning) then counts only if the validator accepts it.
    pub fn set_call_validator(&mut self, validator: CallValidator) {
        self.call_validator = Some(validator);
    }

    /// Whether the current text belongs to a reasoning block.
    pub fn is_reasoning(&self) -> bool {
        self.destination == Destination::Reasoning
    }

    /// Parses the next piece of text and returns the deltas that it completes. The text may be cut
    /// anywhere.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        self.receive(text);
        std::mem::take(&mut self.deltas)
    }

    /// Parses a control token that was generated as a single token. Text that merely spells one
    /// must go to [`push`](Self::push).
    pub fn push_control(&mut self, text: &str) -> Vec<Delta> {
        self.receive_control(text);
        std::mem::take(&mut self.deltas)
    }

    /// Ends the text. Returns the deltas of held text, and the whole message.
    pub fn finish(mut self) -> (Vec<Delta>, ParsedReply) {
        if self.partial {
            self.parsed.complete = false;
        } else {
            self.end_surroundings();
            self.end();
            self.forget_controls();
            self.end_json();
            self.report_untagged_call();
        }
        if self.parsed.reasoning.as_deref() == Some("") {
            self.parsed.reasoning = None;
        }
        (self.deltas, self.parsed)
    }

    /// Marks the text as the beginning of a longer one. At its end, held text is not decided, so
    /// the message of a longer beginning only adds to this message.
    pub fn expect_more(&mut self) {
        self.partial = true;
    }

    /// Like [`finish`](Self::finish), for a text that the model did not end itself. A call inside
    /// unclosed reasoning stays reasoning.
    pub fn finish_early(mut self) -> (Vec<Delta>, ParsedReply) {
        self.early = true;
        self.finish()
    }

    /// Parses the text of the answer.
    fn read_answer(&mut self, text: &str) {
        match &self.kept_opening {
            Some(opening) if opening.is_undecided() => self.receive_after_opening(text),
            _ => self.feed(text),
        }
    }

    fn step(&mut self, c: char) {
        if self.foreign.is_some() {
            self.leave_foreign();
        }
        match std::mem::replace(&mut self.state, ParserState::Text) {
            ParserState::Text if c == '{' && self.may_open_envelope() => self.open_envelope(c),
            ParserState::Text if !self.markers.may_begin(c) && self.may_open_untagged(c) => {
                self.open_untagged(c)
            }
            ParserState::Text => self.text_step(c),
            ParserState::Header(header) => self.header_step(header, c),
            ParserState::Candidate(candidate) => self.candidate_step(candidate, c),
            ParserState::Committed(call) => self.committed_step(call, c),
            ParserState::AfterCall(after) => self.after_call_step(after, c),
            ParserState::Envelope(envelope) => self.envelope_step(envelope, c),
            ParserState::Fence(fence) => self.fence_step(fence, c),
            ParserState::FenceEnd(fence) => self.fence_end_step(fence, c),
            ParserState::Suspended { held, tail } => self.suspended_step(held, tail, c),
        }
    }

    /// Like [`note`](Self::note), but reports each code only once.
    fn note_once(&mut self, code: &'static str, message: &str) {
        let known = |known: &Diagnostic| known.code == code && known.message == message;
        if !self.parsed.diagnostics.iter().any(known) {
            self.note(code, message);
        }
    }

    fn note(&mut self, code: &'static str, message: &str) {
        if self.parsed.diagnostics.len() < MAX_DIAGNOSTICS {
            self.parsed.diagnostics.push(Diagnostic::new(code, message));
        }
    }
}

/// The whitespace characters of JSON.
fn is_whitespace(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}
