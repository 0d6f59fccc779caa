//! The one error type: a stable code, a message for people, details for programs.
//!
//! Codes are part of the ABI: added, never renamed. Messages are lower case, without a full stop,
//! and carry the JSON path and the value where a caller's input is at fault.

use std::fmt;

use serde_json::{Map, Value, json};

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Stable error codes, as they appear in `error.code`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The caller's input is not what the function takes.
    InvalidRequest,
    /// The handle was destroyed, never created, or poisoned by an earlier fault.
    EngineClosed,
    /// llama.cpp could not compute.
    InferenceFailed,
    /// A fault of our own, a caught panic included.
    InternalBridgeError,
    /// Called from a callback of the same chat.
    Busy,
    /// Ended by a cancel or a time-out before there was anything to return.
    Cancelled,
    /// No such model file.
    ModelNotFound,
    /// The model file cannot be used.
    ModelInvalid,
    /// The gate: the model's chat template cannot carry tools.
    ModelNotToolCapable,
    /// Not enough memory.
    OutOfMemory,
    /// The chat template failed or refused.
    TemplateError,
    /// The chat template used more than its limits allow.
    TemplateLimit,
    /// The prompt does not fit the context.
    ContextOverflow,
    /// A schema or tool choice that cannot be enforced.
    SchemaUnsupported,
    /// The hub has no such model, revision or file.
    HubNotFound,
    /// The model's licence must be accepted on its page first, and a token given.
    HubGated,
    /// The hub wants a token, or refuses the one it got.
    HubUnauthorized,
    /// The token is known and may not read this.
    HubForbidden,
    /// The hub cannot be reached, or does not answer as a hub.
    HubNetwork,
    /// What came is not what the hub said it would be.
    HubVerify,
    /// Several files would do.
    HubAmbiguous,
    /// Only the cache may be used, and it does not have it.
    Offline,
}

impl Code {
    /// The stable spelling, for example `INVALID_REQUEST`.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::InvalidRequest => "INVALID_REQUEST",
            Code::EngineClosed => "ENGINE_CLOSED",
            Code::InferenceFailed => "INFERENCE_FAILED",
            Code::InternalBridgeError => "INTERNAL_BRIDGE_ERROR",
            Code::Busy => "BUSY",
            Code::Cancelled => "CANCELLED",
            Code::ModelNotFound => "MODEL_NOT_FOUND",
            Code::ModelInvalid => "MODEL_INVALID",
            Code::ModelNotToolCapable => "MODEL_NOT_TOOL_CAPABLE",
            Code::OutOfMemory => "OUT_OF_MEMORY",
            Code::TemplateError => "TEMPLATE_ERROR",
            Code::TemplateLimit => "TEMPLATE_LIMIT",
            Code::ContextOverflow => "CONTEXT_OVERFLOW",
            Code::SchemaUnsupported => "SCHEMA_UNSUPPORTED",
            Code::HubNotFound => "HUB_NOT_FOUND",
            Code::HubGated => "HUB_GATED",
            Code::HubUnauthorized => "HUB_UNAUTHORIZED",
            Code::HubForbidden => "HUB_FORBIDDEN",
            Code::HubNetwork => "HUB_NETWORK",
            Code::HubVerify => "HUB_VERIFY",
            Code::HubAmbiguous => "HUB_AMBIGUOUS",
            Code::Offline => "OFFLINE",
        }
    }
}

/// What went wrong. One pointer wide: a `Result` that carries it costs the good path nothing.
#[derive(Debug)]
pub struct Error(Box<ErrorContent>);

#[derive(Debug)]
struct ErrorContent {
    code: Code,
    message: String,
    details: Option<Map<String, Value>>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this code with a message for people.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Error(Box::new(ErrorContent { code, message: message.into(), details: None, source: None }))
    }

    /// `INVALID_REQUEST` at a JSON path: `messages[2].role: unknown role "assistent"`.
    pub fn invalid(path: impl fmt::Display, problem: impl fmt::Display) -> Self {
        Error::new(Code::InvalidRequest, format!("{path}: {problem}"))
    }

    /// The same error with one more member in `details`.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.details.get_or_insert_default().insert(key.to_owned(), value.into());
        self
    }

    /// The same error, its message said of something: `model.gguf: not a GGUF file`.
    #[must_use]
    pub fn about(mut self, what: impl fmt::Display) -> Self {
        self.0.message = format!("{what}: {}", self.0.message);
        self
    }

    /// The same error with its cause.
    #[must_use]
    pub fn caused_by(
        mut self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The stable code.
    pub fn code(&self) -> Code {
        self.0.code
    }

    /// The message for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What a program may want to know besides the code.
    pub fn details(&self) -> Option<&Map<String, Value>> {
        self.0.details.as_ref()
    }

    /// `{"type":"error","error":{"code","message","details"?}}`.
    pub fn to_json(&self) -> Value {
        let mut error = json!({ "code": self.0.code.as_str(), "message": self.0.message });
        if let Some(details) = &self.0.details {
            error["details"] = Value::Object(details.clone());
        }
        json!({ "type": "error", "error": error })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.as_str(), self.0.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
