//! What goes wrong between here and the hub, in the codes of the ABI, and whether another try may
//! help.

use std::time::Duration;

use serde_json::Value;

use super::cancel::CancelToken;
use super::environment::AccessToken;
use super::http::HubHead;
use super::name::shown;
use crate::error::{Code, Error, Result};

/// Tries without a byte gained, one after another.
pub(super) const TRIES: usize = 5;
/// The longest wait that a server may ask for.
const MOST_WAIT: Duration = Duration::from_secs(300);

/// Why a request has no good answer.
#[derive(Debug)]
pub(super) enum HubFault {
    /// No further try.
    Stop(Error),
    /// Another try may do; at the earliest after a time, if the server named one.
    Again { error: Error, after: Option<Duration> },
}

impl From<Error> for HubFault {
    fn from(error: Error) -> Self {
        HubFault::Stop(error)
    }
}

/// `HUB_NETWORK` at a host.
pub(super) fn network(host: &str, problem: impl std::fmt::Display) -> Error {
    Error::new(Code::HubNetwork, format!("{host}: {problem}")).with("host", host)
}

/// How long to wait before the next try; an error where that would be too long.
pub(super) fn pause(tries: usize, error: &Error, after: Option<Duration>) -> Result<Duration> {
    match after {
        Some(after) if after > MOST_WAIT => {
            let message = format!(
                "{}; it asks to wait {} seconds: try again then",
                error.message(),
                after.as_secs()
            );
            Err(Error::new(error.code(), message).with("retry_after", after.as_secs()))
        }
        Some(after) => Ok(after),
        None => Ok(Duration::from_millis(250) * 2_u32.pow(tries.min(6) as u32)),
    }
}

/// Tries until it is done, [`TRIES`] times.
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
                cancel.wait(pause(failed - 1, &error, after)?)?;
            }
        }
    }
}

/// What was asked for, for messages about a refusal.
pub(super) struct RequestContext<'a> {
    /// `org/name`.
    pub(super) repository: &'a str,
    /// The page of the model, for people.
    pub(super) page: &'a str,
    /// `revision "main"` or `file "x.gguf"`.
    pub(super) what: &'a str,
    pub(super) token: Option<&'a AccessToken>,
}

/// An answer that is no success.
pub(super) fn refused(head: &HubHead, body: &[u8], asked: &RequestContext) -> HubFault {
    let status = head.status;
    let said = said(head, body, asked.token);
    let RequestContext { repository, page, what, token } = asked;
    let error = |code: Code, message: String| {
        Error::new(code, message).with("status", status).with("host", &*head.host)
    };
    let stop =
        |code: Code, message: String| HubFault::Stop(error(code, message).with("page", *page));
    if matches!(status, 408 | 425 | 429 | 500..=599) {
        let busy = if status == 429 { "is asked too often" } else { "failed" };
        let error =
            error(Code::HubNetwork, format!("{}: {busy} (status {status}){said}", head.host));
        return HubFault::Again { error, after: head.retry_after };
    }
    if !head.at_hub && matches!(status, 400..=499) {
        // The address it was sent to holds for a time only; the hub gives a new one.
        let error = error(
            Code::HubNetwork,
            format!("{}: refuses {what} (status {status}){said}", head.host),
        );
        return HubFault::Again { error, after: None };
    }
    let gated = head.error_code == "GatedRepo";
    match (status, token.is_some()) {
        (401 | 403, _) if gated => {
            stop(Code::HubGated, gated_message(repository, page, token.is_some()))
        }
        (401, false) => stop(
            Code::HubUnauthorized,
            format!(
                "{repository}: authentication required{said}; there is no such model, or it is private: look at the id, or set \
                 HF_TOKEN to a token that may read it"
            ),
        ),
        (401, true) => stop(
            Code::HubUnauthorized,
            format!(
                "{repository}: authentication required: the token is refused{said}; make a new one"
            ),
        ),
        (403, _) => stop(
            Code::HubForbidden,
            format!(
                "{repository}: access denied{said}; accept the licence on {page}, or use a token that may read this model"
            ),
        ),
        (404, _) if head.error_code == "RevisionNotFound" || head.error_code == "EntryNotFound" => {
            stop(Code::HubNotFound, format!("{repository} has no {what}; look at {page}"))
        }
        (404 | 410, _) => stop(
            Code::HubNotFound,
            format!(
                "{repository}: no such model, or no {what}{said}; look at the id, or set HF_TOKEN if it is private"
            ),
        ),
        (451, _) => {
            stop(Code::HubForbidden, format!("{repository}: not available for legal reasons{said}"))
        }
        _ => stop(Code::HubNetwork, format!("{}: answers with status {status}{said}", head.host)),
    }
}

/// `HUB_GATED`'s words.
pub(super) fn gated_message(repository: &str, page: &str, has_token: bool) -> String {
    let then = if has_token {
        "with the account of the token"
    } else {
        "and set HF_TOKEN to a token of that account"
    };
    format!("{repository} is gated: accept its licence on {page} {then}")
}

/// `: ` and the server's own words, or nothing.
fn said(head: &HubHead, body: &[u8], token: Option<&AccessToken>) -> String {
    let json: Option<Value> = serde_json::from_slice(body).ok();
    let text = match &json {
        _ if !head.error_message.is_empty() => head.error_message.as_str(),
        Some(json) => json["error"].as_str().or(json["message"].as_str()).unwrap_or_default(),
        None => "",
    };
    match shown(&token.map_or_else(|| text.to_owned(), |token| token.hide(text))) {
        text if text.is_empty() => text,
        text => format!(": {text}"),
    }
}
