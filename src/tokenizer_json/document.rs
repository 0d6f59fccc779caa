//! A tokenizer.json as its text spells it.
//!
//! In: a path. Out: the parts of the file, within limits of size and number. The parts of the
//! pipeline are small values, which other modules check.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::error::{Code, Error, Result};
use crate::json::{self, PlainValue};
use crate::regular_file;

/// The maximum number of bytes of a file. Those of large vocabularies have 35 MB.
const MAX_BYTES: u64 = 128 << 20;
/// The maximum number of values and member names. Large vocabularies have two millions.
const MAX_VALUES: usize = 4 << 20;
/// The maximum number of components of a part of the pipeline.
const MAX_COMPONENTS: usize = 64;

/// The parts of a tokenizer.json.
#[derive(Deserialize)]
pub(super) struct TokenizerDocument {
    #[serde(default)]
    pub(super) added_tokens: Vec<AddedToken>,
    #[serde(default)]
    normalizer: Option<PlainValue>,
    #[serde(default)]
    pre_tokenizer: Option<PlainValue>,
    #[serde(default)]
    post_processor: Option<PlainValue>,
    #[serde(default)]
    decoder: Option<PlainValue>,
    pub(super) model: ModelDocument,
}

/// The `model` of byte-pair encoding.
#[derive(Deserialize)]
pub(super) struct ModelDocument {
    #[serde(rename = "type", default)]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) vocab: VocabEntries,
    /// Only byte-pair encoding has this member.
    #[serde(default)]
    pub(super) merges: Option<Vec<Merge>>,
    #[serde(default)]
    pub(super) dropout: Option<f64>,
    #[serde(default)]
    pub(super) unk_token: Option<String>,
    #[serde(default)]
    pub(super) continuing_subword_prefix: Option<String>,
    #[serde(default)]
    pub(super) end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub(super) fuse_unk: Option<bool>,
    #[serde(default)]
    pub(super) byte_fallback: Option<bool>,
    #[serde(default)]
    pub(super) ignore_merges: Option<bool>,
}

/// A token that is matched before the rest of a text is tokenized.
#[derive(Deserialize)]
pub(super) struct AddedToken {
    pub(super) id: u32,
    pub(super) content: String,
    #[serde(default)]
    pub(super) single_word: bool,
    #[serde(default)]
    pub(super) lstrip: bool,
    #[serde(default)]
    pub(super) rstrip: bool,
    #[serde(default)]
    pub(super) normalized: bool,
    #[serde(default)]
    pub(super) special: bool,
}

/// Tokens with their ids. Empty for the list of another kind of model.
#[derive(Default)]
pub(super) struct VocabEntries(pub(super) Vec<(String, u32)>);

impl TokenizerDocument {
    /// Reads a file. `MODEL_NOT_FOUND`, or `MODEL_INVALID` with the line of the fault.
    pub(super) fn read(path: &Path) -> Result<TokenizerDocument> {
        let bytes = regular_file::read(path, MAX_BYTES).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::new(Code::ModelNotFound, error.to_string()),
            _ => invalid(error),
        })?;
        TokenizerDocument::parse(&bytes)
    }

    /// Parses the text of a file.
    pub(super) fn parse(text: &[u8]) -> Result<TokenizerDocument> {
        if json::values(text) > MAX_VALUES {
            return Err(invalid("it has too many values"));
        }
        // A list would be read as the members of an object, in their order.
        if text.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
            return Err(invalid("it is not a JSON object"));
        }
        json::typed_unlimited(text).map_err(invalid)
    }

    /// The components of a part, from the first to the last.
    pub(super) fn components(&self, part: PipelinePart) -> Result<Vec<&Value>> {
        let value = match part {
            PipelinePart::Normalizer => &self.normalizer,
            PipelinePart::PreTokenizer => &self.pre_tokenizer,
            PipelinePart::PostProcessor => &self.post_processor,
            PipelinePart::Decoder => &self.decoder,
        };
        let mut components = Vec::new();
        let mut pending: Vec<&Value> = value.iter().map(|PlainValue(value)| value).collect();
        while let Some(value) = pending.pop() {
            let problem = match value["type"].as_str() {
                Some("Sequence") => match value[part.list()].as_array() {
                    Some(inner) => {
                        pending.extend(inner.iter().rev());
                        continue;
                    }
                    None => "a sequence without a list",
                },
                Some(_) if components.len() == MAX_COMPONENTS => "too many components",
                Some(_) => {
                    components.push(value);
                    continue;
                }
                None => "a component without a type",
            };
            return Err(invalid(format_args!("{} has {problem}", part.member())));
        }
        Ok(components)
    }
}

/// A part of the pipeline that consists of components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PipelinePart {
    Normalizer,
    PreTokenizer,
    PostProcessor,
    Decoder,
}

impl PipelinePart {
    /// The name of its member.
    pub(super) fn member(self) -> &'static str {
        match self {
            PipelinePart::Normalizer => "normalizer",
            PipelinePart::PreTokenizer => "pre_tokenizer",
            PipelinePart::PostProcessor => "post_processor",
            PipelinePart::Decoder => "decoder",
        }
    }

    /// The member of a sequence of such components.
    fn list(self) -> &'static str {
        match self {
            PipelinePart::Normalizer => "normalizers",
            PipelinePart::PreTokenizer => "pretokenizers",
            PipelinePart::PostProcessor => "processors",
            PipelinePart::Decoder => "decoders",
        }
    }
}

/// `MODEL_INVALID`.
pub(super) fn invalid(problem: impl fmt::Display) -> Error {
    Error::new(Code::ModelInvalid, problem.to_string())
}

impl<'de> Deserialize<'de> for VocabEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntriesVisitor).map(VocabEntries)
    }
}

/// Two tokens, as an array or in one text.
pub(super) struct Merge(pub(super) (String, String));

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MergeVisitor).map(Merge)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Vec<(String, u32)>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of tokens and their ids")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = members.next_entry()? {
            entries.push(entry);
        }
        Ok(entries)
    }

    /// The list of another kind of model, which the caller refuses by its type.
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Vec::new())
    }
}

struct MergeVisitor;

impl<'de> Visitor<'de> for MergeVisitor {
    type Value = (String, String);

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("two tokens")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        let two = text.split_once(' ').filter(|(_, second)| !second.contains(' '));
        let (first, second) = two.ok_or_else(|| E::custom("a merge is not two tokens"))?;
        Ok((first.to_owned(), second.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let missing = || A::Error::custom("a merge is not two tokens");
        let first = items.next_element()?.ok_or_else(missing)?;
        let second = items.next_element()?.ok_or_else(missing)?;
        match items.next_element::<IgnoredAny>()? {
            None => Ok((first, second)),
            Some(_) => Err(missing()),
        }
    }
}
