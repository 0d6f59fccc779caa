//! `/tokenize` and `/detokenize`, as in llama.cpp's server. They need a model's vocabulary, but no
//! weights.
//!
//! Source: `tools/server/README.md` of llama.cpp.

use bytes::Bytes;
use serde_json::json;

use super::call::{Call, ParsedCall, Reply, json_parts};
use super::error::ApiError;
use super::fields;
use super::model::ServedModel;
use super::stamp::id;
use crate::abi;
use crate::raw_json::{RawObject, RawValues, elements};

/// The longest text whose pieces are listed, in bytes. Each token then takes about a hundred bytes.
const MAX_TEXT_WITH_PIECES: usize = 256 << 10;

pub(super) async fn tokenize(call: Call) -> Reply {
    Ok(json_parts(call.answer(|call| tokens_of_text(&call)).await?))
}

fn tokens_of_text(call: &ParsedCall) -> Result<Vec<Bytes>, ApiError> {
    let model = model(call)?;
    let text = fields::string(&call.body, "content")?;
    let text = text.ok_or_else(|| ApiError::invalid("content", "is missing"))?;
    let option = |name| fields::boolean(&call.body, name).map(Option::unwrap_or_default);
    let has_pieces = option("with_pieces")?;
    if has_pieces && text.len() > MAX_TEXT_WITH_PIECES {
        let problem = format!(
            "has {} bytes, more than {MAX_TEXT_WITH_PIECES} with with_pieces; send it in parts",
            text.len()
        );
        return Err(ApiError::invalid("content", problem));
    }
    let request = json!({
        "model_path": model.options["model"], "text": text, "details": has_pieces,
        "add_special": option("add_special")?,
        // llama.cpp's server has this on by default. Here text is plain unless the request says
        // otherwise.
        "parse_special": option("parse_special")?,
    });
    let reply = abi::tokenize(&request)?;
    let tokens = reply.text(if has_pieces { "tokens" } else { "ids" }).unwrap_or_default();
    let mut raws = RawValues::new(&id("raw-"));
    let tokens = raws.add(if has_pieces { pieces(&tokens) } else { tokens });
    Ok(raws.parts(&json!({ "tokens": tokens, "n_tokens": reply.value("n_tokens") })))
}

pub(super) async fn detokenize(call: Call) -> Reply {
    Ok(json_parts(call.answer(|call| text_of_tokens(&call)).await?))
}

fn text_of_tokens(call: &ParsedCall) -> Result<Vec<Bytes>, ApiError> {
    let model = model(call)?;
    let tokens = fields::array(&call.body, "tokens")?;
    let request = json!({ "model_path": model.options["model"], "ids": tokens });
    let reply = abi::detokenize(&request)
        .map_err(|failure| ApiError::of_library(&failure).renamed("ids", "tokens"))?;
    let mut raws = RawValues::new(&id("raw-"));
    let text = raws.add(reply.text("text").unwrap_or_default());
    Ok(raws.parts(&json!({ "content": text })))
}

/// A model for any purpose. If the request names none, the only model is used.
fn model(call: &ParsedCall) -> Result<&ServedModel, ApiError> {
    let model = match (fields::string(&call.body, "model")?, call.app.pool.models()) {
        (Some(name), _) => call.app.named_model(name)?,
        (None, [only]) => only,
        (None, _) => {
            return Err(ApiError::invalid("model", "is missing, and there are several models"));
        }
    };
    call.log.set_model(&model.name);
    Ok(model)
}

/// The text of each token. Text that is not UTF-8 is an array of bytes.
fn pieces(tokens: &Bytes) -> Bytes {
    let mut pieces = Vec::with_capacity(tokens.len());
    for token in elements(tokens) {
        let token = RawObject::parse(token);
        let piece = token.text("bytes").or_else(|| token.text("text"));
        let separator: &[u8] = if pieces.is_empty() { b"[{\"id\":" } else { b",{\"id\":" };
        pieces.extend_from_slice(separator);
        pieces.extend_from_slice(&token.text("id").unwrap_or_default());
        pieces.extend_from_slice(b",\"piece\":");
        pieces.extend_from_slice(&piece.unwrap_or_default());
        pieces.push(b'}');
    }
    if pieces.is_empty() {
        pieces.push(b'[');
    }
    pieces.push(b']');
    pieces.into()
}
