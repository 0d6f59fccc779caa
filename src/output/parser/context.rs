//! What every state of the parser may use: the settings, the forms of calls, and the emitter; and
//! what happens in more than one state, such as the start and the end of a call.

use super::calls::CallForms;
use super::calls::call_reader::CallReader;
use super::emitter::{CodeScanner, Emitter};
use super::settings::ParserSettings;
use crate::output::message::Destination;

/// The state of the last opening tag that was not followed by a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailedOpening {
    /// No such tag.
    None,
    /// There was such a tag, and it was not reported. A closing tag would show that a call was
    /// intended.
    Silent,
    Reported,
}

/// The text that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// The generation prompt.
    Prompt,
    Reply,
    /// A suspended call, again as a call, after the end of the text.
    Suspended,
}

/// The surroundings of a state.
pub(super) struct ParserContext {
    pub(super) settings: ParserSettings,
    pub(super) forms: CallForms,
    pub(super) out: Emitter,
    pub(super) source: Source,
    pub(super) failed_opening: FailedOpening,
    /// Whether a call ended without its closing tag. The next closing tag is then dropped.
    pub(super) pending_close: bool,
    /// Whether the header of the current message was emitted as text, because reasoning is not
    /// separated.
    pub(super) shown_header: bool,
    /// Whether the model repeated the header of its turn.
    pub(super) turn_repeated: bool,
}

impl ParserContext {
    /// Whether calls may begin. In the prompt, calls are text.
    pub(super) fn calls_allowed(&self) -> bool {
        self.settings.calls_allowed && self.source != Source::Prompt
    }

    /// Adds a call to the message and returns its index.
    pub(super) fn commit(&mut self, reader: &CallReader) -> usize {
        let ParserContext { settings, out, .. } = self;
        let name = out.word_without_controls(reader.name().unwrap_or_default().to_owned());
        let id = reader.id().map(|id| out.word_without_controls(id.to_owned()));
        let name = match settings.tools.tool_name(&name) {
            Some(own) if own == name => name,
            Some(own) => {
                out.note("tool_name_shortened", &format!("`{name}` was read as the tool `{own}`"));
                own.to_owned()
            }
            None => {
                out.note("unknown_tool", &format!("`{name}` is not a tool of the request"));
                name
            }
        };
        if out.parsed.tool_calls.len() == 1 && !settings.parallel {
            out.note(
                "parallel_not_requested",
                "there is more than one call, but the request allows only one",
            );
        }
        if out.destination == Destination::Reasoning {
            if !settings.calls_end_reasoning() {
                out.note("call_in_reasoning", "the call is inside reasoning that never closes");
            }
            out.destination = Destination::Content;
        }
        out.preceding.whitespace.clear();
        out.keep_whitespace_before_call();
        out.controls.committed = true;
        out.release_json();
        out.kept_opening = None;
        out.begin_call(name, id, self.forms.current.patterns.has_ids)
    }

    /// Ends a call whose arguments are complete.
    pub(super) fn end_call(&mut self, reader: &mut CallReader, index: usize) {
        self.out.end_arguments(reader, index);
        self.failed_opening = FailedOpening::None;
        self.pending_close = false;
        self.out.marker_passed();
    }

    /// Adds a complete call to the message.
    pub(super) fn add_call(&mut self, mut reader: CallReader) {
        let index = self.commit(&reader);
        self.end_call(&mut reader, index);
    }

    /// Whether the grammar did not constrain the call: it is in reasoning that calls do not end, has
    /// no tag, or has the form of another family.
    pub(super) fn needs_validation(&self, untagged: bool, reader: &CallReader) -> bool {
        let in_reasoning = self.source == Source::Suspended && !self.settings.calls_end_reasoning();
        self.settings.validates_unconstrained && (untagged || reader.foreign || in_reasoning)
    }

    /// Whether a call of a format without tags may begin with this character. A call that must be
    /// validated as a whole is read as a block instead.
    pub(super) fn may_open_untagged(&self, c: char) -> bool {
        let is_bracket = matches!(c, '{' | '[') && !self.settings.validates_unconstrained;
        (is_bracket || self.may_begin_name(c))
            && self.calls_allowed()
            && self.out.destination == Destination::Content
            && self.forms.current.patterns.untagged
    }

    /// Whether a line begins here that may name a given tool, in a format whose calls begin with
    /// the name.
    fn may_begin_name(&self, c: char) -> bool {
        self.forms.current.patterns.begins_with_name
            && self.out.preceding.line_start
            && self.settings.tools.is_begun(c.encode_utf8(&mut [0; 4]))
    }

    /// Whether an opening brace may begin an envelope. It may only do so at the start of the reply.
    pub(super) fn may_open_envelope(&self) -> bool {
        let settings = &self.settings;
        (settings.envelope || !(settings.json || settings.own_calls_only))
            && self.calls_allowed()
            && self.out.destination == Destination::Content
            && self.out.is_empty()
    }

    pub(super) fn empty_section(&mut self) {
        self.out.note("empty_section", "there is nothing between the call's tags");
        self.out.marker_passed();
    }

    /// Handles the end of a turn or a message.
    pub(super) fn message_ended(&mut self, text: &str) {
        if std::mem::take(&mut self.shown_header) {
            self.out.push_text(text);
            return self.out.marker_passed();
        }
        let in_tags = || {
            let tags = self.settings.reasoning();
            tags.is_some_and(|tags| tags.texts().any(|tag| tag.contains(text)))
        };
        if self.settings.channels.is_some() {
            self.out.destination = Destination::Content;
        } else if !in_tags() {
            self.out.note("eog_text_removed", &format!("`{text}` ends a turn and was removed"));
        }
        self.out.marker_passed();
    }

    pub(super) fn close_reasoning(&mut self) {
        if self.out.reasoning.is_empty && std::mem::take(&mut self.out.reasoning.opened_twice) {
            // The block consists of a repeated opening tag, which is the only text of the model.
            let open = self.settings.reasoning().map_or("", |tags| &*tags.open);
            self.out.emit(open);
        }
        self.out.destination = Destination::Content;
        self.out.preceding.code = CodeScanner::default();
        self.out.marker_passed();
    }

    /// The text after the opening tag of another family's call, if the tag also ends turns. The tag
    /// is then removed as the end of a turn.
    pub(super) fn drop_shown_end<'t>(&mut self, held: &'t str) -> Option<&'t str> {
        let (tag, _) = self.forms.foreign_tag().filter(|(_, ends_turn)| *ends_turn)?;
        let (before, rest) = held.split_once(tag)?;
        self.out.push_text(before);
        self.message_ended(tag);
        Some(rest)
    }

    /// Reports a call in the form of another family.
    pub(super) fn note_foreign(&mut self, pattern: Option<usize>) {
        let (Some((tag, ends_turn)), Some(pattern)) = (self.forms.foreign_tag(), pattern) else {
            return;
        };
        if ends_turn {
            let message = format!("`{tag}` ends a turn and was removed");
            return self.out.note("eog_text_removed", &message);
        }
        let family = &self.forms.current.patterns.list[pattern].family;
        let message = format!(
            "the call begins with `{tag}`, in the form of the family `{family}`, which is not the \
             model's own"
        );
        self.out.note("call_in_foreign_format", &message);
    }
}
