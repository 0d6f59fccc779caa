//! The routes, and what all of them share: key, origin, body, log, metrics.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{get, post};
use serde_json::Value;

use super::access::Access;
use super::error::{ApiError, Protocol};
use super::loaded_model::Purpose;
use super::log::RequestLog;
use super::metrics::Metrics;
use super::model::{ServedModel, Slot};
use super::model_pool::ModelPool;
use super::responses::ResponseStore;
use super::trace::{self, Traces};
use super::weightless::WeightlessCalls;
use super::{
    ServeLimits, chat_completions, cors, embeddings, explain, fields, json_body, messages, page,
    responses, status, template, tokens,
};

/// The status for a client that left before the response, as in nginx.
const CLIENT_LEFT: u16 = 499;

pub(crate) type Reply = Result<Response<Body>, ApiError>;

pub(crate) struct App {
    pub(crate) pool: Arc<ModelPool>,
    pub(crate) limits: ServeLimits,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) responses: ResponseStore,
    pub(super) weightless: WeightlessCalls,
    access: Access,
    has_access_log: bool,
    traces: Option<Arc<Traces>>,
}

impl App {
    pub(super) fn new(
        pool: Arc<ModelPool>,
        limits: ServeLimits,
        access: Access,
        has_access_log: bool,
        traces: Option<Arc<Traces>>,
    ) -> App {
        App {
            pool,
            limits,
            metrics: Arc::default(),
            responses: ResponseStore::default(),
            weightless: WeightlessCalls::default(),
            access,
            has_access_log,
            traces,
        }
    }

    /// The chat model of a request. Without a name, the only one is used.
    pub(crate) fn model(&self, request: &Value) -> Result<&Arc<ServedModel>, ApiError> {
        self.model_for(Purpose::Chat, request)
    }

    /// The model for a request. If the request names none, the only model for this purpose is used.
    pub(crate) fn model_for(
        &self,
        purpose: Purpose,
        request: &Value,
    ) -> Result<&Arc<ServedModel>, ApiError> {
        let Some(name) = fields::string(request, "model")? else {
            let mut models = self.pool.models().iter().filter(|model| model.purpose == purpose);
            return match (models.next(), models.next()) {
                (Some(only), None) => Ok(only),
                (None, _) => Err(ApiError::invalid("model", unfit(purpose))),
                _ => Err(ApiError::invalid("model", "is missing, and there are several models")),
            };
        };
        let model = self.named_model(name)?;
        if model.purpose != purpose {
            return Err(ApiError::invalid("model", unfit(purpose)));
        }
        Ok(model)
    }

    /// The model with this name.
    pub(crate) fn named_model(&self, name: &str) -> Result<&Arc<ServedModel>, ApiError> {
        let models = self.pool.models();
        models.iter().find(|model| model.name == name).ok_or_else(|| {
            let names: Vec<&str> = models.iter().map(|model| &*model.name).collect();
            let message = format!("model: unknown model; expected one of {}", names.join(", "));
            let mut error = ApiError::new(StatusCode::NOT_FOUND, message);
            error.param = Some("model".to_owned());
            error.with_code("model_not_found")
        })
    }
}

fn unfit(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Chat => "the model makes vectors, not replies; use /v1/embeddings",
        Purpose::Embedding => {
            "the model makes replies, not vectors; serve one with --embedding MODEL"
        }
    }
}

/// The input of handlers that generate.
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
        json_body::check_encoding(request.headers())?;
        let limits = app.limits;
        let body =
            json_body::read(request.into_body(), limits.max_body, limits.read_timeout).await?;
        Ok(Call { app, log, body })
    }

    /// Waits for a slot of the model. `request` is the library's request.
    pub(crate) async fn slot(
        &self,
        model: &Arc<ServedModel>,
        request: &Value,
    ) -> Result<Slot, ApiError> {
        self.log.set_model(&model.name);
        self.log.set_settings(request, self.body["stream"] == true);
        self.log.begin_wait(model.is_loaded());
        let slot = self.app.pool.slot(model).await;
        self.log.end_wait();
        slot
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
        .route("/v1/embeddings", post(embeddings::respond))
        .route("/v1/rerank", post(embeddings::rank))
        .route("/tokenize", post(tokens::tokenize))
        .route("/detokenize", post(tokens::detokenize))
        .route("/v1/explain", post(explain::respond))
        .route("/v1/messages", post(messages::respond))
        .route("/v1/messages/count_tokens", post(messages::count_tokens))
        .route("/v1/template", post(template::respond))
        .route("/v1/responses", post(responses::respond))
        .route("/v1/responses/{id}", get(responses::retrieve).delete(responses::delete))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&app), around))
        .with_state(app)
}

/// The name of a route for the log. Other paths are the client's text and are not logged.
fn route(path: &str) -> &'static str {
    const ROUTES: [&str; 15] = [
        "/",
        "/health",
        "/metrics",
        "/props",
        "/v1/models",
        "/v1/chat/completions",
        "/v1/embeddings",
        "/v1/rerank",
        "/tokenize",
        "/detokenize",
        "/v1/explain",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/v1/responses",
        "/v1/template",
    ];
    match ROUTES.iter().find(|route| **route == path) {
        Some(route) => route,
        None if path.starts_with("/v1/models/") => "/v1/models/{name}",
        None if path.starts_with("/v1/responses/") => "/v1/responses/{id}",
        None => "other",
    }
}

/// Checks a request, and logs it when it ends.
async fn around(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response<Body> {
    let path = request.uri().path();
    let protocol = Protocol::of(path);
    let needs_key = !["/", "/health"].contains(&path);
    let log = RequestLog::new(app.has_access_log, method(request.method()), route(path));
    let log = Arc::new(log);
    let traces = app.traces.as_ref();
    let over = Over {
        log: Arc::clone(&log),
        metrics: Arc::clone(&app.metrics),
        trace: traces.map(|traces| (Arc::clone(traces), trace::parent(request.headers()))),
    };
    request.extensions_mut().insert(Arc::clone(&log));
    let headers = request.headers();
    let origin = app.access.cors.permitted(headers);
    // A browser sends a preflight request without the key.
    let preflight = origin.as_ref().and_then(|_| cors::preflight(request.method(), headers));
    let checked = app.access.check_origin(headers).and_then(|()| match preflight {
        None if needs_key => app.access.check_key(headers).map(|()| None),
        preflight => Ok(preflight),
    });
    let mut response = match checked {
        Ok(Some(preflight)) => preflight,
        Ok(None) => next.run(request).await,
        Err(error) => failed(error),
    };
    // Handlers pass their error here.
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        log.set_error(&error);
        response = error.response(protocol);
    }
    log.set_status(response.status().as_u16());
    if let Some(origin) = origin {
        cors::permit(response.headers_mut(), origin);
    }
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
    let message = "the route has no such method; the header Allow names those that it has";
    failed(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message))
}

/// A part of the path that names something.
pub(crate) type PathPart = Result<Path<String>, PathRejection>;

pub(crate) fn path_part(part: PathPart) -> Result<String, ApiError> {
    let wrong = |_| ApiError::new(StatusCode::BAD_REQUEST, "the path of the request is not UTF-8");
    part.map(|Path(part)| part).map_err(wrong)
}

/// A response with an error. `around` chooses its JSON shape by the path.
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

/// Logs, counts and traces the request once its body was sent or the client has left.
struct Over {
    log: Arc<RequestLog>,
    metrics: Arc<Metrics>,
    /// The trace, with the parent that the client named.
    trace: Option<(Arc<Traces>, opentelemetry::Context)>,
}

impl Drop for Over {
    fn drop(&mut self) {
        let status = self.log.status().unwrap_or(CLIENT_LEFT);
        let log = &self.log;
        self.metrics.add_request(log.route(), status, log.elapsed(), log.first_token());
        log.write();
        if let Some((traces, parent)) = &self.trace {
            traces.record(log, parent);
        }
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
