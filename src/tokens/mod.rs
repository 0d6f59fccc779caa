//! `llb_tokenize`, `llb_detokenize` and `llb_count`: texts, tokens and whole requests, by the
//! vocabulary of a model file.
//!
//! In: JSON that names the file. Out: JSON. No weights are read, and no chat is open.

use std::sync::Arc;

use serde::ser::SerializeSeq;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::api::{self, ChatRequest, CreateOptions, Fields, Isolation, MODEL_PATH, model_path};
use crate::chat::{self, PromptCount};
use crate::diagnostic::Diagnostic;
use crate::engine::{PlacedMedia, TokenId, is_media};
use crate::error::{Error, Result};
use crate::llama::FileVocabulary;

/// The member that says where the vocabulary is read.
const ISOLATION: &str = "isolation";
/// The member of a request to count that asks for the prompt and its tokens.
const DETAILS: &str = "details";

/// Options of a chat that change its prompts. They stand beside the members of a request to count.
const CHAT_OPTIONS: [&str; 7] = [
    "chat_template",
    "components",
    "media_folders",
    "media_limits",
    "media_urls",
    "projector",
    "template_limits",
];

/// What is asked of a vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenCall {
    /// `llb_tokenize`.
    Tokenize,
    /// `llb_detokenize`.
    Detokenize,
    /// `llb_count`.
    Count,
}

/// The reply to a request.
#[derive(Serialize)]
#[serde(untagged)]
pub enum TokenReply {
    /// To `llb_tokenize`.
    Tokens(TokensReply),
    /// To `llb_detokenize`.
    Text(TextReply),
    /// To `llb_count`.
    Count(CountReply),
}

/// `{"type":"tokens","n_tokens","ids","tokens"?}`.
pub struct TokensReply {
    ids: Vec<TokenId>,
    /// For a reply with the text of each token.
    vocabulary: Option<Arc<FileVocabulary>>,
    ignored_keys: Vec<String>,
}

impl Serialize for TokensReply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct TokensShape<'a> {
            r#type: &'static str,
            n_tokens: usize,
            ids: &'a [TokenId],
            #[serde(skip_serializing_if = "Option::is_none")]
            tokens: Option<TokenList<'a>>,
            #[serde(skip_serializing_if = "<[String]>::is_empty")]
            ignored_keys: &'a [String],
        }
        let list = |vocabulary| TokenList { vocabulary, ids: &self.ids };
        let shape = TokensShape {
            r#type: "tokens",
            n_tokens: self.ids.len(),
            ids: &self.ids,
            tokens: self.vocabulary.as_deref().map(list),
            ignored_keys: &self.ignored_keys,
        };
        shape.serialize(serializer)
    }
}

/// Tokens of a vocabulary, each with its text. Written token by token, because a long text has
/// millions.
struct TokenList<'a> {
    vocabulary: &'a FileVocabulary,
    ids: &'a [TokenId],
}

/// A token with its text. A token may end inside a character: `text` then has U+FFFD for bytes that are not
/// UTF-8, and `bytes` has all.
#[derive(Serialize)]
struct TokenEntry<'a> {
    id: TokenId,
    text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<&'a [u8]>,
    special: bool,
}

impl Serialize for TokenList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let vocab = self.vocabulary.vocab();
        let special = vocab.special_tokens();
        let mut entries = serializer.serialize_seq(Some(self.ids.len()))?;
        for id in self.ids {
            let piece = vocab.piece(*id, true);
            let text = String::from_utf8_lossy(&piece);
            let bytes = text.contains(char::REPLACEMENT_CHARACTER).then_some(&*piece);
            let bytes = bytes.filter(|bytes| *bytes != text.as_bytes());
            let special = special.reserved(*id).is_some();
            entries.serialize_element(&TokenEntry { id: *id, text: &text, bytes, special })?;
        }
        entries.end()
    }
}

/// `{"type":"text","text","bytes"?}`. `bytes` is there if they are not UTF-8; `text` then has
/// U+FFFD for those that are not.
#[derive(Serialize)]
pub struct TextReply {
    r#type: &'static str,
    text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<Vec<u8>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignored_keys: Vec<String>,
}

/// `{"type":"count","prompt_tokens","context_length","polyfills_applied","diagnostics"?}`, and with
/// details `"ids","prompt","spans","media"?`.
#[derive(Serialize)]
pub struct CountReply {
    r#type: &'static str,
    prompt_tokens: usize,
    #[serde(flatten)]
    details: Option<Box<PromptDetails>>,
    context_length: Option<u64>,
    polyfills_applied: Vec<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    diagnostics: Vec<Diagnostic>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignored_keys: Vec<String>,
}

/// A prompt, its tokens, and the origins of its parts.
#[derive(Serialize)]
struct PromptDetails {
    /// `None` in the places of media.
    ids: Vec<Option<TokenId>>,
    prompt: String,
    spans: Value,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    media: Vec<Value>,
}

/// Runs a request in this process, whatever its member `isolation` says.
///
/// # Errors
/// `INVALID_REQUEST` with the JSON path, `MODEL_NOT_FOUND`, `MODEL_INVALID`, `CONTEXT_OVERFLOW` for
/// a text that the tokenizer cannot take, and those of a chat's prompt.
pub fn run(call: TokenCall, request: Value) -> Result<TokenReply> {
    match call {
        TokenCall::Tokenize => tokenize(&request).map(TokenReply::Tokens),
        TokenCall::Detokenize => detokenize(&request).map(TokenReply::Text),
        TokenCall::Count => count(request).map(TokenReply::Count),
    }
}

/// Where a request wants its vocabulary to be read.
///
/// # Errors
/// `INVALID_REQUEST` with the JSON path.
pub(crate) fn isolation(request: &Value) -> Result<Isolation> {
    let isolation = Fields::new("", request)?.one_of(ISOLATION, Isolation::NAMES)?;
    Ok(isolation.unwrap_or_default())
}

fn missing(fields: &Fields, key: &str, what: &str) -> Error {
    fields.invalid(key, format_args!("missing; pass {what}"))
}

fn tokenize(request: &Value) -> Result<TokensReply> {
    let mut fields = Fields::new("", request)?;
    let _ = fields.get(ISOLATION);
    let path = model_path(&mut fields)?;
    let text = fields.string("text")?.ok_or_else(|| missing(&fields, "text", "a string"))?;
    let add_special = fields.boolean("add_special")?.unwrap_or(false);
    let parse_special = fields.boolean("parse_special")?.unwrap_or(false);
    let details = fields.boolean("details")?.unwrap_or(true);
    let ignored_keys = fields.ignored();
    let vocabulary = FileVocabulary::of_file(path)?;
    let ids = vocabulary.tokenize(text, add_special, parse_special)?;
    Ok(TokensReply { ids, vocabulary: details.then_some(vocabulary), ignored_keys })
}

fn detokenize(request: &Value) -> Result<TextReply> {
    let mut fields = Fields::new("", request)?;
    let _ = fields.get(ISOLATION);
    let path = model_path(&mut fields)?;
    let ids = fields.array("ids")?.ok_or_else(|| missing(&fields, "ids", "an array of tokens"))?;
    let remove_special = fields.boolean("remove_special")?.unwrap_or(false);
    let unparse_special = fields.boolean("unparse_special")?.unwrap_or(true);
    let ignored_keys = fields.ignored();
    let number = |(index, id): (usize, &Value)| {
        id.as_i64().ok_or_else(|| {
            let problem = api::expected("a whole number", id);
            fields.invalid(&format!("ids[{index}]"), problem)
        })
    };
    let ids = ids.iter().enumerate().map(number).collect::<Result<Vec<i64>>>()?;
    let vocabulary = FileVocabulary::of_file(path)?;
    let n_tokens = vocabulary.vocab().len() as i64;
    let token = |(index, id): (usize, i64)| match TokenId::try_from(id) {
        Ok(token) if (0..n_tokens).contains(&id) => Ok(token),
        _ => Err(fields.invalid(
            &format!("ids[{index}]"),
            format_args!("no such token: {id}; this vocabulary has 0 to {}", n_tokens - 1),
        )),
    };
    let ids = ids.into_iter().enumerate().map(token).collect::<Result<Vec<TokenId>>>()?;
    let bytes = vocabulary.detokenize(&ids, remove_special, unparse_special)?;
    let (text, bytes) = match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let bytes = error.into_bytes();
            (String::from_utf8_lossy(&bytes).into_owned(), Some(bytes))
        }
    };
    Ok(TextReply { r#type: "text", text, bytes, ignored_keys })
}

fn count(mut request: Value) -> Result<CountReply> {
    let mut fields = Fields::new("", &request)?;
    let path = model_path(&mut fields)?.to_owned();
    let has_details = fields.boolean(DETAILS)?.unwrap_or(false);
    let mut options = Map::new();
    if let Value::Object(members) = &mut request {
        members.retain(|name, _| ![MODEL_PATH, ISOLATION, DETAILS].contains(&name.as_str()));
        options.extend(CHAT_OPTIONS.iter().filter_map(|name| members.remove_entry(*name)));
    }
    options.insert("model".to_owned(), path.as_str().into());
    let options = CreateOptions::read(&Value::Object(options))?;
    let request = ChatRequest::read(request)?;
    let vocabulary = FileVocabulary::of_file(&path)?;
    let PromptCount { tokenized, prompt, polyfills_applied, diagnostics } =
        chat::count(&vocabulary, &options, &request)?;
    let prompt_tokens = tokenized.tokens.len();
    let details = has_details.then(|| {
        let spans = prompt.spans_json();
        let ids = tokenized.tokens.iter().map(|id| (!is_media(*id)).then_some(*id)).collect();
        let media = tokenized.media.iter().map(PlacedMedia::to_json).collect();
        Box::new(PromptDetails { ids, prompt: prompt.text, spans, media })
    });
    Ok(CountReply {
        r#type: "count",
        prompt_tokens,
        details,
        context_length: vocabulary.header().context_length(),
        polyfills_applied,
        diagnostics,
        ignored_keys: request.ignored_keys,
    })
}
