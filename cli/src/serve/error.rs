//! Errors of requests: their HTTP status, and their JSON in each protocol's shape.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::failure::Failure;

/// The protocol that determines an error's shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    OpenAi,
    Anthropic,
    Ollama,
}

impl Protocol {
    /// The protocol of a path.
    pub(crate) fn of(path: &str) -> Protocol {
        let path = path.strip_prefix("/v1").unwrap_or(path);
        let is_messages = path == "/messages" || path.starts_with("/messages/");
        match is_messages {
            true => Protocol::Anthropic,
            false if path.starts_with("/api/") => Protocol::Ollama,
            false => Protocol::OpenAi,
        }
    }
}

/// Why a request fails.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// OpenAI's `code`, such as "context_length_exceeded".
    pub(crate) code: Option<String>,
    /// The member of the request that is wrong.
    pub(crate) param: Option<String>,
    pub(crate) message: String,
    /// The number of seconds until another attempt may succeed.
    pub(crate) retry_after: Option<u64>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> ApiError {
        ApiError { status, code: None, param: None, message: message.into(), retry_after: None }
    }

    /// The error for an invalid member of a request.
    pub(crate) fn invalid(param: &str, message: impl std::fmt::Display) -> ApiError {
        let message = format!("{param}: {message}");
        ApiError {
            param: Some(param.to_owned()),
            ..ApiError::new(StatusCode::BAD_REQUEST, message)
        }
    }

    pub(crate) fn with_code(mut self, code: &str) -> ApiError {
        self.code = Some(code.to_owned());
        self
    }

    /// Converts a failure of the library. If the request was invalid, the message begins with the
    /// JSON path.
    pub(crate) fn of_library(failure: &Failure) -> ApiError {
        let code = failure.code.as_deref().unwrap_or("INTERNAL_BRIDGE_ERROR");
        let (status, name) = match code {
            "INVALID_REQUEST" => (StatusCode::BAD_REQUEST, None),
            "CONTEXT_OVERFLOW" => (StatusCode::BAD_REQUEST, Some("context_length_exceeded")),
            "SCHEMA_UNSUPPORTED" | "TEMPLATE_ERROR" | "TEMPLATE_LIMIT" => {
                (StatusCode::BAD_REQUEST, Some(code))
            }
            "OUT_OF_MEMORY" | "ENGINE_CLOSED" | "BUSY" | "CANCELLED" => {
                (StatusCode::SERVICE_UNAVAILABLE, Some(code))
            }
            // It fails again when the client repeats the request.
            _ if failure.details["kind"] == "grammar_failed" => {
                (StatusCode::BAD_REQUEST, Some("GRAMMAR_FAILED"))
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, Some(code)),
        };
        let mut error = ApiError::new(status, failure.message.clone());
        error.code = name.map(str::to_lowercase);
        if code == "INVALID_REQUEST" || code == "SCHEMA_UNSUPPORTED" {
            let path = failure.message.split(": ").next().unwrap_or_default();
            let is_path = !path.is_empty() && path != failure.message && !path.contains(' ');
            error.param = is_path.then(|| path.to_owned());
        }
        error
    }

    /// The same error about a member that has another name in the client's request.
    pub(crate) fn renamed(mut self, from: &str, to: &str) -> ApiError {
        self.message = self.message.replacen(from, to, 1);
        self.param = self.param.map(|param| param.replacen(from, to, 1));
        self
    }

    /// The JSON of the error.
    pub(crate) fn json(&self, protocol: Protocol) -> Value {
        match protocol {
            Protocol::OpenAi => json!({ "error": {
                "message": self.message, "type": self.kind(protocol), "param": self.param,
                "code": self.code,
            } }),
            Protocol::Anthropic => json!({ "type": "error", "error": {
                "type": self.kind(protocol), "message": self.message,
            } }),
            Protocol::Ollama => json!({ "error": self.message }),
        }
    }

    /// The response.
    pub(crate) fn response(&self, protocol: Protocol) -> Response<Body> {
        let mut response = Response::new(Body::from(self.json(protocol).to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }

    /// The type of the error. Sources: <https://platform.openai.com/docs/guides/error-codes> and
    /// <https://docs.anthropic.com/en/api/errors>.
    fn kind(&self, protocol: Protocol) -> &'static str {
        match (self.status.as_u16(), protocol) {
            (401, _) => "authentication_error",
            (403, _) => "permission_error",
            (404, _) => "not_found_error",
            (413, Protocol::Anthropic) => "request_too_large",
            (429, _) => "rate_limit_error",
            (503, Protocol::Anthropic) => "overloaded_error",
            (500.., Protocol::Anthropic) => "api_error",
            (500.., _) => "server_error",
            _ => "invalid_request_error",
        }
    }
}

impl From<Failure> for ApiError {
    fn from(failure: Failure) -> ApiError {
        ApiError::of_library(&failure)
    }
}

/// A handler's response with an error. `routes` chooses its JSON shape by the path.
impl IntoResponse for ApiError {
    fn into_response(self) -> Response<Body> {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = self.status;
        response.extensions_mut().insert(self);
        response
    }
}
