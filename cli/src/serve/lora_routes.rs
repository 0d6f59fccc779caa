//! `/lora-adapters`, as in llama.cpp's server.
//!
//! Source: `tools/server/README.md` of llama.cpp.

use std::sync::Arc;

use axum::extract::{Request, State};
use serde_json::json;

use super::app::App;
use super::call::{Reply, json_response};
use super::error::ApiError;
use super::request_body;

/// The largest body that sets scales.
const MAX_BODY: usize = 64 << 10;

/// `GET /lora-adapters`.
pub(super) async fn list(State(app): State<Arc<App>>) -> Reply {
    Ok(json_response(&app.adapters.list()))
}

/// `POST /lora-adapters`.
pub(super) async fn set(State(app): State<Arc<App>>, request: Request) -> Reply {
    let time = app.limits.read_timeout;
    let (body, _share) =
        request_body::receive(request.into_body(), MAX_BODY, time, &app.bodies).await?;
    let text = std::str::from_utf8(&body).unwrap_or_default();
    let given = crate::json::value(text)
        .map_err(|error| ApiError::invalid("the body", format!("is not JSON: {error}")))?;
    app.adapters.set(&given)?;
    Ok(json_response(&json!({ "success": true })))
}
