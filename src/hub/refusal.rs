//! Responses of the hub that report a failure: the error code and message.

use super::fault::HubFault;
use super::http::{HubHead, quoted};
use crate::error::{Code, Error};
use crate::json;

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
                "{repository}: access denied{reason}; accept the licence on {page}, or use a \
                 token that may read this model"
            ),
        ),
        (404, _) if head.error_code == "RevisionNotFound" || head.error_code == "EntryNotFound" => {
            stop(Code::HubNotFound, format!("{repository} has no {what}; see {page}"))
        }
        (404 | 410, _) => stop(
            Code::HubNotFound,
            format!(
                "{repository}: no such model, or no {what}{reason}; check the id, or set HF_TOKEN \
                 if it is private"
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
    let answer = json::value(body).ok();
    let text = match &answer {
        _ if !head.error_message.is_empty() => head.error_message.as_str(),
        Some(answer) => answer["error"].as_str().or(answer["message"].as_str()).unwrap_or_default(),
        None => "",
    };
    match quoted(text) {
        text if text.is_empty() => text,
        text => format!(": {text}"),
    }
}
