//! `/v1/explain`: the prompt that a request of `/v1/chat/completions` would have, with the origin
//! of its parts.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use serde_json::Value;

use super::app::{App, Call, Reply, json as json_response, reply};
use super::chat_completions;
use super::error::ApiError;
use super::model::ServedModel;

pub(super) async fn respond(State(app): State<Arc<App>>, request: Request) -> Response<Body> {
    reply(answer(app, request).await)
}

async fn answer(app: Arc<App>, request: Request) -> Reply {
    let call = Call::read(app, request).await?;
    let model = Arc::clone(call.app.model(&call.body)?);
    let request = chat_completions::checked_request(&call.body, &model)?;
    let mut explanation = explain(&call, &model, request).await?;
    // These members compare with the chat's last request, which another client sent.
    if let Some(members) = explanation.as_object_mut() {
        members.remove("cache_break");
    }
    Ok(json_response(&explanation))
}

/// Explains a request without running it. Waits until the model is loaded, but not for a slot.
pub(super) async fn explain(
    call: &Call,
    model: &Arc<ServedModel>,
    request: Value,
) -> Result<Value, ApiError> {
    call.log.set_model(&model.name);
    let lease = call.app.pool.lease(model).await?;
    tokio::task::spawn_blocking(move || lease.loaded.chats()?.explain(&request))
        .await
        .map_err(|_| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "a thread ended"))?
        .map_err(|failure| ApiError::of_library(&failure))
}
