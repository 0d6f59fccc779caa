//! The routes, and what is the same for all of them: key, origin, log, metrics, traces.

use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Response, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{MethodRouter, get, post};
use http_body_util::BodyExt;

use super::app::App;
use super::error::{ApiError, Protocol};
use super::log::RequestLog;
use super::metrics::Metrics;
use super::request_end::RequestEnd;
use super::trace::{self, Traces};
use super::{
    access, chat_completions, completions, content_routes, embeddings, lora_routes, messages,
    ollama, page, render, request_body, responses, status, template, tokens, transcriptions,
};

/// The status for a client that left before the response, as in nginx.
const CLIENT_LEFT: u16 = 499;

/// The version of the protocols in paths. Clients may leave it out.
const VERSION: &str = "/v1";

/// The routes by the names that they have in the log.
fn routes() -> [(&'static str, MethodRouter<Arc<App>>); 38] {
    [
        ("/", get(page::show)),
        ("/health", get(status::health)),
        ("/metrics", get(status::metrics)),
        ("/load", get(status::load)),
        ("/props", get(status::props)),
        ("/v1/models", get(status::models)),
        ("/v1/models/{name}", get(status::model)),
        ("/v1/chat/completions", post(chat_completions::respond)),
        ("/v1/chat/completions/render", post(render::chat)),
        ("/v1/chat/completions/derender", post(render::message)),
        ("/v1/completions", post(completions::respond)),
        ("/v1/completions/render", post(render::completion)),
        ("/v1/audio/transcriptions", post(transcriptions::respond)),
        ("/v1/embeddings", post(embeddings::respond)),
        ("/v1/rerank", post(embeddings::rank)),
        ("/v1/explain", post(chat_completions::explain)),
        ("/v1/messages", post(messages::respond)),
        ("/v1/messages/count_tokens", post(messages::count_tokens)),
        ("/v1/template", post(template::respond)),
        ("/v1/responses", post(responses::respond)),
        ("/v1/responses/input_tokens", post(responses::count_tokens)),
        ("/v1/responses/{id}", get(responses::retrieve).delete(responses::delete)),
        ("/tokenize", post(tokens::tokenize)),
        ("/detokenize", post(tokens::detokenize)),
        ("/lora-adapters", get(lora_routes::list).post(lora_routes::set)),
        ("/slots", get(status::slots)),
        ("/slots/{id}", post(status::change_slot)),
        ("/infill", post(content_routes::infill)),
        ("/completion", post(content_routes::completion)),
        ("/apply-template", post(template::apply)),
        ("/api/chat", post(ollama::chat)),
        ("/api/generate", post(ollama::generate)),
        ("/api/embed", post(ollama::embed)),
        ("/api/embeddings", post(ollama::embeddings)),
        ("/api/show", post(ollama::show)),
        ("/api/tags", get(ollama::tags)),
        ("/api/ps", get(ollama::running)),
        ("/api/version", get(ollama::version)),
    ]
}

pub(super) fn router(app: Arc<App>) -> Router {
    let mut router = Router::new();
    for (name, handler) in routes() {
        // The name of a model may have slashes.
        let path = name.replace("{name}", "{*name}");
        if let Some(path) = path.strip_prefix(VERSION) {
            router = router.route(path, handler.clone());
        }
        router = router.route(&path, handler);
    }
    router
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(from_fn_with_state(Arc::clone(&app), around))
        .with_state(app)
}

/// The name of a route for the log. Other paths are the client's text and are not logged.
fn route(path: &str) -> &'static str {
    static NAMES: LazyLock<Vec<&str>> =
        LazyLock::new(|| routes().into_iter().map(|(name, _)| name).collect());
    let is_at = |name: &str| match name.split_once('{') {
        Some((before, _)) => path.starts_with(before),
        None => name == path,
    };
    let is_route = |name: &&&str| is_at(name) || name.strip_prefix(VERSION).is_some_and(is_at);
    // A name without a part for the client's comes first.
    let found = NAMES.iter().filter(is_route).min_by_key(|name| name.contains('{'));
    found.copied().unwrap_or("other")
}

/// Checks a request, and logs it when it ends.
async fn around(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response<Body> {
    let path = request.uri().path();
    let protocol = Protocol::of(path);
    let needs_key = !["/", "/health"].contains(&path);
    let log = RequestLog::new(app.has_access_log, method(request.method()), route(path));
    let log = Arc::new(log);
    let traces = app.traces.as_ref();
    let end = request.extensions().get::<RequestEnd>().cloned().unwrap_or_default();
    let over = Over {
        log: Arc::clone(&log),
        end: end.clone(),
        metrics: Arc::clone(&app.metrics),
        trace: traces.map(|traces| (Arc::clone(traces), trace::parent(request.headers()))),
    };
    request.extensions_mut().insert(Arc::clone(&log));
    let headers = request.headers();
    let origin = app.access.cors.permitted(headers);
    // A browser sends a preflight request without the key.
    let preflight = origin.as_ref().and_then(|_| access::preflight(request.method(), headers));
    let checked = app.access.check_origin(&request).and_then(|()| match preflight {
        None if needs_key => app.access.check_key(headers).map(|()| None),
        preflight => Ok(preflight),
    });
    let mut response = match checked {
        Ok(Some(preflight)) => preflight,
        Ok(None) => next.run(request).await,
        Err(error) => {
            request_body::discard(request.into_body(), app.limits.read_timeout).await;
            error.into_response()
        }
    };
    // Handlers pass their error here.
    if let Some(error) = response.extensions_mut().remove::<ApiError>() {
        log.set_error(&error);
        response = error.response(protocol);
    }
    log.set(|facts| facts.status = Some(response.status().as_u16()));
    if let Some(origin) = origin {
        access::permit_origin(response.headers_mut(), origin);
    }
    response
        .headers_mut()
        .entry(header::X_CONTENT_TYPE_OPTIONS)
        .or_insert(HeaderValue::from_static("nosniff"));
    end.set_default(app.limits.timeout);
    let (head, body) = response.into_parts();
    let body = app.replies.hold(body).await;
    // The body owns `over`, which is dropped with it.
    let body = Body::new(body.map_err(move |error| {
        let _over = &over;
        error
    }));
    Response::from_parts(head, body)
}

/// Text of the client is not logged.
fn method(method: &Method) -> &'static str {
    let known = ["GET", "POST", "HEAD", "OPTIONS", "DELETE"];
    known.into_iter().find(|name| *name == method.as_str()).unwrap_or("OTHER")
}

async fn unknown_route(State(app): State<Arc<App>>, request: Request) -> ApiError {
    request_body::discard(request.into_body(), app.limits.read_timeout).await;
    let message = "no such route; GET /v1/models lists the models, docs/server.md the routes";
    ApiError::new(StatusCode::NOT_FOUND, message)
}

async fn wrong_method(State(app): State<Arc<App>>, request: Request) -> ApiError {
    request_body::discard(request.into_body(), app.limits.read_timeout).await;
    let message = "the route has no such method; the header Allow names those that it has";
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message)
}

/// Logs, counts and traces the request once its body was sent or the client has left.
struct Over {
    log: Arc<RequestLog>,
    end: RequestEnd,
    metrics: Arc<Metrics>,
    /// The trace, with the parent that the client named.
    trace: Option<(Arc<Traces>, opentelemetry::Context)>,
}

impl Drop for Over {
    fn drop(&mut self) {
        self.end.answered();
        let (log, facts) = (&self.log, self.log.facts());
        let status = facts.status.unwrap_or(CLIENT_LEFT);
        self.metrics.add_request(log.route, status, log.elapsed(), facts.first_token);
        log.write();
        if let Some((traces, parent)) = &self.trace {
            traces.record(log, parent);
        }
    }
}
