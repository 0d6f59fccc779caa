//! What goes wrong with a server -> whether another one is tried, and the error if none is.

use std::time::Duration;

use serde_json::Value;

use super::http::{ApiKey, RemoteHead};
use crate::api::BaseUrl;
use crate::error::{Code, Error};

/// How long a server that is busy and does not say for how long is left alone.
const BUSY: Duration = Duration::from_secs(1);
/// Characters of a server's own words that go into a message.
const MOST_QUOTED: usize = 400;

/// Why a request has no answer.
#[derive(Debug)]
pub enum CallError {
    /// It was cancelled, or its time was up.
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
    /// No further attempt.
    Stop(CallError),
    /// Another server may do; this one again after a time, if it named one.
    Next { error: Error, after: Option<Duration> },
}

impl From<Error> for RemoteFault {
    fn from(error: Error) -> Self {
        RemoteFault::Stop(CallError::Failed(error))
    }
}

/// `INFERENCE_FAILED` that names the server.
pub(super) fn failed(server: &BaseUrl, problem: impl std::fmt::Display) -> Error {
    Error::new(Code::InferenceFailed, format!("{}: {problem}", server.host))
        .with("server", &*server.host)
}

/// The connection did not come about, or broke before the reply began.
pub(super) fn broken(server: &BaseUrl, problem: impl std::fmt::Display) -> RemoteFault {
    RemoteFault::Next { error: failed(server, problem), after: None }
}

/// An answer that is no success, with its body.
pub(super) fn refused(
    server: &BaseUrl,
    head: &RemoteHead,
    body: &[u8],
    key: Option<&ApiKey>,
) -> RemoteFault {
    let said = ServerError::of(body, key);
    let status = head.status;
    let error = |problem: String| failed(server, problem).with("status", status);
    match status {
        300..=399 => RemoteFault::from(error(format!(
            "answers with a redirect (status {status}), which is not followed; give the address it leads to as base_url"
        ))),
        401 | 403 => RemoteFault::from(error(format!(
            "refuses the key, or wants one (status {status}): {}",
            said.message
        ))),
        404 | 405 => RemoteFault::from(error(format!(
            "has no such endpoint or model (status {status}): {}; look at base_url and engine.model",
            said.message
        ))),
        429 => RemoteFault::Next {
            error: error(format!("is busy (status 429): {}", said.message)),
            after: Some(head.retry_after.unwrap_or(BUSY)),
        },
        408 | 500..=599 => RemoteFault::Next {
            error: error(format!("failed (status {status}): {}", said.message)),
            after: head.retry_after,
        },
        _ => RemoteFault::from(said.overflow(server).unwrap_or_else(|| {
            error(format!("refuses the request (status {status}): {}", said.message))
        })),
    }
}

/// An error inside of a stream, which has no status but may name one.
pub(super) fn in_stream(server: &BaseUrl, error: &Value, key: Option<&ApiKey>) -> Error {
    let said = ServerError::of_json(error, key);
    said.overflow(server)
        .unwrap_or_else(|| failed(server, format_args!("failed: {}", said.message)))
}

/// What a server says is wrong.
struct ServerError {
    message: String,
    kind: String,
    prompt_tokens: Option<u64>,
    n_ctx: Option<u64>,
}

impl ServerError {
    fn of(body: &[u8], key: Option<&ApiKey>) -> ServerError {
        match serde_json::from_slice::<Value>(body) {
            Ok(json) => ServerError::of_json(&json, key),
            Err(_) => ServerError::of_json(&Value::from(String::from_utf8_lossy(body)), key),
        }
    }

    /// `{"error": {"message", "type"}}`, `{"error": "…"}`, `{"message"}`, `{"detail"}` or a text.
    fn of_json(json: &Value, key: Option<&ApiKey>) -> ServerError {
        let inner = json.get("error").unwrap_or(json);
        let text = inner
            .as_str()
            .or_else(|| ["message", "detail"].iter().find_map(|name| inner.get(name)?.as_str()));
        let text = text.map_or_else(
            || "it does not say why".to_owned(),
            |text| key.map_or(text.to_owned(), |key| key.hide(text)),
        );
        let number = |name: &str| inner.get(name).and_then(Value::as_u64);
        ServerError {
            message: quoted(&text),
            kind: inner.get("type").and_then(Value::as_str).unwrap_or_default().to_owned(),
            prompt_tokens: number("n_prompt_tokens"),
            n_ctx: number("n_ctx"),
        }
    }

    /// `CONTEXT_OVERFLOW` where that is what it says: llama.cpp's server by the type, vLLM by the
    /// words.
    fn overflow(&self, server: &BaseUrl) -> Option<Error> {
        const WORDS: &str = "maximum context length is ";
        let by_words = self.message.split_once(WORDS).map(|(_, rest)| {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            digits.parse::<u64>().ok()
        });
        if self.kind != "exceed_context_size_error" && by_words.is_none() {
            return None;
        }
        let message = format!("{}: the prompt does not fit: {}", server.host, self.message);
        let error = Error::new(Code::ContextOverflow, message).with("server", &*server.host);
        Some(
            error
                .with("prompt_tokens", self.prompt_tokens)
                .with("n_ctx", self.n_ctx.or(by_words.flatten())),
        )
    }
}

/// On one line, and not too long.
fn quoted(text: &str) -> String {
    let line: String = text
        .trim()
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MOST_QUOTED)
        .collect();
    if line.is_empty() { "it does not say why".to_owned() } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, body: &str, expected: &str, code: Code) -> RemoteFault {
        let server = BaseUrl { root: "http://h".into(), version: "v1".into(), host: "h".into() };
        let head = RemoteHead { status, content_type: String::new(), retry_after: None };
        let fault = refused(&server, &head, body.as_bytes(), None);
        let (RemoteFault::Next { error, .. } | RemoteFault::Stop(CallError::Failed(error))) =
            &fault
        else {
            panic!("{fault:?}")
        };
        assert_eq!((error.message(), error.code()), (expected, code));
        fault
    }

    #[test]
    fn answers_of_servers_are_understood() {
        let failed = Code::InferenceFailed;
        let fault = check(
            500,
            r#"{"error": {"message": "out\nof order"}}"#,
            "h: failed (status 500): out of order",
            failed,
        );
        assert!(matches!(fault, RemoteFault::Next { after: None, .. }));
        let fault = check(429, "", "h: is busy (status 429): it does not say why", failed);
        assert!(matches!(fault, RemoteFault::Next { after: Some(_), .. }));
        let fault =
            check(422, r#"{"detail": "no"}"#, "h: refuses the request (status 422): no", failed);
        assert!(matches!(fault, RemoteFault::Stop(_)));
        check(
            418,
            r#"{"error": 7}"#,
            "h: refuses the request (status 418): it does not say why",
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
