//! `/v1/embeddings`: OpenAI's embeddings, and `/v1/rerank`.
//!
//! Source: <https://platform.openai.com/docs/api-reference/embeddings>, and the types of the
//! package `openai` 3.54.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::blocking::on_thread;
use super::call::{Call, ParsedCall, Reply, json_parts};
use super::error::ApiError;
use super::fields::{self, Kind};
use super::library_request::LibraryRequest;
use super::model::{Purpose, ServedModel};
use super::slot::Slot;
use super::stamp::id;
use crate::abi::Embedder;
use crate::failure;
use crate::raw_json::{RawObject, RawValues};

/// Members that the library reads under the same name. `prefix` and `truncate` are not OpenAI's.
const EMBED: [&str; 5] = ["input", "dimensions", "encoding_format", "prefix", "truncate"];
const RANK: [&str; 5] = ["query", "documents", "top_n", "return_documents", "truncate"];

/// A model and the library's request for it.
pub(super) type EmbeddingRequest = (Arc<ServedModel>, Value);
type Function = fn(&Embedder, &String) -> failure::Result<RawObject>;

pub(super) async fn respond(call: Call) -> Reply {
    answer(call, &EMBED, Embedder::embed, "data").await
}

/// `/v1/rerank`. OpenAI has no such route; this is the format of Jina and of llama.cpp's server.
pub(super) async fn rank(call: Call) -> Reply {
    answer(call, &RANK, Embedder::rank, "results").await
}

/// Passes `members` to the library's function and returns `list` from its reply, as the text that
/// the library wrote.
async fn answer(
    call: Call,
    members: &'static [&'static str],
    function: Function,
    list: &str,
) -> Reply {
    let convert = |call: &mut ParsedCall| {
        let model = Arc::clone(call.app.model_for(Purpose::Embedding, &call.body)?);
        fields::check(&call.body, &[("user", Kind::Text)])?;
        let mut request = json!({});
        fields::copy(&call.body, members, &mut request);
        Ok((model, request))
    };
    let (model, reply) = run(call, function, convert).await?;
    let mut raws = RawValues::new(&id("raw-"));
    let mut response =
        json!({ "object": "list", "model": model.name, "usage": reply.value("usage") });
    response[list] = raws.add(reply.text(list).unwrap_or_default());
    Ok(json_parts(raws.parts(&response)))
}

/// The library's reply with vectors of texts. `convert` finds the model and makes the request.
pub(super) async fn vectors(
    call: Call,
    convert: impl FnOnce(&mut ParsedCall) -> Result<EmbeddingRequest, ApiError> + Send + 'static,
) -> Result<(Arc<ServedModel>, RawObject), ApiError> {
    run(call, Embedder::embed, convert).await
}

async fn run(
    mut call: Call,
    function: Function,
    convert: impl FnOnce(&mut ParsedCall) -> Result<EmbeddingRequest, ApiError> + Send + 'static,
) -> Result<(Arc<ServedModel>, RawObject), ApiError> {
    let convert = |mut call: ParsedCall| {
        let (model, mut request) = convert(&mut call)?;
        request["timeout_ms"] = model.timeout_ms().into();
        let request = call.library_request(&model, false, request);
        Ok((model, request))
    };
    let (model, mut request) = call.read(convert).await?;
    let slot = Arc::new(Mutex::new(Some(call.slot(&model).await?)));
    let _cancel = CancelOnDrop(Arc::clone(&slot));
    let log = Arc::clone(&call.log);
    call.held_by(&mut request);
    let reply = on_thread(move || perform(&slot, function, &request)).await?;
    log.set_reply(&json!({ "usage": reply.value("usage") }));
    Ok((model, reply))
}

fn perform(
    slot: &Mutex<Option<Slot>>,
    function: Function,
    request: &LibraryRequest,
) -> failure::Result<RawObject> {
    // The lock is not held during the call, because cancelling needs it.
    let loaded = slot.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Slot::loaded);
    let loaded = loaded.expect("only the end of this function takes the slot");
    let result = loaded.embedder().and_then(|embedder| function(embedder, &request.text()));
    let slot = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let (Some(slot), Err(failure)) = (slot, &result)
        && failure.is("ENGINE_CLOSED")
    {
        slot.discard();
    }
    result
}

/// Cancels the call if the client leaves. While the slot is held, no other call runs.
struct CancelOnDrop(Arc<Mutex<Option<Slot>>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = &*slot
            && let Ok(embedder) = slot.loaded().embedder()
        {
            embedder.cancel();
        }
    }
}
