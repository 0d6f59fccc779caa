//! `llb_tokenize`, `llb_detokenize` and `llb_count`: texts, tokens and whole requests, by the
//! vocabulary of a model file.
//!
//! In: JSON that names the file. Out: JSON. No weights are read, and no chat is open.

mod count;
mod detokenize;
mod token_list;
mod tokenize;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::api::{Fields, Isolation};
use crate::error::{Error, Result};
use count::CountReply;
use detokenize::TextReply;
use tokenize::TokensReply;

/// The member that says where the vocabulary is read.
pub(crate) const ISOLATION: &str = "isolation";

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
pub enum TokenReply {
    /// To `llb_tokenize`.
    Tokens(TokensReply),
    /// To `llb_detokenize`.
    Text(TextReply),
    /// To `llb_count`.
    Count(CountReply),
}

impl Serialize for TokenReply {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            TokenReply::Tokens(reply) => reply.serialize(serializer),
            TokenReply::Text(reply) => reply.serialize(serializer),
            TokenReply::Count(reply) => reply.serialize(serializer),
        }
    }
}

/// Runs a request in this process, whatever its member `isolation` says.
///
/// # Errors
/// `INVALID_REQUEST` with the JSON path, `MODEL_NOT_FOUND`, `MODEL_INVALID`, `CONTEXT_OVERFLOW` for
/// a text that the tokenizer cannot take, and those of a chat's prompt.
pub fn run(call: TokenCall, request: Value) -> Result<TokenReply> {
    match call {
        TokenCall::Tokenize => tokenize::run(&request).map(TokenReply::Tokens),
        TokenCall::Detokenize => detokenize::run(&request).map(TokenReply::Text),
        TokenCall::Count => count::run(request).map(TokenReply::Count),
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
