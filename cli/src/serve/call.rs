//! A call of a handler: the JSON of its body, which is read with limits for size, time, values and
//! depth; its log; and its response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, HttpBody};
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, Path, Request};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;

use super::app::App;
use super::error::ApiError;
use super::event_stream::{self, EventWriter};
use super::fields;
use super::generation::Generation;
use super::log::{RequestLog, Wait};
use super::model::{Purpose, ServedModel};
use super::slot::Slot;

/// The most JSON values, as in the library. A value takes about a hundred bytes of memory.
const MAX_VALUES: usize = 1_000_000;

pub(crate) type Reply = Result<Response<Body>, ApiError>;

/// The input of handlers with a body.
pub(crate) struct Call {
    pub(super) app: Arc<App>,
    pub(super) log: Arc<RequestLog>,
    pub(super) body: Value,
}

impl FromRequest<Arc<App>> for Call {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Call, ApiError> {
        let log = request.extensions().get::<Arc<RequestLog>>().cloned();
        let log = log.unwrap_or_else(|| Arc::new(RequestLog::new(false, "", "")));
        check_encoding(request.headers())?;
        let limits = app.limits;
        let body = read_json(request.into_body(), limits.max_body, limits.read_timeout).await?;
        Ok(Call { app: Arc::clone(app), log, body })
    }
}

impl Call {
    /// The chat model that the request names, or the only one.
    pub(super) fn model(&self) -> Result<Arc<ServedModel>, ApiError> {
        self.app.model_for(Purpose::Chat, &self.body).cloned()
    }

    /// Whether the client wants events.
    pub(super) fn is_stream(&self) -> Result<bool, ApiError> {
        Ok(fields::boolean(&self.body, "stream")?.unwrap_or_default())
    }

    /// Waits for a slot of the model. `request` is the library's request.
    pub(super) async fn slot(
        &self,
        model: &Arc<ServedModel>,
        request: &Value,
    ) -> Result<Slot, ApiError> {
        self.log.set_model(&model.name);
        self.log.set_settings(request, self.body["stream"] == true);
        let wait = Wait { begin: Instant::now(), end: None, was_loaded: model.is_loaded() };
        self.log.set(|facts| facts.wait = Some(wait.clone()));
        let slot = self.app.pool.slot(model).await;
        self.log.set(|facts| facts.wait = Some(Wait { end: Some(Instant::now()), ..wait }));
        slot
    }

    /// Runs a request of the library, and responds with one object or with events. The writer is
    /// created when the request has a slot.
    pub(super) async fn generate<W: EventWriter>(
        &self,
        model: &Arc<ServedModel>,
        request: Value,
        is_stream: bool,
        writer: impl FnOnce() -> W,
    ) -> Reply {
        let slot = self.slot(model, &request).await?;
        let (metrics, log) = (Arc::clone(&self.app.metrics), Arc::clone(&self.log));
        let generation = Generation::start(slot, request, metrics, log);
        let writer = writer();
        if is_stream {
            return event_stream::respond(generation, writer).await;
        }
        Ok(json_response(&writer.whole(&generation.reply().await?)))
    }
}

/// A JSON response.
pub(super) fn json_response(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// A part of the path that names something.
pub(crate) type PathPart = Result<Path<String>, PathRejection>;

pub(crate) fn path_part(part: PathPart) -> Result<String, ApiError> {
    let wrong = |_| ApiError::new(StatusCode::BAD_REQUEST, "the path of the request is not UTF-8");
    part.map(|Path(part)| part).map_err(wrong)
}

/// Refuses a compressed body, which may become much larger than `--max-body`.
fn check_encoding(headers: &HeaderMap) -> Result<(), ApiError> {
    let encoding = headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes);
    if encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    let message = "the body is compressed; send it without Content-Encoding";
    Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, message))
}

/// Reads a JSON object, which must arrive within `time`.
async fn read_json(body: Body, max_bytes: usize, time: Duration) -> Result<Value, ApiError> {
    let too_large = || {
        let message = format!("the body has more than {max_bytes} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    };
    // Checked against `Content-Length` before the body is read.
    if body.size_hint().lower() > max_bytes as u64 {
        return Err(too_large());
    }
    let bytes = tokio::time::timeout(time, Limited::new(body, max_bytes).collect()).await;
    let bytes = match bytes {
        Err(_) => {
            return Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, "the body comes too slowly"));
        }
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return Err(too_large());
        }
        Ok(Err(error)) => return Err(bad(format!("the body cannot be read: {error}"))),
        Ok(Ok(collected)) => collected.to_bytes(),
    };
    parse(&bytes)
}

fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        bad(format!("the body is not UTF-8: byte {} is invalid", error.valid_up_to()))
    })?;
    if text.trim().is_empty() {
        return Err(bad("the body is empty; expected a JSON object".to_owned()));
    }
    if values(bytes) > MAX_VALUES {
        return Err(bad(format!("the body has more than {MAX_VALUES} values")));
    }
    let value: Value = serde_json::from_str(text)
        .map_err(|error| bad(format!("the body is not JSON: {error}")))?;
    if value.is_object() { Ok(value) } else { Err(bad("the body is not a JSON object".to_owned())) }
}

/// A lower bound for the number of values: commas and brackets outside of strings.
fn values(bytes: &[u8]) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (0, false, false);
    for byte in bytes {
        match (in_string, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b',' | b'[' | b'{') => count += 1,
            _ => {}
        }
    }
    count
}

fn bad(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(body: &[u8], message: &str) {
        let error = parse(body).unwrap_err();
        assert_eq!(error.status, StatusCode::BAD_REQUEST);
        assert!(error.message.contains(message), "{}", error.message);
    }

    #[test]
    fn wrong_bodies_are_refused() {
        check(b"", "empty");
        check(b"{", "not JSON");
        check(b"[]", "not a JSON object");
        check(b"{\"a\": \"\xff\"}", "not UTF-8: byte 7");
        check("[".repeat(100_000).as_bytes(), "not JSON");
        check(format!("[{}0]", "0,".repeat(MAX_VALUES)).as_bytes(), "more than 1000000 values");
    }

    #[test]
    fn commas_in_strings_are_not_values() {
        assert_eq!(values(br#"{"a,\",b": [1, 2]}"#), 3);
    }
}
