//! `llb_tokenize`: a text -> tokens.

use serde::Serialize;
use serde_json::Value;

use super::token_list::TokenList;
use super::{ISOLATION, missing};
use crate::api::{Fields, model_path};
use crate::engine::TokenId;
use crate::error::Result;
use crate::llama::FileVocabulary;

/// `{"type":"tokens","n_tokens","ids","tokens"?}`.
#[derive(Serialize)]
pub struct TokensReply {
    r#type: &'static str,
    n_tokens: usize,
    ids: Vec<TokenId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens: Option<TokenList>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ignored_keys: Vec<String>,
}

pub(super) fn run(request: &Value) -> Result<TokensReply> {
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
    Ok(TokensReply {
        r#type: "tokens",
        n_tokens: ids.len(),
        tokens: details.then(|| TokenList { vocabulary, ids: ids.clone() }),
        ids,
        ignored_keys,
    })
}
