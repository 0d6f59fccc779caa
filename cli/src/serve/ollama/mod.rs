//! Ollama's `/api` routes, for the tools that speak nothing else: chat, generate, embeddings and
//! lists of models. Streams are lines of JSON.
//!
//! Source: `docs/api.md` of Ollama, and the types of the package `ollama` 0.6.

mod embed;
mod lines;
mod models;
mod options;
mod request;
mod turns;

pub(super) use self::embed::{embed, embeddings};
pub(super) use self::models::{running, show, tags, version};

use std::time::Instant;

use self::lines::{LineWriter, Shape};
use self::models::accept_tag;
use super::call::{Call, ParsedCall, Reply, json_response};
use super::fields;
use super::left_out::LeftOut;

/// `/api/chat`.
pub(super) async fn chat(call: Call) -> Reply {
    respond(call, Shape::Chat).await
}

/// `/api/generate`.
pub(super) async fn generate(call: Call) -> Reply {
    respond(call, Shape::Generate).await
}

async fn respond(mut call: Call, shape: Shape) -> Reply {
    let convert = move |mut call: ParsedCall| {
        accept_tag(&mut call);
        let model = call.model()?;
        let is_stream = fields::boolean(&call.body, "stream")?.unwrap_or(true);
        let mut left_out = LeftOut::new(model.media());
        let library = request::library_request(&call.body, shape, &mut left_out)?;
        let library = library.map(|library| call.library_request(&model, is_stream, library));
        Ok((model, library, is_stream, left_out))
    };
    let (model, library, is_stream, left_out) = call.read(convert).await?;
    let header = left_out.header();
    let Some(library) = library else {
        // A request without messages only loads the model.
        call.app.pool.lease(&model, call.wait()).await?;
        let mut reply = lines::empty(shape, &model.name);
        reply["done"] = true.into();
        reply["done_reason"] = "load".into();
        return Ok(header.on(json_response(&reply)));
    };
    let started = Instant::now();
    let writer = || LineWriter::new(shape, &model.name, started, left_out);
    call.generate(&model, library, is_stream, writer).await.map(|reply| header.on(reply))
}
