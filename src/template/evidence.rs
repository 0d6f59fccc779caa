//! Why a capability flag says what it says.

use serde_json::{Map, Value, json};

use super::failure::Failure;

/// What the probes of a flag could show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The template does it.
    Yes,
    /// It does not, or it refused by `raise_exception`.
    No,
    /// The engine failed before the question was answered.
    Unknown,
}

impl Status {
    /// `yes`, `no` or `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Yes => "yes",
            Status::No => "no",
            Status::Unknown => "unknown",
        }
    }
}

/// The grounds of one flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// What was found.
    pub status: Status,
    /// One sentence for people.
    pub because: String,
    /// Name of the deciding probe.
    pub probe: &'static str,
    /// What failed, if something did.
    pub error: Option<Failure>,
    /// Variables that were bound to "" because the template does not render without them.
    pub assumed: Vec<String>,
}

impl Evidence {
    /// `{"status","because","probe","error"?,"assumed"?}`.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("status".to_owned(), self.status.as_str().into());
        object.insert("because".to_owned(), self.because.as_str().into());
        object.insert("probe".to_owned(), self.probe.into());
        if let Some(failure) = &self.error {
            let mut error = json!({ "kind": failure.kind, "message": failure.message });
            if let Some(line) = failure.line {
                error["line"] = line.into();
            }
            object.insert("error".to_owned(), error);
        }
        if !self.assumed.is_empty() {
            object.insert("assumed".to_owned(), json!(self.assumed));
        }
        Value::Object(object)
    }
}
