//! Failed requests to the hub: the error code and message, and whether to try again.

use std::time::Duration;

use serde_json::Value;

use super::cancel::CancelToken;
use super::http::{HubHead, quoted};
use crate::error::{Code, Error, Result};

/// A fetch fails after this many failed attempts in a row that gained no byte.
pub(super) const MAX_TRIES: usize = 5;
/// The longest wait that a server may request.
const MAX_WAIT: Duration = Duration::from_secs(300);

/// Why a request failed.
#[derive(Debug)]
pub(super) enum HubFault {
    /// Another attempt would not help.
    Stop(Error),
    /// Another attempt may help. `after` is the wait that the server requests.
    Again { error: Error, after: Option<Duration> },
}

impl HubFault {
    /// A fault after which another attempt may help at once.
    pub(super) fn again(error: Error) -> HubFault {
        HubFault::Again { error, after: None }
    }
}

impl From<Error> for HubFault {
    fn from(error: Error) -> Self {
        HubFault::Stop(error)
    }
}

/// The error `HUB_NETWORK` for a host.
pub(super) fn network(host: &str, problem: impl std::fmt::Display) -> Error {
    Error::new(Code::HubNetwork, format!("{host}: {problem}")).with("host", host)
}

/// The wait before the next attempt. Fails if the server requests a wait that is too long.
pub(super) fn retry_delay(
    tries: usize,
    error: &Error,
    after: Option<Duration>,
) -> Result<Duration> {
    match after {
        Some(after) if after > MAX_WAIT => {
            let message = format!("{}; try again in {} seconds", error.message(), after.as_secs());
            Err(Error::new(error.code(), message).with("retry_after", after.as_secs()))
        }
        Some(after) => Ok(after),
        None => Ok(Duration::from_millis(250) * 2_u32.pow(tries.min(6) as u32)),
    }
}

/// Makes up to `tries` attempts.
pub(super) fn retry<T>(
    cancel: &CancelToken,
    tries: usize,
    mut attempt: impl FnMut() -> Result<T, HubFault>,
) -> Result<T> {
    let mut failed = 0;
    loop {
        cancel.check()?;
        match attempt() {
            Ok(done) => return Ok(done),
            Err(HubFault::Stop(error)) => return Err(error),
            Err(HubFault::Again { error, after }) => {
                failed += 1;
                if failed >= tries {
                    return Err(error);
                }
                cancel.wait(retry_delay(failed - 1, &error, after)?)?;
            }
        }
    }
}

/// The request, for messages about a refusal.
pub(super) struct RequestContext<'a> {
    /// The repository: `org/name`.
    pub(super) repository: &'a str,
    /// The web page of the model.
    pub(super) page: &'a str,
    /// The requested object: `revision "main"` or `file "x.gguf"`.
    pub(super) what: String,
    pub(super) has_token: bool,
}

/// The fault for a response that reports a failure.
pub(super) fn refused(head: &HubHead, body: &[u8], context: &RequestContext) -> HubFault {
    let status = head.status;
    let reason = server_reason(head, body);
    let RequestContext { repository, page, what, has_token } = context;
    let error = |code: Code, message: String| {
        Error::new(code, message).with("status", status).with("host", &*head.host)
    };
    let stop =
        |code: Code, message: String| HubFault::Stop(error(code, message).with("page", *page));
    if matches!(status, 408 | 425 | 429 | 500..=599) {
        let problem = if status == 429 { "too many requests" } else { "failed" };
        let message = format!("{}: {problem} (status {status}){reason}", head.host);
        return HubFault::Again {
            error: error(Code::HubNetwork, message),
            after: head.retry_after,
        };
    }
    if !head.at_hub && matches!(status, 400..=499) {
        // The URL of a redirect has expired. The hub provides a new one.
        let message = format!("{}: refused {what} (status {status}){reason}", head.host);
        return HubFault::again(error(Code::HubNetwork, message));
    }
    let is_gated = head.error_code == "GatedRepo";
    match (status, *has_token) {
        (401 | 403, has_token) if is_gated => {
            stop(Code::HubGated, gated_message(repository, page, has_token))
        }
        (401, false) => stop(
            Code::HubUnauthorized,
            format!(
                "{repository}: authentication required{reason}; there is no such model, or it is private: check the id, or \
                 set HF_TOKEN to a token that may read it"
            ),
        ),
        (401, true) => stop(
            Code::HubUnauthorized,
            format!(
                "{repository}: authentication required: the token was refused{reason}; create a new one"
            ),
        ),
        (403, _) => stop(
            Code::HubForbidden,
            format!(
                "{repository}: access denied{reason}; accept the licence on {page}, or use a token that may read this model"
            ),
        ),
        (404, _) if head.error_code == "RevisionNotFound" || head.error_code == "EntryNotFound" => {
            stop(Code::HubNotFound, format!("{repository} has no {what}; see {page}"))
        }
        (404 | 410, _) => stop(
            Code::HubNotFound,
            format!(
                "{repository}: no such model, or no {what}{reason}; check the id, or set HF_TOKEN if it is private"
            ),
        ),
        (451, _) => stop(
            Code::HubForbidden,
            format!("{repository}: not available for legal reasons{reason}"),
        ),
        _ => stop(Code::HubNetwork, format!("{}: unexpected status {status}{reason}", head.host)),
    }
}

/// The message of `HUB_GATED`.
pub(super) fn gated_message(repository: &str, page: &str, has_token: bool) -> String {
    let next = if has_token {
        "with the account of the token"
    } else {
        "and set HF_TOKEN to a token of that account"
    };
    format!("{repository} is gated: accept its licence on {page} {next}")
}

/// `: ` and the server's message; empty if the server sent none.
fn server_reason(head: &HubHead, body: &[u8]) -> String {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let text = match &json {
        _ if !head.error_message.is_empty() => head.error_message.as_str(),
        Some(json) => json["error"].as_str().or(json["message"].as_str()).unwrap_or_default(),
        None => "",
    };
    match quoted(text) {
        text if text.is_empty() => text,
        text => format!(": {text}"),
    }
}
