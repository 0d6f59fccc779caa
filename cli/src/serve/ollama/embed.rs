//! `/api/embed`, and `/api/embeddings` of older clients.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use serde_json::json;

use super::models::accept_tag;
use crate::raw_json::{RawObject, RawValues, elements};
use crate::serve::call::{Call, ParsedCall, Reply, json_parts};
use crate::serve::embeddings::{EmbeddingRequest, vectors};
use crate::serve::error::ApiError;
use crate::serve::fields;
use crate::serve::model::Purpose;
use crate::serve::stamp::id;

pub(crate) async fn embed(call: Call) -> Reply {
    let started = Instant::now();
    let (model, reply) = vectors(call, |call| request(call, "input")).await?;
    let mut raws = RawValues::new(&id("raw-"));
    let total = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let response = json!({
        "model": model.name, "embeddings": raws.add(list(&each(&reply))),
        "total_duration": total, "load_duration": 0,
        "prompt_eval_count": reply.value("usage")["prompt_tokens"],
    });
    Ok(json_parts(raws.parts(&response)))
}

pub(crate) async fn embeddings(call: Call) -> Reply {
    let (_, reply) = vectors(call, |call| request(call, "prompt")).await?;
    let mut raws = RawValues::new(&id("raw-"));
    let first = each(&reply).into_iter().next().unwrap_or_else(|| Bytes::from_static(b"[]"));
    let response = json!({ "embedding": raws.add(first) });
    Ok(json_parts(raws.parts(&response)))
}

/// The library's request. Ollama cuts long texts unless the request says otherwise.
fn request(call: &mut ParsedCall, input: &str) -> Result<EmbeddingRequest, ApiError> {
    accept_tag(call);
    fields::check(&call.body, fields::OLLAMA)?;
    let model = Arc::clone(call.app.model_for(Purpose::Embedding, &call.body)?);
    let input =
        fields::get(&call.body, input).ok_or_else(|| ApiError::invalid(input, "is missing"))?;
    let mut request = json!({ "input": input, "truncate": true });
    fields::copy(&call.body, &["dimensions", "truncate"], &mut request);
    Ok((model, request))
}

/// The vector of each text, as JSON.
fn each(reply: &RawObject) -> Vec<Bytes> {
    let data = reply.text("data").unwrap_or_default();
    elements(&data).filter_map(|item| RawObject::parse(item).text("embedding")).collect()
}

/// An array of values in JSON.
fn list(values: &[Bytes]) -> Bytes {
    let mut list = vec![b'['];
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            list.push(b',');
        }
        list.extend_from_slice(value);
    }
    list.push(b']');
    list.into()
}
