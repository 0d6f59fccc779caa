//! `/health`, `/metrics`, `/load`, `/props` and `/v1/models`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, Response, header};
use serde_json::{Value, json};

use super::app::App;
use super::call::{PathPart, Reply, json_response, path_part};
use super::model::{Purpose, ServedModel};
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

/// Describes the server and its models. llama.cpp's server has a route with this name.
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
                "findings": model.info["findings"],
            })
        })
        .collect();
    let (limits, pool) = (&app.limits, app.pool.limits());
    json_response(&json!({
        "version": abi::version(),
        "limits": {
            "parallel": limits.parallel, "queue": limits.queue,
            "timeout_seconds": limits.timeout.as_secs(), "body_bytes": limits.max_body,
            "connections": limits.max_connections, "loaded_models": pool.max_loaded,
            "model_bytes": pool.max_bytes, "idle_seconds": pool.idle.map(|idle| idle.as_secs()),
        },
        "models": models,
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

/// An entry in the shape of OpenAI, with `capabilities`, and what clients of Anthropic need.
fn entry(model: &ServedModel) -> Value {
    let info = &model.info;
    let reasoning = info["output_format"]["reasoning"].as_str().is_some_and(|kind| kind != "none");
    json!({
        "id": model.name, "object": "model", "created": model.created, "owned_by": "llb",
        "aliases": model.aliases, "type": "model", "display_name": info["name"],
        "context_length": model.n_ctx, "loaded": model.is_loaded(),
        "capabilities": {
            "chat": model.purpose == Purpose::Chat,
            "embeddings": model.purpose == Purpose::Embedding,
            "tools": info["tool_support"] != "none",
            "native_tools": info["supports_tools"],
            "parallel_tool_calls": info["caps"]["supports_parallel_tool_calls"],
            "system_role": info["caps"]["supports_system_role"],
            "reasoning": reasoning,
            "reasoning_effort": info["caps"]["supports_reasoning_effort"],
            "vision": false,
        },
    })
}
