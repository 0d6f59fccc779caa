//! What a reply parser knows before the first character: the format, the tools and the options of
//! the request. Nothing here changes while a reply is read.

use std::sync::Arc;

use serde_json::Value;

use super::calls::call_reader::CallReader;
use super::calls::marker_set::MarkerSet;
use super::calls::request_tools::RequestTools;
use super::calls::{CALL_LIKE, CallForm};
use crate::diagnostic::Diagnostic;
use crate::output::format::{Channels, Format, ReasoningTags, Tagged};
use crate::output::read::{ValueEnds, json};

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
/// text. The error says what is wrong with them, in its message and members.
pub type CallValidator = Box<dyn Fn(&str, &str) -> Result<(), Diagnostic> + Send>;

/// The data that a parser derives from a format alone. It is computed once per model. The default is
/// that of replies without a format.
#[derive(Debug, Clone, Default)]
pub struct PreparedFormat {
    /// How calls are read in replies whose reasoning is separated.
    form: CallForm,
    channels: Option<Arc<Channels>>,
    /// Every text of the format.
    texts: Arc<[String]>,
}

impl PreparedFormat {
    /// Prepares a format.
    pub fn new(format: &Format) -> PreparedFormat {
        PreparedFormat {
            form: CallForm::new(format),
            channels: format.channels.clone().map(Arc::new),
            texts: format.texts().into_iter().map(str::to_owned).collect(),
        }
    }

    /// The tags that close a call or a section.
    pub(crate) fn closing_tags(&self) -> &[String] {
        &self.form.own_followers.closing
    }

    /// Where raw values of this encoding end.
    pub(crate) fn value_ends(&self, tagged: &Tagged) -> ValueEnds {
        ValueEnds::new(tagged, &self.form.own_followers)
    }

    /// How the calls of a reply to this request are read.
    pub(super) fn form_for(&self, input: &ReplyParserInput<'_>) -> CallForm {
        let mut form = self.form.clone();
        if let Some(format) = input.format.filter(|_| !input.reasoning) {
            form.markers = Arc::new(MarkerSet::new(format, &form.patterns, false));
        }
        form
    }
}

/// The format and the request, as the states read them.
pub(super) struct ParserSettings {
    /// The texts of the format, in which its control tokens occur.
    format_texts: Arc<[String]>,
    /// The tags of reasoning, whether it is separated or not.
    tags: Option<ReasoningTags>,
    pub(super) splits_reasoning: bool,
    /// Whether the closing tag of reasoning closes other messages too.
    pub(super) close_is_end: bool,
    pub(super) channels: Option<Arc<Channels>>,
    pub(super) json: bool,
    /// Whether only the end of the turn and reasoning are markup in the content.
    pub(super) is_plain: bool,
    pub(super) envelope: bool,
    pub(super) untagged: bool,
    pub(super) tools: RequestTools,
    pub(super) calls_allowed: bool,
    pub(super) parallel: bool,
    /// The special tokens of the vocabulary that may begin a call.
    pub(super) special_openings: Arc<[String]>,
    /// Whether calls in the forms of other families are text.
    pub(super) own_calls_only: bool,
    /// Whether text without tags may be calls.
    pub(super) untagged_calls: bool,
    /// Checks the arguments of calls without tags.
    pub(super) call_validator: Option<CallValidator>,
    /// Whether it also checks other calls that no grammar constrained.
    pub(super) validates_unconstrained: bool,
    /// The tag from which a grammar constrains the model's own calls.
    own_tag: Option<String>,
    /// Whether a grammar constrains them.
    pub(super) calls_are_constrained: bool,
}

impl ParserSettings {
    pub(super) fn new(prepared: &PreparedFormat, input: &ReplyParserInput<'_>) -> ParserSettings {
        let format = input.format;
        let tags = format.and_then(|format| format.reasoning.clone());
        let has_wrappers = |format: &Format| {
            !format.wrappers.is_empty()
                || !format.repeated_header.is_empty()
                || format.channels.is_some()
        };
        let is_end = |tags: &ReasoningTags| format.is_some_and(|f| f.ends.contains(&tags.close));
        ParserSettings {
            format_texts: Arc::clone(&prepared.texts),
            close_is_end: tags.as_ref().is_some_and(is_end),
            tags,
            splits_reasoning: input.reasoning,
            channels: prepared.channels.clone(),
            json: input.json,
            is_plain: !input.calls_allowed && !input.json && !format.is_some_and(has_wrappers),
            envelope: format.is_some_and(|format| format.envelope),
            untagged: !input.json && format.is_some_and(|format| format.untagged),
            tools: RequestTools::new(Arc::clone(&input.tools)),
            calls_allowed: input.calls_allowed,
            parallel: input.parallel,
            special_openings: Arc::new([]),
            own_calls_only: false,
            untagged_calls: true,
            call_validator: None,
            validates_unconstrained: false,
            own_tag: format.and_then(|format| format.calls.as_ref()?.tag()).map(str::to_owned),
            calls_are_constrained: false,
        }
    }

    /// The tags of reasoning that is separated from content.
    pub(super) fn reasoning(&self) -> Option<&ReasoningTags> {
        self.tags.as_ref().filter(|_| self.splits_reasoning)
    }

    /// Whether a grammar constrains the call that begins with this text, and ends the reply after
    /// it.
    pub(super) fn is_constrained_from(&self, text: &str) -> bool {
        let tag = self.own_tag.as_deref().filter(|_| self.calls_are_constrained);
        tag.is_some_and(|tag| text.trim_start().starts_with(tag))
    }

    /// Whether a call ends reasoning that is never closed, as the model writes it.
    pub(super) fn calls_end_reasoning(&self) -> bool {
        self.reasoning().is_some_and(|tags| tags.closed_by_call)
    }

    /// The tags of reasoning that stays in the content.
    pub(super) fn unsplit_reasoning(&self) -> Option<&ReasoningTags> {
        self.tags.as_ref().filter(|_| !self.splits_reasoning)
    }

    /// Whether a tag of calls begins with a special token.
    pub(super) fn is_special(&self, tag: &str) -> bool {
        self.special_openings.iter().any(|token| tag.starts_with(&**token))
    }

    /// Whether a control token occurs in the format or may begin a call.
    pub(super) fn knows_control(&self, text: &str) -> bool {
        let known = |texts: &[String]| texts.iter().any(|known| known.contains(text));
        known(&self.format_texts) || known(&self.special_openings)
    }

    /// Whether a control token belongs to reasoning that stays in the content.
    pub(super) fn shows_control(&self, text: &str) -> bool {
        let tags = self.unsplit_reasoning();
        let in_tags = tags.is_some_and(|tags| tags.texts().any(|tag| tag.contains(text)));
        in_tags || (!self.splits_reasoning && self.channels.is_some())
    }

    /// Checks a call with the validator. Without a validator every call is accepted. Strings in
    /// place of other values are replaced if the call then matches.
    pub(super) fn validate(&self, reader: &mut CallReader) -> Result<(), Diagnostic> {
        let Some(validator) = &self.call_validator else { return Ok(()) };
        let arguments =
            if reader.lacks_arguments() { "{}".to_owned() } else { reader.arguments().to_owned() };
        let name = reader.name().unwrap_or_default();
        let name = self.tools.tool_name(name).unwrap_or(name).to_owned();
        let Err(because) = validator(&name, &arguments) else { return Ok(()) };
        let is_coerced = reader.coerce(|arguments| validator(&name, arguments).is_ok());
        if is_coerced { Ok(()) } else { Err(because) }
    }

    /// Like [`validate`](Self::validate), for a complete call without tags. Its arguments must be
    /// an object.
    pub(super) fn validate_untagged(&self, reader: &mut CallReader) -> Result<(), Diagnostic> {
        if reader.lacks_arguments() || !json::check_object(reader.arguments()).any() {
            return self.validate(reader);
        }
        let name = reader.name().unwrap_or_default();
        let message = format!("the arguments of `{name}` are not a JSON object");
        Err(Diagnostic::new(CALL_LIKE, message).with("tool", name))
    }
}
