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

use std::borrow::Cow;

use serde_json::Value;

/// Text of a format, from the table of families or from a template.
pub type FormatText = Cow<'static, str>;

/// The backticks around a fenced block.
pub(super) const FENCE: &str = "```";

named_enum! {
    /// The origin of a format.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum FormatSource {
        /// The table of families.
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
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

/// The tags in a text: `<tool_call>`, `[ARGS]`. A tag has no white space and at least one letter or
/// digit, and ends at the first bracket that closes it. In time linear in the text's length.
pub(crate) fn tags(text: &str) -> Vec<&str> {
    text.split_whitespace().flat_map(tags_of_word).collect()
}

fn tags_of_word(word: &str) -> Vec<&str> {
    let mut tags = Vec::new();
    let mut angle = CharacterSearch::new(word, |character| character == '>');
    let mut square = CharacterSearch::new(word, |character| character == ']');
    let mut letter = CharacterSearch::new(word, char::is_alphanumeric);
    let mut from = 0;
    while let Some(start) = word[from..].find(['<', '[']).map(|length| from + length) {
        let closing = if word[start..].starts_with('<') { &mut angle } else { &mut square };
        let end = closing.first(start).map(|end| end + 1);
        let is_tag = |end: &usize| letter.first(start).is_some_and(|letter| letter < *end);
        let end = end.filter(is_tag);
        tags.extend(end.map(|end| &word[start..end]));
        from = end.unwrap_or(start + 1);
    }
    tags
}

/// Finds the first character of a kind at or after positions that only grow, and looks at each
/// character once.
struct CharacterSearch<'a> {
    text: &'a str,
    is_wanted: fn(char) -> bool,
    found: Option<usize>,
}

impl<'a> CharacterSearch<'a> {
    fn new(text: &'a str, is_wanted: fn(char) -> bool) -> Self {
        CharacterSearch { text, is_wanted, found: text.find(is_wanted) }
    }

    fn first(&mut self, from: usize) -> Option<usize> {
        if self.found.is_some_and(|found| found < from) {
            self.found = self.text[from..].find(self.is_wanted).map(|length| from + length);
        }
        self.found
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
            CallPart::Name => Vec::new(),
            CallPart::Id(IdForm::Named { prefix, infix }) => vec![prefix, infix],
            CallPart::Id(_) => Vec::new(),
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
            CallPart::Arguments(Encoding::Json | Encoding::JsonText | Encoding::Python(_)) => {
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

/// How arguments are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoding {
    /// A JSON object.
    Json,
    /// A JSON string that holds a JSON object.
    JsonText,
    /// One element per parameter: `<parameter=a>\n1\n</parameter>`. Strings are raw text, other
    /// values are JSON.
    Tagged(Tagged),
    /// Nested elements. The members of an object are elements named by their keys. An array
    /// repeats one element.
    Elements {
        /// The prefix of every tag: `]<]minimax[>[`.
        prefix: FormatText,
        /// The name of the elements inside an array: `item`. If it is empty, the element of the
        /// array's own key is repeated: `<a>1</a><a>2</a>`. An array in an array is then JSON.
        item: FormatText,
    },
    /// An object with bare keys and its own quotes, braces included: `{a:1,b:<|"|>x<|"|>}`.
    Pairs {
        /// The quote on both sides of a string.
        quote: FormatText,
    },
    /// Python keyword arguments without the parentheses: `a=1, b='x'`.
    Python(Keywords),
}

impl Encoding {
    /// Python keyword arguments as Python itself writes them.
    pub fn python() -> Encoding {
        Encoding::Python(Keywords::default())
    }
}

/// Python keyword arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keywords {
    /// The text between two arguments: `, `.
    pub separator: FormatText,
    /// The quote around strings, if they have no escapes: `'`. Such a string ends at the last
    /// quote before the next argument or the end of the call.
    pub raw_quote: Option<char>,
}

impl Default for Keywords {
    fn default() -> Keywords {
        Keywords { separator: ", ".into(), raw_quote: None }
    }
}

/// Arguments with one element per parameter: `open` KEY `after_key` VALUE `close`. An element that
/// names the type of its value has it before the value or before the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagged {
    /// The text before the key: `<parameter=`.
    pub open: FormatText,
    /// The text from the key to the value, `>\n`, or to the type after the key, `" string="`.
    pub after_key: FormatText,
    /// The type of the value, if the element names it.
    pub kind: Option<Box<ValueKind>>,
    /// The text after the value: `\n</parameter>\n`.
    pub close: FormatText,
    /// The text between two parameters.
    pub separator: FormatText,
    /// The characters of values that are written as entities. Empty if values are written as they
    /// are.
    pub entities: Entities,
    /// Whether only keys and strings have entities. Other values are then JSON as it is.
    pub raw_json: bool,
}

impl Tagged {
    /// The entities of values that are not strings.
    pub(crate) fn entities_of_json(&self) -> Entities {
        if self.raw_json { &[] } else { self.entities }
    }
}

/// Characters, and the entities that stand for them: `<` and `&lt;`.
pub type Entities = &'static [(char, &'static str)];

/// The sets of characters that templates write as entities. An ampersand is always one of them.
pub const ENTITY_SETS: [Entities; 3] = [
    &[('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;")],
    &[('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;")],
    // Jinja's filter `escape`.
    &[('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&#34;"), ('\'', "&#39;")],
];

/// A text whose special characters are entities.
pub(crate) fn with_entities(text: &str, entities: Entities) -> String {
    let mut written = String::with_capacity(text.len());
    for c in text.chars() {
        match entities.iter().find(|(special, _)| *special == c) {
            Some((_, entity)) => written.push_str(entity),
            None => written.push(c),
        }
    }
    written
}

/// The type of a value, as an attribute of its element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueKind {
    /// The attribute's text for each type.
    pub words: TypeWords,
    /// Whether the type precedes the key: `<value type="raw" name="a">`. The text before the type is
    /// then that of the element, and the text from the key to the value is `after_key`.
    pub before_key: bool,
    /// The text between the type and the value, `">`, or the key, `" name="`.
    pub after: FormatText,
    /// The text of an item's element up to its type, if arrays and objects are nested elements:
    /// `<value type="`. None if they are JSON.
    pub item: Option<FormatText>,
}

impl ValueKind {
    /// The text between the type and the value of an item. `after_key` is that of its format.
    pub(crate) fn after_of_item<'a>(&'a self, after_key: &'a str) -> &'a str {
        if self.before_key { after_key } else { &self.after }
    }
}

/// The words for the types of JSON values. Types may share a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypeWords {
    /// A string, which is written as raw text. Other values are JSON.
    pub string: FormatText,
    /// A whole number.
    pub integer: FormatText,
    /// A number with a fraction or an exponent.
    pub number: FormatText,
    /// `true` or `false`.
    pub boolean: FormatText,
    /// `null`.
    pub null: FormatText,
    /// An array.
    pub array: FormatText,
    /// An object.
    pub object: FormatText,
}

impl TypeWords {
    /// One word for strings, and one for all other values: `true` and `false` of an attribute
    /// `string`.
    pub fn of_strings(string: impl Into<FormatText>, other: impl Into<FormatText>) -> TypeWords {
        let other = other.into();
        TypeWords {
            string: string.into(),
            integer: other.clone(),
            number: other.clone(),
            boolean: other.clone(),
            null: other.clone(),
            array: other.clone(),
            object: other,
        }
    }

    /// The names of the JSON types. Whole numbers are numbers.
    pub fn type_names() -> TypeWords {
        TypeWords {
            string: "string".into(),
            integer: "number".into(),
            number: "number".into(),
            boolean: "boolean".into(),
            null: "null".into(),
            array: "array".into(),
            object: "object".into(),
        }
    }

    /// The word for the type of a value.
    pub fn of(&self, value: &Value) -> &str {
        match value {
            Value::String(_) => &self.string,
            Value::Number(number) if number.is_i64() || number.is_u64() => &self.integer,
            Value::Number(_) => &self.number,
            Value::Bool(_) => &self.boolean,
            Value::Null => &self.null,
            Value::Array(_) => &self.array,
            Value::Object(_) => &self.object,
        }
    }

    /// The words of all types but strings, each once.
    pub fn others(&self) -> Vec<&str> {
        let mut words: Vec<&str> = Vec::new();
        let all =
            [&self.integer, &self.number, &self.boolean, &self.object, &self.array, &self.null];
        for word in all {
            if !words.contains(&&**word) {
                words.push(word);
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::tags;

    #[test]
    fn tags_of_a_text() {
        let found = tags("a<b>c <d e> [F]<[>g] <> <|h|> <i [j>] </k>\n<é>");
        assert_eq!(found, ["<b>", "[F]", "[>g]", "<|h|>", "[j>]", "</k>", "<é>"]);
        assert!(tags("").is_empty() && tags("[x<").is_empty());
    }

    #[test]
    fn hostile_texts_take_linear_time() {
        // With a look at all that follows for each bracket, these would take minutes.
        let brackets = "<".repeat(1 << 20);
        for end in ["", ">", " >", "]", " a>"] {
            assert!(tags(&format!("{brackets}{end}")).is_empty());
        }
        assert_eq!(tags(&format!("{brackets}a>")).len(), 1);
        assert_eq!(tags(&"<a>[b]".repeat(1 << 17)).len(), 1 << 18);
    }
}
