//! The JSON of the frames between host and helper. Both are of the same build, so its members are
//! private to it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Code, Error};

/// What the host asks for. The text of the call follows in a frame of its own where noted.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Call {
    /// The first call of a helper: the files that it may read, and the option `backend`. Answered by
    /// a [`Hello`].
    Start { files: Vec<String>, backend: Option<String> },
    /// Opens a chat with the options in the text. Answered by its number.
    Create { state: Option<LentStateCall> },
    /// Runs the request in the text.
    Infer { chat: u64, call: u64, stream: bool, cancelled: bool },
    /// Explains the request in the text.
    Explain { chat: u64 },
    /// Closes a chat, with a descriptor to write its state to. Answered by whether it was written.
    Close { chat: u64 },
}

/// The state of a chat at create. The descriptor of its file comes with the call, if there is one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LentStateCall {
    /// For messages.
    pub(super) name: String,
    /// Bytes of the file; `None` if there is none.
    pub(super) size: Option<u64>,
    /// Why the file must not be read.
    pub(super) problem: Option<String>,
}

/// What the helper is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    /// Must be that of the host.
    pub(super) version: String,
    /// What restricts the helper, and why if it is not all.
    pub(super) landlock: bool,
    pub(super) seccomp: bool,
    pub(super) problem: Option<String>,
}

/// A message of the host about a call on another connection, or a new connection.
pub(super) enum DoorMessage {
    /// A connection with this number; its descriptor comes with the message.
    Connect(u64),
    /// Cancels this call of this connection, and all before it.
    Cancel { connection: u64, call: u64 },
}

impl DoorMessage {
    pub(super) fn to_bytes(&self) -> [u8; 17] {
        let (kind, connection, call) = match *self {
            DoorMessage::Connect(connection) => (0, connection, 0),
            DoorMessage::Cancel { connection, call } => (1, connection, call),
        };
        let mut bytes = [kind; 17];
        bytes[1..9].copy_from_slice(&u64::to_le_bytes(connection));
        bytes[9..].copy_from_slice(&u64::to_le_bytes(call));
        bytes
    }

    pub(super) fn of(bytes: &[u8]) -> Option<DoorMessage> {
        let connection = u64::from_le_bytes(bytes.get(1..9)?.try_into().ok()?);
        let call = u64::from_le_bytes(bytes.get(9..17)?.try_into().ok()?);
        match bytes[0] {
            0 => Some(DoorMessage::Connect(connection)),
            1 => Some(DoorMessage::Cancel { connection, call }),
            _ => None,
        }
    }
}

/// An error as JSON. `event` is that of a failed create.
pub(super) fn error_json(error: &Error, event: Option<&str>) -> Value {
    json!({
        "code": error.code().as_str(),
        "message": error.message(),
        "details": error.details(),
        "event": event,
    })
}

/// The error and the event of such a JSON; `None` if it is none.
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
    let mut value: Map<String, Value> = crate::json::from_slice(text).ok()?;
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
        let unknown = r#"{"code":"BUSY","message":"x","event":"destroy"}"#;
        assert_eq!(read_error(unknown.as_bytes()).expect("an error").1, None);
    }
}
