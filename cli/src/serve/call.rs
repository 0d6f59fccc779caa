//! A call of a handler: its body, which waits as bytes, is parsed on another thread when there is
//! memory for its values, and is then converted to a request of the library; its log; and its
//! response.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequest, Path, Request};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use bytes::Bytes;
use serde_json::Value;

use super::app::App;
use super::blocking::on_thread;
use super::choices::{self, Choices};
use super::client::Client;
use super::error::ApiError;
use super::event_stream::{self, EventWriter};
use super::fair_queue::Group;
use super::fields;
use super::generation::Generation;
use super::held_replies::body_of;
use super::json_weight::{JsonWeight, MAX_VALUES};
use super::library_request::LibraryRequest;
use super::log::{RequestLog, Wait};
use super::media_arguments::MEDIA_OPTIONS;
use super::memory_budget::{self, MemoryShare, RequestMemory};
use super::model::{Purpose, ServedModel};
use super::pictures::PicturePaths;
use super::request_body::{self, no_memory};
use super::request_end::RequestEnd;
use super::slot::Slot;
use crate::abi;

/// How long a request waits while the machine has too little memory.
const MAX_SHORTAGE: Duration = Duration::from_secs(10);
/// Larger bodies are examined on another thread.
const MAX_EXAMINED: usize = 64 << 10;

pub(crate) type Reply = Result<Response<Body>, ApiError>;

/// The input of handlers with a body.
pub(crate) struct Call {
    pub(super) app: Arc<App>,
    pub(super) log: Arc<RequestLog>,
    body: Bytes,
    memory: RequestMemory,
    /// When the request must have ended: `timeout_ms` after its headers.
    deadline: Option<Instant>,
    /// When its connection is closed.
    end: RequestEnd,
    client: Client,
}

/// A call whose body is parsed.
pub(super) struct ParsedCall {
    pub(super) app: Arc<App>,
    pub(super) log: Arc<RequestLog>,
    pub(super) body: Value,
}

impl FromRequest<Arc<App>> for Call {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Call, ApiError> {
        let log = request.extensions().get::<Arc<RequestLog>>().cloned();
        let log = log.unwrap_or_else(|| Arc::new(RequestLog::new(false, "", "")));
        if let Err(error) = check_encoding(request.headers()) {
            request_body::discard(request.into_body(), app.limits.read_timeout).await;
            return Err(error);
        }
        let end = request.extensions().get::<RequestEnd>().cloned().unwrap_or_default();
        let client = request.extensions().get::<Client>().copied();
        let client = client.expect("a connection has a client");
        let limits = app.limits;
        let (body, share) = request_body::receive(
            request.into_body(),
            limits.body_bytes(),
            limits.read_timeout,
            &app.bodies,
        )
        .await?;
        let memory = RequestMemory { _body: share, run: None };
        end.received();
        Ok(Call { app: Arc::clone(app), log, body, memory, deadline: None, end, client })
    }
}

impl Call {
    /// Parses the body and converts it, on another thread. Until then the body waits as bytes. Can
    /// be done once.
    pub(super) async fn read<T: Send + 'static>(
        &mut self,
        convert: impl FnOnce(ParsedCall) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let body = std::mem::take(&mut self.body);
        self.parse(body, 0, convert).await
    }

    /// Puts the JSON of an object in place of a body of another type, on another thread.
    pub(super) async fn replace_body<F>(
        &mut self,
        convert: impl FnOnce(Bytes) -> F + Send + 'static,
    ) -> Result<(), ApiError>
    where
        F: Future<Output = Result<Value, ApiError>>,
    {
        let body = std::mem::take(&mut self.body);
        let runtime = tokio::runtime::Handle::current();
        let convert = move || runtime.block_on(convert(body)).map(|value| value.to_string());
        self.body = on_thread(convert).await?.into();
        Ok(())
    }

    /// Like [`read`](Self::read), if `convert` also parses texts that take this much memory.
    pub(super) async fn read_with<T: Send + 'static>(
        &mut self,
        memory: u64,
        convert: impl FnOnce(ParsedCall) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let body = std::mem::take(&mut self.body);
        self.parse(body, memory, convert).await
    }

    /// Like [`read`](Self::read), but the body can be read again.
    pub(super) async fn peek<T: Send + 'static>(
        &mut self,
        convert: impl FnOnce(ParsedCall) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        self.parse(self.body.clone(), 0, convert).await
    }

    /// Like [`read`](Self::read), for an answer that needs no weights. Few of them are computed at
    /// once.
    pub(super) async fn answer<T: Send + 'static>(
        mut self,
        answer: impl FnOnce(ParsedCall) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let body = std::mem::take(&mut self.body);
        let body = self.admit(body, 0).await?;
        let app = Arc::clone(&self.app);
        let parse = self.parser(body, answer);
        let time = self.wait();
        self.end.set(time);
        app.weightless.run(self.route(), time, parse).await.map(|(_, answer)| answer)
    }

    async fn parse<T: Send + 'static>(
        &mut self,
        body: Bytes,
        memory: u64,
        convert: impl FnOnce(ParsedCall) -> Result<T, ApiError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let body = self.admit(body, memory).await?;
        let share = self.memory.run.as_ref().expect("an admitted request has a share");
        let turn = self.in_time(share.turn()).await?;
        let parse = self.parser(body, convert);
        let parse = move || {
            let _turn = turn;
            parse()
        };
        let (memory, value) = on_thread(parse).await?;
        self.memory = memory;
        Ok(value)
    }

    /// Waits until there is memory for the values of the body, and for this many bytes.
    async fn admit(&mut self, body: Bytes, memory: u64) -> Result<Bytes, ApiError> {
        let is_small = body.len() <= MAX_EXAMINED;
        let weigh = move || {
            let weight = JsonWeight::of(&body);
            Ok::<_, ApiError>((body, weight))
        };
        let (body, weight) = if is_small { weigh()? } else { on_thread(weigh).await? };
        if weight.values >= MAX_VALUES {
            return Err(bad(format!("the body has more than {MAX_VALUES} values")));
        }
        let timeout = weight.timeout_ms.filter(|timeout| *timeout > 0).map(Duration::from_millis);
        self.deadline = timeout.and_then(|timeout| self.log.started.checked_add(timeout));
        let memory = weight.memory().saturating_add(memory);
        let budget = &self.app.requests;
        if memory > budget.max_request() {
            return Err(too_heavy(memory, budget.max_request()));
        }
        // The request does not wait for a share while it holds one.
        self.memory.run = None;
        self.memory.run = Some(self.in_time(budget.share(memory)).await?);
        let available = tokio::time::timeout(MAX_SHORTAGE, memory_budget::available(memory));
        self.in_time(available).await?.map_err(|_| no_memory())?;
        Ok(body)
    }

    /// A function that parses and converts a body while it holds the memory of this call.
    fn parser<T>(
        &mut self,
        body: Bytes,
        convert: impl FnOnce(ParsedCall) -> Result<T, ApiError> + Send + 'static,
    ) -> impl FnOnce() -> Result<(RequestMemory, T), ApiError> + Send + 'static {
        let memory = std::mem::take(&mut self.memory);
        let (app, log) = (Arc::clone(&self.app), Arc::clone(&self.log));
        move || {
            let value = parse(&body)?;
            drop(body);
            let value = convert(ParsedCall { app, log, body: value })?;
            Ok((memory, value))
        }
    }

    /// Waits until `--timeout` or the deadline of the request.
    async fn in_time<T>(&self, result: impl Future<Output = T>) -> Result<T, ApiError> {
        let wait = self.wait();
        // A time-out of zero does not end what is ready.
        if wait.is_zero() {
            return Err(no_memory());
        }
        tokio::time::timeout(wait, result).await.map_err(|_| no_memory())
    }

    /// How long the request may wait.
    pub(super) fn wait(&self) -> Duration {
        let until = self.deadline.map(|end| end.saturating_duration_since(Instant::now()));
        until.map_or(self.app.limits.timeout, |until| until.min(self.app.limits.timeout))
    }

    /// The client and the route.
    pub(super) fn route(&self) -> Group {
        Group { client: self.client, kind: self.log.route }
    }

    /// Waits for a slot of the model. Requests of one client take turns by their size.
    pub(super) async fn slot(&self, model: &Arc<ServedModel>) -> Result<Slot, ApiError> {
        let wait = Wait { begin: Instant::now(), end: None, was_loaded: model.is_loaded() };
        self.log.set(|facts| facts.wait = Some(wait.clone()));
        let slot = self.app.pool.slot(model, self.group(), self.wait()).await;
        self.log.set(|facts| facts.wait = Some(Wait { end: Some(Instant::now()), ..wait }));
        slot
    }

    /// The group in which its requests wait.
    fn group(&self) -> Group {
        let size = self.memory.run.as_ref().map_or("", MemoryShare::size);
        Group { client: self.client, kind: size }
    }

    /// Passes the memory and the deadline of the call to its request, which then runs.
    pub(super) fn held_by(self, request: &mut LibraryRequest) -> Arc<App> {
        request.hold(self.memory, self.deadline);
        self.end.set(request.time());
        self.app
    }

    /// Runs a request of the library, and responds with one object or with events. The writer is
    /// created when the request has a slot.
    pub(super) async fn generate<W: EventWriter>(
        self,
        model: &Arc<ServedModel>,
        mut request: LibraryRequest,
        is_stream: bool,
        writer: impl FnOnce() -> W,
    ) -> Reply {
        let slot = self.slot(model).await?;
        let log = Arc::clone(&self.log);
        let app = self.held_by(&mut request);
        let held = is_stream.then(|| app.replies.begin());
        let generation = Generation::start(slot, request, Arc::clone(&app.metrics), log, held);
        let writer = writer();
        if is_stream {
            return event_stream::respond(generation, writer, app.replies.begin()).await;
        }
        Ok(json_parts(writer.whole(&generation.reply().await?)))
    }
}

impl Call {
    /// Starts several requests of the library, each of which waits for its own slot. `n` is how many
    /// choices each prompt has.
    pub(super) fn choices(
        mut self,
        model: &Arc<ServedModel>,
        mut requests: Vec<LibraryRequest>,
        n: usize,
        is_stream: bool,
    ) -> (Arc<App>, Choices) {
        let group = self.group();
        let memory = std::mem::take(&mut self.memory);
        for request in &mut requests {
            request.hold(RequestMemory::default(), self.deadline);
        }
        let wait = self.wait();
        self.end.set(choices::time(&requests, wait, self.deadline));
        let choices = Choices::start(
            &self.app,
            model,
            requests,
            (n, wait, is_stream),
            &self.log,
            (group, memory),
        );
        (self.app, choices)
    }
}

impl ParsedCall {
    /// The chat model that the request names, or the only one.
    pub(super) fn model(&self) -> Result<Arc<ServedModel>, ApiError> {
        self.app.model_for(Purpose::Chat, &self.body).cloned()
    }

    /// Whether the client wants events.
    pub(super) fn is_stream(&self) -> Result<bool, ApiError> {
        Ok(fields::boolean(&self.body, "stream")?.unwrap_or_default())
    }

    /// The request of the library as it waits for its turn.
    pub(super) fn library_request(
        &self,
        model: &ServedModel,
        is_stream: bool,
        mut request: Value,
    ) -> LibraryRequest {
        if fields::get(&request, "lora").is_none()
            && let Some(scales) = self.app.adapters.of_request()
        {
            request["lora"] = scales;
        }
        model.limit(&mut request);
        self.log.set_model(&model.name);
        self.log.set_settings(&request, is_stream);
        LibraryRequest::new(request)
    }

    /// The number of tokens of a request's prompt. Needs only the vocabulary, so the model need not
    /// be in memory.
    pub(super) fn count(&self, model: &ServedModel, mut request: Value) -> Result<Value, ApiError> {
        self.log.set_model(&model.name);
        request["model_path"] = model.options["model"].clone();
        if let Some(template) = model.options.get("chat_template") {
            request["chat_template"] = template.clone();
        }
        for name in ["projector"].iter().chain(&MEDIA_OPTIONS) {
            if let Some(value) = model.options.get(*name) {
                request[*name] = value.clone();
            }
        }
        let pictures = PicturePaths::take(&mut request);
        let counted = abi::count(&request).map_err(|failure| pictures.error(&failure))?;
        Ok(counted["prompt_tokens"].clone())
    }
}

/// A JSON response.
pub(super) fn json_response(value: &Value) -> Response<Body> {
    json_text(value.to_string())
}

/// A response of JSON text in parts.
pub(super) fn json_parts(parts: Vec<Bytes>) -> Response<Body> {
    json_text(body_of(parts))
}

/// A response of JSON text.
pub(super) fn json_text(text: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(text.into());
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

/// Parses a JSON object.
fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        bad(format!("the body is not UTF-8: byte {} is invalid", error.valid_up_to()))
    })?;
    if text.trim().is_empty() {
        return Err(bad("the body is empty; expected a JSON object".to_owned()));
    }
    let value =
        crate::json::value(text).map_err(|error| bad(format!("the body is not JSON: {error}")))?;
    if value.is_object() { Ok(value) } else { Err(bad("the body is not a JSON object".to_owned())) }
}

fn too_heavy(memory: u64, most: u64) -> ApiError {
    let message = format!(
        "the values of the body take up to {} MB of memory, more than {} MB; send fewer values, or \
         start the server with more --request-memory",
        memory / 1_000_000,
        most / 1_000_000,
    );
    ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
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
    }
}
