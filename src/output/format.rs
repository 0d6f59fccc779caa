//! How a model writes reasoning, text and tool calls, as data.
//!
//! A format says what the model's own template writes, byte for byte, in the order in which it
//! stands there. Three readers share it: the recogniser, which takes much more than this; the
//! constraint, which lets the sampler write exactly this; and the round trip, which proves that
//! template and format agree. None of them knows families.
//!
//! ```text
//! reply   := text | reasoning | calls, in any order
//! calls   := section.open call (separator call)* section.close
//! call    := its parts, one after another
//! ```

use std::borrow::Cow;

/// Text of a format: written down in a family, or read off a template.
pub type Text = Cow<'static, str>;

/// Where a format comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A family of the table.
    Family,
    /// Derived from renders of the template.
    Inferred,
    /// What our polyfill teaches.
    Polyfill,
}

/// How a model writes a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// The family's stable name, as `output_format.family` shows it; `inferred` where there is
    /// none.
    pub family: Text,
    /// Where it comes from.
    pub source: Source,
    /// Whether a round trip through the model's own template returned what went in.
    pub verified: bool,
    /// The tags around reasoning, if the model has them.
    pub reasoning: Option<Reasoning>,
    /// Tags around visible text that are not part of it, for example `<|START_RESPONSE|>`.
    pub wrappers: Vec<Wrapper>,
    /// The headers of a reply that is made of several messages.
    pub channels: Option<Channels>,
    /// How calls are written.
    pub calls: Option<Calls>,
    /// Text that ends a turn or begins the next one, for example `<|eom_id|>`: left out wherever it
    /// stands.
    pub ends: Vec<Text>,
    /// Whether a fenced block that holds nothing but a call of a given tool counts as that call.
    pub fenced_calls: bool,
    /// Whether a reply that is one object `{"tool_calls": […], "content"}` is those calls and that
    /// content.
    pub envelope: bool,
    /// Whether a reply that begins with a call of a given tool is that call, though nothing stands
    /// before it: models leave the tags out where they were not trained on them, or where the tag
    /// is a list's.
    pub untagged: bool,
    /// Families whose calls of given tools are taken besides, because their tags are evident.
    pub also: Vec<&'static (Text, Calls)>,
}

impl Format {
    /// What opens a reasoning block, and what ends it so that the answer may follow.
    pub fn reasoning_tags(&self) -> Option<(String, String)> {
        if let Some(Reasoning { open, close, .. }) = &self.reasoning {
            return Some((open.to_string(), close.to_string()));
        }
        let Channels { turn, header, body, ends, reasoning, .. } = self.channels.as_ref()?;
        Some((format!("{header}{}{body}", reasoning.first()?), format!("{}{turn}", ends.first()?)))
    }

    /// Whether [`reasoning_tags`](Self::reasoning_tags) are known.
    pub fn marks_reasoning(&self) -> bool {
        let channels = self.channels.as_ref();
        self.reasoning.is_some()
            || channels.is_some_and(|of| !of.reasoning.is_empty() && !of.ends.is_empty())
    }

    /// Every text of the format that a model may write besides names, values and text of its own.
    /// Tokens in them must be shown by the detokeniser even when they are control tokens.
    pub fn texts(&self) -> Vec<&str> {
        let mut texts: Vec<&Text> = self.ends.iter().collect();
        if let Some(Reasoning { open, close, .. }) = &self.reasoning {
            texts.extend([open, close]);
        }
        texts.extend(self.wrappers.iter().flat_map(|wrapper| [&wrapper.open, &wrapper.close]));
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
        texts.extend(self.also.iter().flat_map(|(_, calls)| calls.texts()));
        texts.into_iter().map(|text| &**text).filter(|text| !text.is_empty()).collect()
    }
}

impl Format {
    /// How many letters and digits an id must have for the template to take it back; None where any
    /// id will do.
    pub fn id_length(&self) -> Option<usize> {
        self.calls.iter().flat_map(|calls| &calls.call).find_map(|part| match part {
            Part::Id(IdForm::Alphanumeric(length)) => Some(*length),
            _ => None,
        })
    }

    /// Whether an id is the call's position, so that every turn may use the same ones.
    pub fn counts_ids(&self) -> bool {
        let parts = self.calls.iter().flat_map(|calls| &calls.call);
        parts
            .into_iter()
            .any(|part| matches!(part, Part::Id(IdForm::Index(_) | IdForm::Named { .. })))
    }
}

/// The tags around a model's reasoning, without the blanks next to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reasoning {
    /// Opens a block, for example `<think>`. Empty where only the end is ever written.
    pub open: Text,
    /// Closes it.
    pub close: Text,
    /// A call ends reasoning that is still open. Otherwise a call in reasoning counts only if the
    /// reasoning never closes.
    pub ends_at_call: bool,
    /// The end alone is legal: it says that there is no reasoning, or that all text before it was
    /// reasoning.
    pub end_alone: bool,
}

/// Tags around visible text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrapper {
    /// Opens it.
    pub open: Text,
    /// Closes it; empty where nothing does.
    pub close: Text,
}

/// A reply made of messages with headers, as in harmony:
/// `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>commentary
/// to=functions.f<|message|>{…}<|call|>`.
///
/// A header is the text from `turn` (or `header`) to `body`; its words name the channel and the
/// recipient. The prompt ends inside the first one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Channels {
    /// Begins a message, role included: `<|start|>assistant`.
    pub turn: Text,
    /// Begins or continues a header: `<|channel|>`. Empty where headers have no such mark.
    pub header: Text,
    /// Ends the header: `<|message|>`.
    pub body: Text,
    /// End a message: `<|end|>`, `<|call|>`, `<|return|>`.
    pub ends: Vec<Text>,
    /// Stands before the recipient: `to=`. Empty where the header is nothing but the recipient.
    pub recipient: Text,
    /// Stands before a function's name in the recipient: `functions.`; may be empty.
    pub function: Text,
    /// Channels or recipients whose body is reasoning: `analysis`.
    pub reasoning: Vec<Text>,
    /// Channels or recipients whose body is visible text: `final`, `commentary`.
    pub content: Vec<Text>,
}

/// How calls are written, exactly as the template writes them, blanks included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calls {
    /// Stands before the first call, with the bracket of a list if there is one: `<TOOLCALL>[`. May
    /// be empty.
    pub open: Text,
    /// Stands after the last one: `]</TOOLCALL>`. May be empty.
    pub close: Text,
    /// Stands between two calls.
    pub separator: Text,
    /// One call. A JSON object is parts like any other: `{"name": "`, Name, `", "arguments": `,
    /// Arguments, `}`.
    pub call: Vec<Part>,
    /// Whether the template writes more than one call in a turn.
    pub parallel: bool,
}

impl Calls {
    fn texts(&self) -> impl Iterator<Item = &Text> {
        [&self.open, &self.close, &self.separator]
            .into_iter()
            .chain(self.call.iter().flat_map(Part::texts))
    }

    /// The tag that the first call begins with, as far as it is one that nobody writes as prose.
    pub fn tag(&self) -> Option<&str> {
        let first = match self.call.first() {
            Some(Part::Text(text)) => &**text,
            _ => "",
        };
        let word =
            [&*self.open, first].into_iter().find_map(|text| text.split_whitespace().next())?;
        let end = word.find(['>', ']']).map_or(word.len(), |at| at + 1);
        let tag = &word[..end];
        (tag.len() > 2 && tag.starts_with(['<', '[']) && !tag.contains(['{', '"'])).then_some(tag)
    }
}

/// A piece of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// The template's own text.
    Text(Text),
    /// The function's name.
    Name,
    /// The call's id.
    Id(IdForm),
    /// The arguments.
    Arguments(Encoding),
}

impl Part {
    fn texts(&self) -> Vec<&Text> {
        match self {
            Part::Text(text) => vec![text],
            Part::Name => Vec::new(),
            Part::Id(IdForm::Named { prefix, infix }) => vec![prefix, infix],
            Part::Id(_) => Vec::new(),
            Part::Arguments(Encoding::Tagged(Tagged {
                open,
                after_key,
                kind,
                close,
                separator,
            })) => {
                let kind = kind.iter().map(|kind| &kind.after);
                [open, after_key, close, separator].into_iter().chain(kind).collect()
            }
            Part::Arguments(Encoding::Elements { prefix, item }) => vec![prefix, item],
            Part::Arguments(Encoding::Pairs { quote }) => vec![quote],
            Part::Arguments(Encoding::Json | Encoding::JsonText | Encoding::Python) => Vec::new(),
        }
    }
}

/// What ids look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdForm {
    /// Any text without blanks and quotes.
    Free,
    /// Exactly so many letters and digits.
    Alphanumeric(usize),
    /// The position of the call in the turn, counted from this number.
    Index(usize),
    /// `functions.f:0`: text, name, text, position from 0. The id is the whole; there is no Name
    /// part beside it.
    Named {
        /// Before the name.
        prefix: Text,
        /// Between name and position.
        infix: Text,
    },
}

/// How arguments are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoding {
    /// A JSON object.
    Json,
    /// A JSON string that holds a JSON object.
    JsonText,
    /// One element a parameter: `<parameter=a>\n1\n</parameter>`. Strings are raw text, other
    /// values JSON.
    Tagged(Tagged),
    /// Nested elements: objects are elements named by their keys, arrays repeat `<item>`. Every tag
    /// has this prefix.
    Elements {
        /// Stands before every tag: `]<]minimax[>[`.
        prefix: Text,
        /// The element of an array.
        item: Text,
    },
    /// An object with bare keys and quotes of its own, braces included: `{a:1,b:<|"|>x<|"|>}`.
    Pairs {
        /// Stands on both sides of a string.
        quote: Text,
    },
    /// Python's keyword arguments, without the parentheses: `a=1, b='x'`.
    Python,
}

/// Arguments with one element a parameter: `open` KEY `after_key` VALUE `close`, and `separator`
/// between two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagged {
    /// `<parameter=`
    pub open: Text,
    /// `>\n`; up to the type where the element names it: `" string="`
    pub after_key: Text,
    /// Where the element names the value's type: how, and what follows it.
    pub kind: Option<Kind>,
    /// `\n</parameter>\n`
    pub close: Text,
    /// Between two parameters.
    pub separator: Text,
}

/// The type of a value, as an attribute of its element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kind {
    /// What the attribute says.
    pub form: KindForm,
    /// Stands between it and the value: `">`
    pub after: Text,
}

/// What an attribute says about a value's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindForm {
    /// `true` for strings, `false` for JSON.
    IsString,
    /// JSON's name of the type: `string`, `number`, `boolean`, `object`, `array`, `null`.
    TypeName,
}
