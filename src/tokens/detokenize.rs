//! `llb_detokenize`: tokens -> their text.

use serde::Serialize;
use serde_json::Value;

use super::{ISOLATION, missing};
use crate::api::{Fields, model_path};
use crate::engine::TokenId;
use crate::error::Result;
use crate::llama::FileVocabulary;

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

pub(super) fn run(request: &Value) -> Result<TextReply> {
    let mut fields = Fields::new("", request)?;
    let _ = fields.get(ISOLATION);
    let path = model_path(&mut fields)?;
    let ids = fields.array("ids")?.ok_or_else(|| missing(&fields, "ids", "an array of tokens"))?;
    let remove_special = fields.boolean("remove_special")?.unwrap_or(false);
    let unparse_special = fields.boolean("unparse_special")?.unwrap_or(true);
    let ignored_keys = fields.ignored();
    let number = |(index, id): (usize, &Value)| {
        id.as_i64().ok_or_else(|| {
            let problem = crate::api::expected("a whole number", id);
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
