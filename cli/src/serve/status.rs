//! `/health`, `/metrics`, `/load`, `/props`, `/slots` and `/v1/models`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use super::app::App;
use super::call::{PathPart, Reply, json_response, path_part};
use super::error::ApiError;
use super::model::{Purpose, ServedModel};
use super::template;
use crate::abi;

pub(super) async fn health() -> Response<Body> {
    json_response(&json!({ "status": "ok" }))
}

pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response<Body> {
    let page = app.metrics.page(app.pool.models().iter().map(|model| &**model));
    let mut response = Response::new(Body::from(page));
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

/// The load of the last minutes.
pub(super) async fn load(State(app): State<Arc<App>>) -> Response<Body> {
    json_response(&app.load_history.json())
}

/// The places for requests of each chat model, as llama.cpp's server lists its own. All places of a
/// model share its context.
pub(super) async fn slots(State(app): State<Arc<App>>) -> Response<Body> {
    let chats = app.pool.models().iter().filter(|model| model.purpose == Purpose::Chat);
    let parallel = app.limits.parallel;
    let places = chats.flat_map(|model| {
        let running = model.running();
        (0..parallel).map(move |place| (model, place < running))
    });
    let slot = |(id, (model, is_processing)): (usize, (&Arc<ServedModel>, bool))| {
        json!({
            "id": id, "model": model.name, "n_ctx": model.n_ctx, "speculative": false,
            "is_processing": is_processing,
        })
    };
    json_response(&places.enumerate().map(slot).collect())
}

/// Saves, restores or erases a slot in llama.cpp's server, which needs an option there too.
pub(super) async fn change_slot() -> ApiError {
    let message = "slots cannot be saved, restored or erased; the prefixes of all prompts are found \
                   again in memory, and on disk with --prefix-cache FOLDER";
    ApiError::new(StatusCode::NOT_IMPLEMENTED, message).with_code("not_supported")
}

/// Describes the server and its models. The members after `models` are those of llama.cpp's server,
/// for the first chat model.
pub(super) async fn props(State(app): State<Arc<App>>) -> Response<Body> {
    let models: Vec<Value> = app
        .pool
        .models()
        .iter()
        .map(|model| {
            json!({
                "id": model.name, "embeddings": model.purpose == Purpose::Embedding, "n_ctx": model.n_ctx, "loaded": model.is_loaded(),
                "architecture": model.info["architecture"], "n_params": model.info["n_params"],
                "file_size": model.info["file_size"],
                "quantization": model.info["quantization"],
                "caps": model.info["caps"], "template_caps": model.info["template_caps"],
                "tool_support": model.info["tool_support"], "evidence": model.info["evidence"],
                "output_format": model.info["output_format"], "sampling": model.info["sampling"],
                "findings": model.info["findings"], "input_modalities": model.info["input_modalities"],
            })
        })
        .collect();
    let (limits, pool) = (&app.limits, app.pool.limits());
    let chat = app.pool.models().iter().find(|model| model.purpose == Purpose::Chat);
    let media = chat.map(|chat| chat.media()).unwrap_or_default();
    json_response(&json!({
        "version": abi::version(),
        "limits": {
            "parallel": limits.parallel, "queue": limits.queue,
            "timeout_seconds": limits.timeout.as_secs(), "body_bytes": limits.body_bytes(),
            "connections": limits.max_connections, "loaded_models": pool.max_loaded,
            "model_bytes": pool.max_bytes, "idle_seconds": pool.idle.map(|idle| idle.as_secs()),
        },
        "models": models,
        "total_slots": limits.parallel,
        "model_alias": chat.map(|chat| &chat.name),
        "default_generation_settings": {
            "n_ctx": chat.map(|chat| chat.n_ctx), "params": chat.map(|chat| &chat.info["sampling"]),
        },
        "modalities": { "vision": media.pictures, "audio": media.sound },
        "endpoint_slots": true, "endpoint_props": false, "endpoint_metrics": true,
        "chat_template": chat.and_then(|chat| template::source(chat)),
        "chat_template_caps": chat.map(|chat| &chat.info["caps"]),
        "is_sleeping": chat.is_some_and(|chat| !chat.is_loaded()),
        "model_ftype": chat.map(|chat| &chat.info["quantization"]),
        "bos_token": chat.map(|chat| &chat.info["bos_token"]),
        "eos_token": chat.map(|chat| &chat.info["eos_token"]),
        "build_info": abi::version(),
    }))
}

pub(super) async fn models(State(app): State<Arc<App>>) -> Response<Body> {
    let data: Vec<Value> = app.pool.models().iter().map(|model| entry(model)).collect();
    let ends = [data.first(), data.last()].map(|model| model.map(|model| model["id"].clone()));
    let [first, last] = ends;
    // The last three members are Anthropic's.
    json_response(&json!({
        "object": "list", "data": data, "has_more": false, "first_id": first, "last_id": last,
    }))
}

/// The entry of one model. Its name may contain slashes.
pub(super) async fn model(State(app): State<Arc<App>>, name: PathPart) -> Reply {
    Ok(json_response(&entry(app.named_model(&path_part(name)?)?)))
}

/// An entry in the shape of OpenAI, with `capabilities`, and what clients of Anthropic and of
/// llama.cpp's server need.
fn entry(model: &ServedModel) -> Value {
    let info = &model.info;
    let reasoning = info["output_format"]["reasoning"].as_str().is_some_and(|kind| kind != "none");
    json!({
        "id": model.name, "object": "model", "created": model.created, "owned_by": "llb",
        "aliases": model.aliases, "type": "model", "display_name": info["name"],
        "context_length": model.n_ctx, "loaded": model.is_loaded(),
        "tags": [], "architecture": {
            "input_modalities": info["input_modalities"], "output_modalities": ["text"],
        },
        "meta": {
            "n_ctx": model.n_ctx, "n_ctx_train": info["context_length"],
            "n_embd": info["embedding_length"], "n_params": info["n_params"],
            "size": info["file_size"], "ftype": info["quantization"],
        },
        "capabilities": {
            "chat": model.purpose == Purpose::Chat,
            "embeddings": model.purpose == Purpose::Embedding,
            "tools": info["tool_support"] != "none",
            "native_tools": info["supports_tools"],
            "parallel_tool_calls": info["caps"]["supports_parallel_tool_calls"],
            "system_role": info["caps"]["supports_system_role"],
            "reasoning": reasoning,
            "reasoning_effort": info["caps"]["supports_reasoning_effort"],
            "vision": model.media().pictures,
            "audio": model.media().sound,
        },
    })
}
