//! The reply parser: generated text -> deltas, and at the end the message they form.
//!
//! The parser processes one character at a time, so the way the text was cut into pieces has no
//! effect. It holds back text that may still become a marker, whitespace next to a marker, and a
//! call up to its commit point. It emits all other text at once and never takes it back. Held text
//! is decided once, as a whole, so the work is linear in the length of the text.
//!
//! - [`settings`] is what is known before the first character.
//! - [`calls`] reads calls; [`call_like`] says why text that looks like one stayed text.
//! - [`emitter`] appends text to the message.
//! - [`states`] lists the states, each with its own data. [`context`] is what they share.

mod call_like;
mod calls;
mod context;
mod emitter;
mod end_of_text;
mod generation_prompt;
mod settings;
mod states;
mod surroundings;

use std::sync::Arc;

use super::markup::{ControlScanner, ControlSpellings, TurnReader};
use super::message::{Delta, Destination, ParsedReply};
use calls::CallForms;
use context::{FailedOpening, ParserContext, Source};
use emitter::{Emitter, JsonContent};
use settings::ParserSettings;
use states::{ParserState, Transition};

pub use emitter::JsonValidator;
pub use settings::{CallValidator, PreparedFormat, ReplyParserInput};

/// The readers of the markup around an answer.
#[derive(Debug, Default)]
struct Surroundings {
    turn: Option<TurnReader>,
    /// Used when control tokens are recognised only by their spelling in text.
    scanner: Option<(Arc<ControlSpellings>, ControlScanner)>,
    /// Whether the reply continued with another turn.
    next_turn: bool,
}

/// Separates content, reasoning and calls in a model's reply.
pub struct ReplyParser {
    surroundings: Surroundings,
    /// If the prompt opens reasoning that stays in the content: the start of the reply, while it may
    /// still be one of the tags.
    held_start: Option<String>,
    cx: ParserContext,
    state: ParserState,
    /// Whether the text is only the beginning of a longer one.
    partial: bool,
}

impl ReplyParser {
    /// Creates a parser at the start of a reply.
    pub fn new(input: ReplyParserInput<'_>) -> ReplyParser {
        let prepared = input.format.map(PreparedFormat::new).unwrap_or_default();
        ReplyParser::with_prepared(&prepared, input)
    }

    /// Like [`new`](Self::new), with `prepared` made from the same format.
    pub fn with_prepared(prepared: &PreparedFormat, input: ReplyParserInput<'_>) -> ReplyParser {
        let settings = ParserSettings::new(prepared, &input);
        let forms = CallForms::new(prepared.form_for(&input));
        let mut out = Emitter::new(input.new_id);
        // Tags that stay in the content are not removed with the text around a value.
        let keeps_tags = settings.unsplit_reasoning().is_some();
        out.json = (input.json && !keeps_tags).then(JsonContent::default);
        let cx = ParserContext {
            settings,
            forms,
            out,
            source: Source::Reply,
            failed_opening: FailedOpening::None,
            pending_close: false,
            shown_header: false,
            turn_repeated: false,
        };
        let (surroundings, held_start) = (Surroundings::default(), None);
        ReplyParser { surroundings, held_start, cx, state: ParserState::text(), partial: false }
    }

    /// Reserves the ids of earlier calls of the conversation. If the model repeats one of them, the
    /// call gets a new id.
    pub fn reserve_ids(&mut self, ids: impl Iterator<Item = String>) {
        self.cx.out.ids.extend(ids);
    }

    /// Sets the check for calls without the format's tags (in a fence, in an element of another
    /// name, or without any tag). They count only if the validator accepts them; if not,
    /// its error is the reason in the diagnostic.
    pub fn set_call_validator(&mut self, validator: CallValidator) {
        self.cx.settings.call_validator = Some(validator);
    }

    /// Lets the validator check every call that no grammar constrained. The grammar takes effect at
    /// the model's own opening tag. A call in the form of another family or in reasoning, and a
    /// call of a format without tags, then also counts only if the validator accepts it.
    pub fn validate_unconstrained_calls(&mut self) {
        self.cx.settings.validates_unconstrained = true;
    }

    /// States that a grammar constrains the model's own calls and ends the reply after them. A call
    /// that may end reasoning is then emitted as it comes, because no closing tag can follow it.
    pub fn expect_constrained_calls(&mut self) {
        self.cx.settings.calls_are_constrained = true;
    }

    /// Sets whether text without tags may be calls. If not, such calls count only in fenced blocks,
    /// and at the start of a reply in formats whose models omit the tags.
    pub fn set_untagged_calls(&mut self, accepted: bool) {
        self.cx.settings.untagged_calls = accepted;
    }

    /// Sets the check for the value that the request asks for. Without it any JSON is accepted.
    pub fn set_json_validator(&mut self, validator: JsonValidator) {
        if let Some(json) = &mut self.cx.out.json {
            json.validator = Some(validator);
        }
    }

    /// Treats calls in the forms of other families as text, so that a render can confirm only this
    /// format.
    pub(crate) fn read_own_calls_only(&mut self) {
        self.cx.settings.own_calls_only = true;
    }

    /// Sets the special tokens of the vocabulary that may begin a call. A call that begins with one
    /// of them counts in the form of any family, and for any tool.
    pub fn set_special_openings(&mut self, tokens: Arc<[String]>) {
        self.cx.settings.special_openings = tokens;
    }

    /// Emits whitespace inside the content at once, in a reply that can have no calls, no JSON and
    /// no markup around its content. The whitespace before the end of the turn, if that is part of
    /// the text, is then content too.
    pub fn stream_whitespace(&mut self) {
        self.cx.out.streams_whitespace = self.cx.settings.is_plain;
    }

    /// Marks the text as the beginning of a longer one. At its end, held text is not decided, so
    /// the message of a longer beginning only adds to this message.
    pub fn expect_more(&mut self) {
        self.partial = true;
    }

    /// Whether the current text belongs to a reasoning block.
    pub fn is_reasoning(&self) -> bool {
        self.cx.out.destination == Destination::Reasoning
    }

    /// Parses the next piece of text and returns the deltas that it completes. The text may be cut
    /// anywhere.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        self.receive(text);
        std::mem::take(&mut self.cx.out.deltas)
    }

    /// Parses a control token that was generated as a single token. Text that merely spells one
    /// must go to [`push`](Self::push).
    pub fn push_control(&mut self, text: &str) -> Vec<Delta> {
        self.receive_control(text);
        std::mem::take(&mut self.cx.out.deltas)
    }

    /// Ends the text. Returns the deltas of held text, and the whole message.
    pub fn finish(self) -> (Vec<Delta>, ParsedReply) {
        self.finish_text(false)
    }

    /// Like [`finish`](Self::finish), for a text that the model did not end itself. A call inside
    /// unclosed reasoning stays reasoning.
    pub fn finish_early(self) -> (Vec<Delta>, ParsedReply) {
        self.finish_text(true)
    }

    fn finish_text(mut self, early: bool) -> (Vec<Delta>, ParsedReply) {
        if self.partial {
            self.announce_call();
            self.cx.out.parsed.complete = false;
        } else {
            self.end_surroundings();
            self.end(early);
            self.cx.out.forget_controls();
            self.cx.out.end_json();
            self.cx.report_call_like_content();
        }
        let Emitter { deltas, mut parsed, .. } = self.cx.out;
        parsed.reasoning = parsed.reasoning.filter(|reasoning| !reasoning.is_empty());
        (deltas, parsed)
    }

    /// Parses each character, and the text that the states return. That text is never longer than
    /// the start of a marker, an object, or the text between two calls.
    fn feed(&mut self, text: &str) {
        let mut chars = text.chars();
        loop {
            if self.is_inside_text() {
                let markers = &self.cx.forms.current.markers;
                let (plain, rest) = chars.as_str().split_at(markers.plain_length(chars.as_str()));
                if !plain.is_empty() {
                    self.cx.out.emit(plain);
                }
                chars = rest.chars();
            }
            let Some(c) = chars.next() else { return };
            if self.cx.forms.is_foreign() {
                self.leave_foreign();
            }
            let transition = self.state.step(c, &mut self.cx);
            self.follow(transition);
        }
    }

    fn follow(&mut self, transition: Transition) {
        let again = match transition {
            Transition::Stay => return,
            Transition::Again(again) => again,
            Transition::To(state, again) => {
                self.state = state;
                again
            }
        };
        if !again.is_empty() {
            self.feed(&again);
        }
    }

    /// Whether the next character is text unless it begins a marker or a call.
    fn is_inside_text(&self) -> bool {
        self.state.is_plain_text() && !self.cx.forms.is_foreign() && self.cx.out.is_inside_text()
    }

    /// Returns to the model's own format once the call of another family is over.
    fn leave_foreign(&mut self) {
        if !self.state.is_call() {
            let calls = self.cx.out.parsed.tool_calls.len();
            self.cx.pending_close |= self.cx.forms.leave(calls);
        }
    }
}
