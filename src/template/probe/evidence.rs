//! Why a capability flag says what it says.

use serde_json::{Map, Value, json};

use crate::template::failure::Failure;

/// What the probes of a flag could show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EvidenceStatus {
    /// The template does it.
    Yes,
    /// It does not, or it refused by `raise_exception`.
    No,
    /// The engine failed before the question was answered.
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

/// The grounds of one flag.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// What was found.
    pub status: EvidenceStatus,
    /// One sentence for people.
    pub because: String,
    /// Name of the deciding probe.
    pub probe: &'static str,
    /// Name of the probe's twin, which differs in exactly one thing.
    pub control: Option<&'static str>,
    /// What failed, if something did.
    pub error: Option<Failure>,
    /// Variables that were bound to "" because the template does not render without them.
    pub assumed: Vec<String>,
    /// The entry of the flag of the same name among llama.cpp's nine, where that differs.
    pub caps: Option<Box<Evidence>>,
}

impl Evidence {
    /// `{"status","because","probe","control"?,"error"?,"assumed"?,"caps"?}`.
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
