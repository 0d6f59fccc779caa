//! Classifies failures of a server: whether to try another server, and which error to return
//! otherwise.

use std::time::Duration;

use serde_json::Value;

use super::http::RemoteHead;
use crate::api::BaseUrl;
use crate::error::{Code, Error};
use crate::json;
use crate::net::one_line;

/// How long a busy server is not used if it does not name a time.
const BUSY_REST: Duration = Duration::from_secs(1);
/// The maximum number of characters of a server's text that a message quotes.
const MAX_QUOTED: usize = 400;
pub(super) const COMPRESSED: &str = "sent a compressed response, which was not requested";
/// What vLLM and SGLang write before the size of the context that a prompt exceeds.
const OVERFLOWS: [&str; 3] =
    ["maximum context length is ", "maximum context length of ", "model's context length ("];
const NO_REASON: &str = "no reason given";

/// Why a call ended without a result.
#[derive(Debug)]
pub enum CallError {
    /// It was cancelled or passed its deadline.
    Over,
    /// An error.
    Failed(Error),
}

impl From<Error> for CallError {
    fn from(error: Error) -> Self {
        CallError::Failed(error)
    }
}

/// Why an attempt with one server failed.
#[derive(Debug)]
pub(super) enum RemoteFault {
    /// Trying again does not help.
    Stop(CallError),
    /// Another server may succeed. This one may succeed too, after the time that it named, if any.
    Next { error: Error, after: Option<Duration> },
    /// The server does not have the route, or the route does not stream. Another one may.
    NoRoute(Error),
}

impl From<Error> for RemoteFault {
    fn from(error: Error) -> Self {
        RemoteFault::Stop(CallError::Failed(error))
    }
}

/// An `INFERENCE_FAILED` error that names the server.
pub(super) fn failed(server: &BaseUrl, problem: impl std::fmt::Display) -> Error {
    Error::new(Code::InferenceFailed, format!("{}: {problem}", server.host))
        .with("server", &*server.host)
}

/// The connection failed, or broke before the reply began.
pub(super) fn broken(server: &BaseUrl, problem: impl std::fmt::Display) -> RemoteFault {
    RemoteFault::Next { error: failed(server, problem), after: None }
}

/// The fault for a response that is not a success.
pub(super) fn refused(server: &BaseUrl, head: &RemoteHead, body: &[u8]) -> RemoteFault {
    let reason = ServerError::of(if head.is_compressed { b"" } else { body });
    let status = head.status;
    let error = |problem: String| failed(server, problem).with("status", status);
    match status {
        300..=399 => RemoteFault::from(error(format!(
            "redirects (status {status}), which is not followed; set base_url to the URL that it \
             redirects to"
        ))),
        401 | 403 => RemoteFault::from(error(format!(
            "refused the request: the API key is missing or wrong (status {status}): {}; check \
             engine.api_key_env",
            reason.message
        ))),
        404 | 405 | 501 => RemoteFault::NoRoute(error(format!(
            "has no such endpoint or model (status {status}): {}; check base_url and engine.model",
            reason.message
        ))),
        429 => RemoteFault::Next {
            error: error(format!("is busy (status 429): {}", reason.message)),
            after: Some(head.retry_after.unwrap_or(BUSY_REST)),
        },
        408 | 500..=599 => RemoteFault::Next {
            error: error(format!("failed (status {status}): {}", reason.message)),
            after: head.retry_after,
        },
        _ => RemoteFault::from(reason.overflow(server).unwrap_or_else(|| {
            error(format!("refused the request (status {status}): {}", reason.message))
        })),
    }
}

/// An error in a stream. Only SGLang says which status it stands for.
pub(super) fn in_stream(server: &BaseUrl, error: &Value) -> Error {
    let reason = ServerError::of_json(error);
    let failed = || {
        let failed = failed(server, format_args!("failed: {}", reason.message));
        match &error["status_code"] {
            Value::Null => failed,
            status => failed.with("status", status.clone()),
        }
    };
    reason.overflow(server).unwrap_or_else(failed)
}

/// The fault for an error in place of the first event.
pub(super) fn before_text(error: Error) -> RemoteFault {
    let status = error.details().and_then(|details| details.get("status")?.as_u64());
    match status {
        _ if error.code() == Code::ContextOverflow => error.into(),
        Some(429 | 503) => RemoteFault::Next { error, after: Some(BUSY_REST) },
        Some(400..=407 | 409..=499) => error.into(),
        _ => RemoteFault::Next { error, after: None },
    }
}

/// An error as a server describes it.
struct ServerError {
    message: String,
    kind: String,
    prompt_tokens: Option<u64>,
    n_ctx: Option<u64>,
}

impl ServerError {
    fn of(body: &[u8]) -> ServerError {
        match json::value(body) {
            Ok(json) => ServerError::of_json(&json),
            Err(_) => ServerError::of_json(&Value::from(String::from_utf8_lossy(body))),
        }
    }

    /// Parses `{"error": {"message", "type"}}`, `{"error": "…"}`, `{"message"}`, `{"detail"}` or
    /// text.
    fn of_json(json: &Value) -> ServerError {
        let inner = json.get("error").unwrap_or(json);
        let text = inner
            .as_str()
            .or_else(|| ["message", "detail"].iter().find_map(|name| inner.get(name)?.as_str()));
        let number = |name: &str| inner.get(name).and_then(Value::as_u64);
        ServerError {
            message: quoted(text.unwrap_or_default()),
            kind: inner.get("type").and_then(Value::as_str).unwrap_or_default().to_owned(),
            prompt_tokens: number("n_prompt_tokens"),
            n_ctx: number("n_ctx"),
        }
    }

    /// `CONTEXT_OVERFLOW`, if the error reports one: llama.cpp's server does so by the type, vLLM
    /// and SGLang by the message.
    fn overflow(&self, server: &BaseUrl) -> Option<Error> {
        let said = OVERFLOWS.iter().find_map(|words| self.message.split_once(words));
        let limit = said.map(|(_, rest)| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok()
        });
        if self.kind != "exceed_context_size_error" && limit.is_none() {
            return None;
        }
        let message = format!("{}: the prompt does not fit: {}", server.host, self.message);
        let error = Error::new(Code::ContextOverflow, message).with("server", &*server.host);
        Some(
            error
                .with("prompt_tokens", self.prompt_tokens)
                .with("n_ctx", self.n_ctx.or(limit.flatten())),
        )
    }
}

/// A server's text for use in a message: on one line and of limited length.
fn quoted(text: &str) -> String {
    match one_line(text, MAX_QUOTED) {
        line if line.is_empty() => NO_REASON.to_owned(),
        line => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, body: &str, expected: &str, code: Code) -> RemoteFault {
        let server = BaseUrl {
            root: "http://h".into(),
            version: "v1".into(),
            host: "h".into(),
            address: None,
        };
        let head = RemoteHead {
            status,
            content_type: String::new(),
            is_compressed: false,
            retry_after: None,
        };
        let fault = refused(&server, &head, body.as_bytes());
        let (RemoteFault::Next { error, .. }
        | RemoteFault::NoRoute(error)
        | RemoteFault::Stop(CallError::Failed(error))) = &fault
        else {
            panic!("{fault:?}")
        };
        assert_eq!((error.message(), error.code()), (expected, code));
        fault
    }

    #[test]
    fn error_responses_are_classified() {
        let failed = Code::InferenceFailed;
        let fault = check(
            500,
            r#"{"error": {"message": "out\nof order"}}"#,
            "h: failed (status 500): out of order",
            failed,
        );
        assert!(matches!(fault, RemoteFault::Next { after: None, .. }));
        let fault = check(429, "", "h: is busy (status 429): no reason given", failed);
        assert!(matches!(fault, RemoteFault::Next { after: Some(_), .. }));
        let fault =
            check(422, r#"{"detail": "no"}"#, "h: refused the request (status 422): no", failed);
        assert!(matches!(fault, RemoteFault::Stop(_)));
        check(
            418,
            r#"{"error": 7}"#,
            "h: refused the request (status 418): no reason given",
            failed,
        );
        check(502, "<html>", "h: failed (status 502): <html>", failed);
        let llama = r#"{"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8}}"#;
        let fault =
            check(400, llama, "h: the prompt does not fit: too long", Code::ContextOverflow);
        let RemoteFault::Stop(CallError::Failed(error)) = fault else { panic!("{fault:?}") };
        let details = error.details().expect("details");
        assert_eq!((&details["prompt_tokens"], &details["n_ctx"]), (&9.into(), &8.into()));
        let words = "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.";
        let vllm = format!(
            r#"{{"object": "error", "message": "{words}", "type": "BadRequestError", "code": 400}}"#
        );
        let fault = check(
            400,
            &vllm,
            &format!("h: the prompt does not fit: {words}"),
            Code::ContextOverflow,
        );
        let RemoteFault::Stop(CallError::Failed(error)) = fault else { panic!("{fault:?}") };
        assert_eq!(error.details().expect("details")["n_ctx"], 4096);
    }
}
