//! The only error type: a stable code, a message for people, and details for programs.
//!
//! Codes are part of the ABI. New codes may be added, but codes are never renamed. Messages are in
//! lower case, without a full stop. If the caller's input is wrong, the message contains the JSON
//! path and the value.

use std::fmt;

use serde_json::{Map, Value, json};

/// The result of every fallible function of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

named_enum! {
    /// The stable codes in `error.code`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    #[non_exhaustive]
    pub enum Code {
        /// The caller's input is not valid.
        InvalidRequest = "INVALID_REQUEST",
        /// The handle was destroyed, never created, or closed by an earlier fault.
        EngineClosed = "ENGINE_CLOSED",
        /// llama.cpp or a server failed to generate.
        InferenceFailed = "INFERENCE_FAILED",
        /// A fault inside llb, such as a caught panic.
        InternalBridgeError = "INTERNAL_BRIDGE_ERROR",
        /// The function was called from a callback of the same chat.
        Busy = "BUSY",
        /// The call was ended by `llb_model_fetch_cancel`, by `llb_embed_cancel`, by the time-out
        /// of an embedding call, or by an exception that a callback threw. A chat request that is
        /// cancelled or times out has a reply instead.
        Cancelled = "CANCELLED",
        /// The model file does not exist.
        ModelNotFound = "MODEL_NOT_FOUND",
        /// The model file cannot be used.
        ModelInvalid = "MODEL_INVALID",
        /// The tool-capability check refused the model: its chat template does not support tools.
        ModelNotToolCapable = "MODEL_NOT_TOOL_CAPABLE",
        /// There is not enough memory.
        OutOfMemory = "OUT_OF_MEMORY",
        /// The chat template failed, or refused the messages.
        TemplateError = "TEMPLATE_ERROR",
        /// The chat template exceeded its limits.
        TemplateLimit = "TEMPLATE_LIMIT",
        /// The prompt does not fit the context.
        ContextOverflow = "CONTEXT_OVERFLOW",
        /// A schema, grammar or tool choice cannot be enforced.
        SchemaUnsupported = "SCHEMA_UNSUPPORTED",
        /// The hub does not have the model, revision or file.
        HubNotFound = "HUB_NOT_FOUND",
        /// The model requires the token of a user who has accepted its licence on its page.
        HubGated = "HUB_GATED",
        /// The hub requires a token, or rejects the one it received.
        HubUnauthorized = "HUB_UNAUTHORIZED",
        /// The token is valid but may not read the model.
        HubForbidden = "HUB_FORBIDDEN",
        /// The hub is unreachable, or its response is not valid.
        HubNetwork = "HUB_NETWORK",
        /// The download does not match the hub's size or hash.
        HubVerify = "HUB_VERIFY",
        /// Several files match the request.
        HubAmbiguous = "HUB_AMBIGUOUS",
        /// Only the cache may be used, and it does not contain the model.
        Offline = "OFFLINE",
    }
}

/// An error. It is one pointer wide, so a `Result` that contains it stays small.
#[derive(Debug)]
pub struct Error(Box<ErrorContent>);

#[derive(Debug)]
struct ErrorContent {
    code: Code,
    message: String,
    details: Option<Map<String, Value>>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A hidden method is for the library and the repository's own tests.
impl Error {
    /// Creates an error with this code and message.
    #[doc(hidden)]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Error(Box::new(ErrorContent { code, message: message.into(), details: None, source: None }))
    }

    /// Creates an `INVALID_REQUEST` error at a JSON path: `messages[2].role: unknown role
    /// "assistent"`.
    #[doc(hidden)]
    pub fn invalid(path: impl fmt::Display, problem: impl fmt::Display) -> Self {
        Error::new(Code::InvalidRequest, format!("{path}: {problem}"))
    }

    /// Adds a member to `details`.
    #[doc(hidden)]
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.details.get_or_insert_default().insert(key.to_owned(), value.into());
        self
    }

    /// Adds a prefix to the message: `model.gguf: not a GGUF file`.
    #[doc(hidden)]
    #[must_use]
    pub fn about(mut self, what: impl fmt::Display) -> Self {
        self.0.message = format!("{what}: {}", self.0.message);
        self
    }

    /// Replaces the message.
    #[doc(hidden)]
    #[must_use]
    pub fn with_message(mut self, message: String) -> Self {
        self.0.message = message;
        self
    }

    /// Sets the cause of the error.
    #[doc(hidden)]
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

    /// The details for programs.
    pub fn details(&self) -> Option<&Map<String, Value>> {
        self.0.details.as_ref()
    }

    /// The JSON `{"type":"error","error":{"code","message","details"?}}`.
    #[doc(hidden)]
    pub fn to_json(&self) -> Value {
        let mut json = self.without_details();
        if let Some(details) = &self.0.details {
            json["error"]["details"] = Value::Object(details.clone());
        }
        json
    }

    /// The JSON `{"type":"error","error":{"code","message"},"error_details"?}`, for callers that
    /// refuse other members of `error`.
    #[doc(hidden)]
    pub fn to_classic_json(&self) -> Value {
        let mut json = self.without_details();
        if let Some(details) = &self.0.details {
            json["error_details"] = Value::Object(details.clone());
        }
        json
    }

    fn without_details(&self) -> Value {
        let error = json!({ "code": self.0.code.as_str(), "message": self.0.message });
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
