//! `/health`, `/metrics`, `/props` and `/v1/models`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Response, header};
use serde_json::{Value, json};

use super::app::{App, json as json_response, reply};
use super::model::ServedModel;
use crate::abi;

pub(super) async fn health() -> Response<Body> {
    json_response(&json!({ "status": "ok" }))
}

pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response<Body> {
    let page = app.metrics.page(app.models.iter().map(|model| &**model));
    let mut response = Response::new(Body::from(page));
    let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, text);
    response
}

/// What the server and its models are. llama.cpp's server has a route of this name.
pub(super) async fn props(State(app): State<Arc<App>>) -> Response<Body> {
    let models: Vec<Value> = app
        .models
        .iter()
        .map(|model| {
            json!({
                "id": model.name, "n_ctx": model.n_ctx,
                "caps": model.info["caps"], "template_caps": model.info["template_caps"],
                "tool_support": model.info["tool_support"], "evidence": model.info["evidence"],
                "output_format": model.info["output_format"], "sampling": model.info["sampling"],
                "findings": model.info["findings"],
            })
        })
        .collect();
    let limits = &app.limits;
    json_response(&json!({
        "version": abi::version(),
        "limits": {
            "parallel": limits.parallel, "queue": limits.queue,
            "timeout_seconds": limits.timeout.as_secs(), "body_bytes": limits.max_body,
            "connections": limits.max_connections,
        },
        "models": models,
    }))
}

pub(super) async fn models(State(app): State<Arc<App>>) -> Response<Body> {
    let data: Vec<Value> = app.models.iter().map(|model| entry(model)).collect();
    let ends = [data.first(), data.last()].map(|model| model.map(|model| model["id"].clone()));
    let [first, last] = ends;
    // The last three members are Anthropic's.
    json_response(&json!({
        "object": "list", "data": data, "has_more": false, "first_id": first, "last_id": last,
    }))
}

/// The name of a model may have slashes.
pub(super) async fn model(State(app): State<Arc<App>>, Path(name): Path<String>) -> Response<Body> {
    reply(app.named_model(&name).map(|model| json_response(&entry(model))))
}

/// An entry in the shape of OpenAI, with `capabilities`, and what clients of Anthropic need.
fn entry(model: &ServedModel) -> Value {
    let info = &model.info;
    let reasoning = info["output_format"]["reasoning"].as_str().is_some_and(|kind| kind != "none");
    json!({
        "id": model.name, "object": "model", "created": model.created, "owned_by": "llb",
        "type": "model", "display_name": info["name"],
        "context_length": model.n_ctx,
        "capabilities": {
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
