//! Evidence: why a capability flag is set or not.

use serde_json::{Map, Value, json};

use crate::template::failure::Failure;

/// Whether a template has a capability.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EvidenceStatus {
    /// The template has the capability.
    Yes,
    /// The template lacks the capability, or refuses by `raise_exception`.
    No,
    /// The engine failed before there was an answer.
    #[default]
    Unknown,
}

impl EvidenceStatus {
    /// `yes`, `no` or `unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            EvidenceStatus::Yes => "yes",
            EvidenceStatus::No => "no",
            EvidenceStatus::Unknown => "unknown",
        }
    }
}

/// The evidence of one flag.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Whether the template has the capability.
    pub status: EvidenceStatus,
    /// The reason, as one sentence for people.
    pub because: String,
    /// The name of the deciding probe.
    pub probe: &'static str,
    /// The name of the control, which differs from the probe in exactly one thing.
    pub control: Option<&'static str>,
    /// The failure, if a render failed.
    pub error: Option<Failure>,
    /// Variables that were bound to "" because the template does not render without them.
    pub assumed: Vec<String>,
    /// The evidence of llama.cpp's flag of the same name, if it differs.
    pub caps: Option<Box<Evidence>>,
}

impl Evidence {
    /// The evidence as JSON: `{"status","because","probe","control"?,"error"?,"assumed"?,"caps"?}`.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("status".to_owned(), self.status.as_str().into());
        object.insert("because".to_owned(), self.because.as_str().into());
        object.insert("probe".to_owned(), self.probe.into());
        if let Some(control) = self.control {
            object.insert("control".to_owned(), control.into());
        }
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
        if let Some(caps) = &self.caps {
            object.insert("caps".to_owned(), caps.to_json());
        }
        Value::Object(object)
    }
}
