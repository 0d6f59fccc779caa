//! `/v1/embeddings`: OpenAI's embeddings, and `/v1/rerank`.
//!
//! Source: <https://platform.openai.com/docs/api-reference/embeddings>, and the types of the
//! package `openai` 3.54.

use std::sync::Arc;

use serde_json::{Value, json};

use super::blocking::on_thread;
use super::call::{Call, ParsedCall, Reply, json_parts};
use super::error::ApiError;
use super::fields::{self, Kind};
use super::library_request::LibraryRequest;
use super::model::{Purpose, ServedModel};
use super::running_call::RunningCall;
use super::slot::Slot;
use super::stamp::id;
use crate::abi::Embedder;
use crate::failure::{self, Failure};
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
    let slot = call.slot(&model).await?;
    let log = Arc::clone(&call.log);
    call.held_by(&mut request);
    let running = CancelOnDrop::default();
    let worker = Arc::clone(&running.0);
    let reply = on_thread(move || perform(&slot, function, &request, &worker)).await?;
    log.set_reply(&json!({ "usage": reply.value("usage") }));
    Ok((model, reply))
}

fn perform(
    slot: &Slot,
    function: Function,
    request: &LibraryRequest,
    running: &RunningCall<Embedder>,
) -> failure::Result<RawObject> {
    let ended = running.end();
    let embedder = slot.embedder()?;
    running.set_handle(Some(Arc::clone(&embedder)));
    let result = if running.is_cancelled() {
        Err(Failure::new("the client left"))
    } else {
        function(&embedder, &request.text())
    };
    drop(ended);
    if result.as_ref().is_err_and(|failure| failure.is("ENGINE_CLOSED")) {
        slot.discard();
    } else {
        slot.give_back_embedder(embedder);
    }
    result
}

/// Cancels the call if the client leaves.
#[derive(Default)]
struct CancelOnDrop(Arc<RunningCall<Embedder>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
