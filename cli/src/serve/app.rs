//! Routes, and what holds for all of them: key, origin, body, log, metrics.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{get, post};
use serde_json::Value;

use super::access::Access;
use super::error::{ApiError, Protocol};
use super::log::RequestLog;
use super::metrics::Metrics;
use super::model::{ServedModel, Slot};
use super::responses::ResponseStore;
use super::{
    ServeLimits, chat_completions, explain, fields, json_body, messages, page, responses, status,
};

/// A client that left before the response; nginx's number.
const CLIENT_LEFT: u16 = 499;

pub(crate) type Reply = Result<Response<Body>, ApiError>;

pub(crate) struct App {
    pub(crate) models: Vec<Arc<ServedModel>>,
    pub(crate) limits: ServeLimits,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) responses: ResponseStore,
    access: Access,
    has_access_log: bool,
}

impl App {
    pub(super) fn new(
        models: Vec<Arc<ServedModel>>,
        limits: ServeLimits,
        key: Option<String>,
        address: SocketAddr,
        has_access_log: bool,
    ) -> App {
        let access = Access::new(key, address);
        App {
            models,
            limits,
            metrics: Arc::default(),
            responses: ResponseStore::default(),
            access,
            has_access_log,
        }
    }

    /// The model of a request. Without a name, the only model is used.
    pub(crate) fn model(&self, request: &Value) -> Result<&Arc<ServedModel>, ApiError> {
        let Some(name) = fields::string(request, "model")? else {
            return match &self.models[..] {
                [only] => Ok(only),
                _ => Err(ApiError::invalid("model", "is missing, and there are several models")),
            };
        };
        self.named_model(name)
    }

    /// The model of a name.
    pub(crate) fn named_model(&self, name: &str) -> Result<&Arc<ServedModel>, ApiError> {
        self.models.iter().find(|model| model.name == name).ok_or_else(|| {
            let names: Vec<&str> = self.models.iter().map(|model| &*model.name).collect();
            let message = format!("model: unknown model; expected one of {}", names.join(", "));
            let mut error = ApiError::new(StatusCode::NOT_FOUND, message);
            error.param = Some("model".to_owned());
            error.with_code("model_not_found")
        })
    }
}

/// What handlers of generations get.
pub(crate) struct Call {
    pub(crate) app: Arc<App>,
    pub(crate) log: Arc<RequestLog>,
    pub(crate) body: Value,
}

impl Call {
    /// Reads the body.
    pub(crate) async fn read(app: Arc<App>, request: Request) -> Result<Call, ApiError> {
        let log = request.extensions().get::<Arc<RequestLog>>().cloned();
        let log = log.unwrap_or_else(|| Arc::new(RequestLog::new(false, "", "")));
        let limits = app.limits;
        let body =
            json_body::read(request.into_body(), limits.max_body, limits.read_timeout).await?;
        Ok(Call { app, log, body })
    }

    /// Waits for a slot of the model.
    pub(crate) async fn slot(&self, model: &Arc<ServedModel>) -> Result<Slot, ApiError> {
        self.log.set_model(&model.name);
        model.slot().await
    }
}

pub(super) fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/", get(page::show))
        .route("/health", get(status::health))
        .route("/metrics", get(status::metrics))
        .route("/props", get(status::props))
        .route("/v1/models", get(status::models))
        .route("/v1/models/{*name}", get(status::model))
        .route("/v1/chat/completions", post(chat_completions::respond))
        .route("/v1/explain", post(explain::respond))
        .route("/v1/messages", post(messages::respond))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/responses", post(responses::respond))
        .route("/v1/responses/{id}", get(responses::retrieve).delete(responses::delete))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&app), around))
        .with_state(app)
}

/// The name of a route in the log. Other paths are text of the client.
fn route(path: &str) -> &'static str {
    const ROUTES: [&str; 10] = [
        "/",
        "/health",
        "/metrics",
        "/props",
        "/v1/models",
        "/v1/chat/completions",
        "/v1/explain",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/responses",
    ];
    match ROUTES.iter().find(|route| **route == path) {
        Some(route) => route,
        None if path.starts_with("/v1/models/") => "/v1/models/{name}",
        None if path.starts_with("/v1/responses/") => "/v1/responses/{id}",
        None => "other",
    }
}

/// Checks a request, and logs it when it is over.
async fn around(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response<Body> {
    let path = request.uri().path();
    let protocol = Protocol::of(path);
    let needs_key = !["/", "/health"].contains(&path);
    let log = RequestLog::new(app.has_access_log, method(request.method()), route(path));
    let log = Arc::new(log);
    let over = Over { log: Arc::clone(&log), metrics: Arc::clone(&app.metrics) };
    request.extensions_mut().insert(Arc::clone(&log));
    let headers = request.headers();
    let checked = app
        .access
        .check_origin(headers)
        .and_then(|()| if needs_key { app.access.check_key(headers) } else { Ok(()) });
    let mut response = match checked {
        Ok(()) => next.run(request).await,
        Err(error) => error.response(protocol),
    };
    // Handlers of unknown routes leave their error here.
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        response = error.response(protocol);
    }
    log.set_status(response.status().as_u16());
    response
        .headers_mut()
        .entry(header::X_CONTENT_TYPE_OPTIONS)
        .or_insert(HeaderValue::from_static("nosniff"));
    response.map(|body| Body::new(LoggedBody { body, _over: over }))
}

/// Text of the client is not logged.
fn method(method: &Method) -> &'static str {
    let known = [&Method::GET, &Method::POST, &Method::HEAD, &Method::OPTIONS, &Method::DELETE];
    match known.iter().position(|each| *each == method) {
        Some(0) => "GET",
        Some(1) => "POST",
        Some(2) => "HEAD",
        Some(3) => "OPTIONS",
        Some(4) => "DELETE",
        _ => "OTHER",
    }
}

async fn unknown_route() -> Response<Body> {
    let message = "no such route; GET /v1/models lists the models, docs/server.md the routes";
    failed(ApiError::new(StatusCode::NOT_FOUND, message))
}

async fn wrong_method() -> Response<Body> {
    let message = "this route has another method";
    failed(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message))
}

/// An error whose shape `around` chooses by the path.
pub(crate) fn failed(error: ApiError) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = error.status;
    response.extensions_mut().insert(error);
    response
}

/// The response of a handler.
pub(crate) fn reply(result: Reply) -> Response<Body> {
    result.unwrap_or_else(failed)
}

/// A JSON response.
pub(crate) fn json(value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// Logs and counts the request when the body was sent, or the client left.
struct Over {
    log: Arc<RequestLog>,
    metrics: Arc<Metrics>,
}

impl Drop for Over {
    fn drop(&mut self) {
        let status = self.log.status().unwrap_or(CLIENT_LEFT);
        let log = &self.log;
        self.metrics.add_request(log.route(), status, log.elapsed(), log.first_token());
        log.write();
    }
}

struct LoggedBody {
    body: Body,
    _over: Over,
}

impl HttpBody for LoggedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}
