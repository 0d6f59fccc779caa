//! The JSON of the frames between host and helper. Host and helper are the same build, so this
//! format is private and may change.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::sandbox::Restrictions;
use crate::error::{Code, Error};
use crate::tokens::TokenCall;

/// A call of the host. Where noted, its text follows in a separate frame.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Call {
    /// The first call of a helper: the files that it may read, and the option `backend`. Answered
    /// by a [`Hello`].
    Start { files: Vec<String>, backend: Option<String> },
    /// Opens a chat with the options in the text. Answered by the chat's number.
    Create { state: Option<LentStateCall> },
    /// Runs the chat request in the text.
    Infer { chat: u64, call: u64, stream: bool, cancelled: bool },
    /// Explains the request in the text without running it.
    Explain { chat: u64, call: u64 },
    /// Runs the request in the text with the vocabulary of a file.
    Tokens { call: TokenCall },
    /// Unloads the model at the path in the text. Answered by the number of chats that held it.
    Unload,
    /// Lends a chat a file for its state. The descriptor comes with the call.
    LendFile { chat: u64 },
    /// Takes the file back. Answered by whether the state was written to it.
    TakeFileBack { chat: u64 },
    /// Closes a chat. The descriptor for its state comes with the call. Answered by whether the
    /// state was written.
    Close { chat: u64 },
}

/// The state of a chat at create. If its file exists, the descriptor comes with the call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct LentStateCall {
    /// The file's name in messages.
    pub(super) name: String,
    /// Bytes of the file; `None` if it does not exist.
    pub(super) size: Option<u64>,
    /// Why the file must not be read.
    pub(super) problem: Option<String>,
}

/// How a helper introduces itself.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Hello {
    /// The build's version. It must be equal to the host's.
    pub(super) version: String,
    pub(super) restrictions: Restrictions,
}

/// A message of the host about a call on another connection, or about a new connection.
pub(super) enum ListenerMessage {
    /// Opens the connection with this number. Its descriptor comes with the message.
    Connect(u64),
    /// Cancels this call and all earlier ones on this connection.
    Cancel { connection: u64, call: u64 },
    /// Ends the reasoning in the reply to this call.
    EndReasoning { connection: u64, call: u64 },
}

impl ListenerMessage {
    pub(super) fn to_bytes(&self) -> [u8; 17] {
        let (kind, connection, call) = match *self {
            ListenerMessage::Connect(connection) => (0, connection, 0),
            ListenerMessage::Cancel { connection, call } => (1, connection, call),
            ListenerMessage::EndReasoning { connection, call } => (2, connection, call),
        };
        let mut bytes = [kind; 17];
        bytes[1..9].copy_from_slice(&u64::to_le_bytes(connection));
        bytes[9..].copy_from_slice(&u64::to_le_bytes(call));
        bytes
    }

    pub(super) fn of(bytes: &[u8]) -> Option<ListenerMessage> {
        let connection = u64::from_le_bytes(bytes.get(1..9)?.try_into().ok()?);
        let call = u64::from_le_bytes(bytes.get(9..17)?.try_into().ok()?);
        match bytes[0] {
            0 => Some(ListenerMessage::Connect(connection)),
            1 => Some(ListenerMessage::Cancel { connection, call }),
            2 => Some(ListenerMessage::EndReasoning { connection, call }),
            _ => None,
        }
    }
}

/// An error as JSON. `event` is the event of a failed create.
pub(super) fn error_json(error: &Error, event: Option<&str>) -> Value {
    json!({
        "code": error.code().as_str(),
        "message": error.message(),
        "details": error.details(),
        "event": event,
    })
}

/// The maximum number of values and member names in an error. Each takes up to 50 times as many
/// bytes as its text. The largest errors list files or devices.
const MAX_VALUES: usize = 10_000;

/// Reads the error and the event from such JSON; `None` if it is anything else.
pub(super) fn read_error(text: &[u8]) -> Option<(Error, Option<&'static str>)> {
    const EVENTS: [&str; 8] = [
        "null_path",
        "model_not_found",
        "load_model",
        "chat_template",
        "tools_unsupported",
        "init_context",
        "oom",
        "invalid_options",
    ];
    if crate::json::values(text) > MAX_VALUES {
        return None;
    }
    let mut value: Map<String, Value> = crate::json::object(text)?;
    let code = Code::parse(value.get("code")?.as_str()?)?;
    let event = value.get("event").and_then(Value::as_str);
    let event = EVENTS.into_iter().find(|known| event == Some(known));
    let mut error = Error::new(code, value.get("message")?.as_str()?);
    if let Some(Value::Object(details)) = value.remove("details") {
        for (key, detail) in details {
            error = error.with(&key, detail);
        }
    }
    Some((error, event))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_pass() {
        let error = Error::new(Code::ContextOverflow, "too long").with("n_ctx", 7);
        let json = error_json(&error, Some("oom")).to_string();
        let (read, event) = read_error(json.as_bytes()).expect("an error");
        assert_eq!((read.to_json(), event), (error.to_json(), Some("oom")));
        for other in ["", "{}", r#"{"code":"NO_SUCH","message":""}"#, r#"{"code":"BUSY"}"#] {
            assert!(read_error(other.as_bytes()).is_none(), "{other}");
        }
        let listing = |count: usize| {
            let details = json!({ "list": vec![0; count] });
            json!({ "code": "BUSY", "message": "x", "details": details }).to_string()
        };
        assert!(read_error(listing(MAX_VALUES - 10).as_bytes()).is_some());
        assert!(read_error(listing(MAX_VALUES).as_bytes()).is_none());
        let unknown = r#"{"code":"BUSY","message":"x","event":"destroy"}"#;
        assert_eq!(read_error(unknown.as_bytes()).expect("an error").1, None);
    }
}
