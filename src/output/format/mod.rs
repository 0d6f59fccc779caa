//! Output formats: how a model writes reasoning, text and tool calls, as data.
//!
//! A format describes, byte for byte and in order, what the model's own template writes:
//!
//! ```text
//! reply   := (text | reasoning | calls)*
//! calls   := open call (separator call)* close
//! call    := part+
//! ```
//!
//! A format has three users, and none of them depends on a family's name:
//!
//! - The reply parser accepts the format and many deviations from it.
//! - The constraint lets the sampler write exactly the format.
//! - The round trip checks that the template and the format agree.

mod encoding;
mod text;

use std::borrow::Cow;

use serde_json::Value;

pub use encoding::{Encoding, Keywords, Tagged, TypeWords, ValueKind};
pub(super) use text::FENCE;
pub use text::{ENTITY_SETS, Entities, FormatText};
pub(crate) use text::{tags, with_entities};

named_enum! {
    /// The origin of a format.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum FormatSource {
        /// The table of families.
        #[default]
        Family = "family",
        /// Inferred from renders of the template.
        Inferred = "inferred",
        /// The prompt of the tool-call polyfill.
        Polyfill = "polyfill",
        /// Instructions of the template, or the vocabulary. No render shows it.
        Evident = "evident",
    }
}

/// How a model writes a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Format {
    /// The family's stable name, shown as `output_format.family`. `inferred` if no family matches.
    pub family: FormatText,
    /// The origin.
    pub source: FormatSource,
    /// Whether a round trip through the model's own template returned its input.
    pub verified: bool,
    /// The tags around reasoning, if the model has them.
    pub reasoning: Option<ReasoningTags>,
    /// Tags around visible text, for example `<|START_RESPONSE|>`. They are not part of the text.
    pub wrappers: Vec<Wrapper>,
    /// The header of the turn, if a reply repeats it between its reasoning, its text and its calls:
    /// `<|message_model|>`. Empty if it does not.
    pub repeated_header: FormatText,
    /// The headers of a reply that consists of several messages.
    pub channels: Option<Channels>,
    /// How calls are written.
    pub calls: Option<CallSyntax>,
    /// Text that ends a turn or begins the next one, for example `<|eom_id|>`. It is removed
    /// wherever it occurs.
    pub ends: Vec<FormatText>,
    /// Whether a reply that is a single object `{"tool_calls": […], "content"}` is parsed as those
    /// calls and that content.
    pub envelope: bool,
    /// Whether a call of one of the request's tools needs no opening tag at the start of a reply,
    /// even if the request turns `untagged_calls` off. Models omit tags that they were not trained
    /// on, and tags of lists.
    pub untagged: bool,
}

impl Format {
    /// The text that opens a reasoning block, and the text that closes it before the answer.
    pub fn reasoning_tags(&self) -> Option<(String, String)> {
        if let Some(ReasoningTags { open, close, .. }) = &self.reasoning {
            return Some((open.to_string(), close.to_string()));
        }
        let Channels { turn, header, body, ends, reasoning, .. } = self.channels.as_ref()?;
        Some((format!("{header}{}{body}", reasoning.first()?), format!("{}{turn}", ends.first()?)))
    }

    /// Whether [`reasoning_tags`](Self::reasoning_tags) returns tags.
    pub fn marks_reasoning(&self) -> bool {
        let channels = self.channels.as_ref();
        self.reasoning.is_some()
            || channels.is_some_and(|tags| !tags.reasoning.is_empty() && !tags.ends.is_empty())
    }

    /// Every text that the format itself contributes to a reply, without names and values. The
    /// detokeniser must output the tokens of these texts, including control tokens.
    pub fn texts(&self) -> Vec<&str> {
        let mut texts: Vec<&FormatText> = self.ends.iter().collect();
        texts.extend(self.reasoning.iter().flat_map(ReasoningTags::texts));
        texts.extend(self.wrappers.iter().flat_map(|wrapper| [&wrapper.open, &wrapper.close]));
        texts.push(&self.repeated_header);
        if let Some(channels) = &self.channels {
            texts.extend([
                &channels.turn,
                &channels.header,
                &channels.body,
                &channels.recipient,
                &channels.function,
            ]);
            texts.extend(&channels.ends);
        }
        if let Some(calls) = &self.calls {
            texts.extend(calls.texts());
        }
        texts.into_iter().map(|text| &**text).filter(|text| !text.is_empty()).collect()
    }

    /// The number of letters and digits that the template requires in an id. `None` if it accepts
    /// any id.
    pub fn id_length(&self) -> Option<usize> {
        self.calls.iter().flat_map(|calls| &calls.call).find_map(|part| match part {
            CallPart::Id(IdForm::Alphanumeric(length)) => Some(*length),
            _ => None,
        })
    }

    /// Whether an id is the call's position in its turn. Such ids repeat in every turn.
    pub fn counts_ids(&self) -> bool {
        let parts = self.calls.iter().flat_map(|calls| &calls.call);
        parts
            .into_iter()
            .any(|part| matches!(part, CallPart::Id(IdForm::Index(_) | IdForm::Named { .. })))
    }
}

/// The tags around reasoning, without adjacent whitespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningTags {
    /// The opening tag, for example `<think>`. Empty if only the closing tag is written.
    pub open: FormatText,
    /// The closing tag.
    pub close: FormatText,
    /// Whether the model may end its reasoning with a call in place of the closing tag. Such a call
    /// is constrained, and is no deviation. In every format, a call inside reasoning counts only if
    /// the reasoning never closes.
    pub closed_by_call: bool,
    /// Whether the closing tag may occur without an opening tag. It then means either that there is
    /// no reasoning, or that all text before it is reasoning.
    pub close_only: bool,
    /// Further pairs of tags around reasoning of the same reply.
    pub others: Vec<ReasoningPair>,
}

impl ReasoningTags {
    /// A pair of tags that a call does not close, and whose closing tag needs an opening tag.
    pub(crate) fn new(open: FormatText, close: FormatText) -> ReasoningTags {
        ReasoningTags { open, close, closed_by_call: false, close_only: false, others: Vec::new() }
    }

    /// The closing tags.
    pub(crate) fn closings(&self) -> impl Iterator<Item = &FormatText> {
        std::iter::once(&self.close).chain(self.others.iter().map(|pair| &pair.close))
    }

    /// All tags.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &FormatText> {
        let others = self.others.iter().flat_map(|pair| [&pair.open, &pair.close]);
        [&self.open, &self.close].into_iter().chain(others)
    }
}

/// Two tags, without adjacent whitespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningPair {
    /// The opening tag.
    pub open: FormatText,
    /// The closing tag.
    pub close: FormatText,
}

/// Tags around visible text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrapper {
    /// The opening tag.
    pub open: FormatText,
    /// The closing tag. Empty if the wrapper has none.
    pub close: FormatText,
}

/// A reply that consists of messages with headers, as in harmony:
///
/// ```text
/// <|channel|>analysis<|message|>…<|end|>
/// <|start|>assistant<|channel|>commentary to=functions.f<|message|>{…}<|call|>
/// ```
///
/// (The line break is not part of the reply.) A header is the text from `turn` (or `header`) to
/// `body`. Its words name the channel and the recipient. The prompt ends inside the first header.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Channels {
    /// The start of a message, role included: `<|start|>assistant`.
    pub turn: FormatText,
    /// The start or continuation of a header: `<|channel|>`. May be empty.
    pub header: FormatText,
    /// The end of a header: `<|message|>`.
    pub body: FormatText,
    /// The ends of a message: `<|end|>`, `<|call|>`, `<|return|>`.
    pub ends: Vec<FormatText>,
    /// The prefix of the recipient: `to=`. Empty if the header is only the recipient.
    pub recipient: FormatText,
    /// The prefix of a function's name in the recipient: `functions.`. May be empty.
    pub function: FormatText,
    /// Channels or recipients whose body is reasoning: `analysis`.
    pub reasoning: Vec<FormatText>,
    /// Channels or recipients whose body is visible text: `final`, `commentary`.
    pub content: Vec<FormatText>,
}

impl Channels {
    /// The marker of a message, without the role: `<|start|>`. Empty if messages have none.
    pub(super) fn message(&self) -> &str {
        match self.turn.split_once("assistant") {
            Some((marker, _)) => marker.trim_end(),
            None => "",
        }
    }
}

/// How the template writes calls, whitespace included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallSyntax {
    /// The text before the first call, including the bracket of a list: `<TOOLCALL>[`. May be
    /// empty.
    pub open: FormatText,
    /// The text after the last call: `]</TOOLCALL>`. May be empty.
    pub close: FormatText,
    /// The text between two calls.
    pub separator: FormatText,
    /// The parts of one call. A JSON object consists of parts too: `{"name": "`, Name,
    /// `", "arguments": `, Arguments, `}`.
    pub call: Vec<CallPart>,
    /// Whether the template writes more than one call in a turn.
    pub parallel: bool,
}

impl CallSyntax {
    pub(super) fn texts(&self) -> impl Iterator<Item = &FormatText> {
        [&self.open, &self.close, &self.separator]
            .into_iter()
            .chain(self.call.iter().flat_map(CallPart::texts))
    }

    /// The tags in the texts of a call: `<tool_call>`, `[ARGS]`.
    pub(super) fn tags(&self) -> Vec<&str> {
        self.texts().flat_map(|text| tags(text)).collect()
    }

    /// Whether arguments are written in Python's notation.
    pub fn is_python(&self) -> bool {
        self.call.iter().any(|part| matches!(part, CallPart::Arguments(Encoding::Python(_))))
    }

    /// The tag at the start of the first call, if it cannot be mistaken for prose.
    pub fn tag(&self) -> Option<&str> {
        let first = match self.call.first() {
            Some(CallPart::Text(text)) => &**text,
            _ => "",
        };
        let word =
            [&*self.open, first].into_iter().find_map(|text| text.split_whitespace().next())?;
        let end = word.find(['>', ']']).map_or(word.len(), |at| at + 1);
        let tag = &word[..end];
        (tag.len() > 2 && tag.starts_with(['<', '[']) && !tag.contains(['{', '"'])).then_some(tag)
    }
}

/// A part of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallPart {
    /// Text of the template.
    Text(FormatText),
    /// The function's name.
    Name,
    /// The call's id.
    Id(IdForm),
    /// The arguments, in this encoding.
    Arguments(Encoding),
}

impl CallPart {
    fn texts(&self) -> Vec<&FormatText> {
        match self {
            CallPart::Text(text) => vec![text],
            CallPart::Id(IdForm::Named { prefix, infix }) => vec![prefix, infix],
            CallPart::Arguments(Encoding::Tagged(Tagged {
                open,
                after_key,
                kind,
                close,
                separator,
                ..
            })) => {
                let kind = kind.iter().flat_map(|kind| kind.item.iter().chain([&kind.after]));
                [open, after_key, close, separator].into_iter().chain(kind).collect()
            }
            CallPart::Arguments(Encoding::Elements { prefix, item }) => vec![prefix, item],
            CallPart::Arguments(Encoding::Pairs { quote }) => vec![quote],
            CallPart::Name
            | CallPart::Id(_)
            | CallPart::Arguments(Encoding::Json | Encoding::JsonText | Encoding::Python(_)) => {
                Vec::new()
            }
        }
    }
}

/// The position of a JSON object in a text of the format.
pub(crate) fn object_at(text: &str) -> Option<usize> {
    let mut braces = text.match_indices('{').map(|(at, _)| at);
    braces.find(|at| text[at + 1..].trim_start().starts_with('"'))
}

/// The text of a function's name at this index of a call. In a JSON object, it has JSON's escapes.
pub(crate) fn written_name<'a>(call: &[CallPart], index: usize, name: &'a str) -> Cow<'a, str> {
    let text = |part: Option<&CallPart>| match part {
        Some(CallPart::Text(text)) => text.clone(),
        _ => FormatText::default(),
    };
    let is_quoted = index > 0
        && text(call.get(index - 1)).ends_with('"')
        && text(call.get(index + 1)).starts_with('"');
    let in_object = || (0..index).any(|before| object_at(&text(call.get(before))).is_some());
    if !is_quoted || !in_object() {
        return name.into();
    }
    let quoted = Value::from(name).to_string();
    quoted[1..quoted.len() - 1].to_owned().into()
}

/// The form of ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdForm {
    /// Any text without whitespace and quotes.
    Free,
    /// Exactly this number of letters and digits.
    Alphanumeric(usize),
    /// The position of the call in the turn. The first call has this number.
    Index(usize),
    /// The name and the position in the turn, counted from 0: `functions.f:0`. The call then has no
    /// Name part.
    Named {
        /// The text before the name.
        prefix: FormatText,
        /// The text between the name and the position.
        infix: FormatText,
    },
}
