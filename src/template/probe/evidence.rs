//! Evidence: why a capability flag is set or not.

use serde::Serialize;
use serde_json::{Value, json};

use crate::template::failure::Failure;

named_enum! {
    /// Whether a template has a capability.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum EvidenceStatus {
        /// The template has the capability.
        Yes = "yes",
        /// The template lacks the capability, or refuses by `raise_exception`.
        No = "no",
        /// The engine failed before there was an answer.
        #[default]
        Unknown = "unknown",
    }
}

/// The evidence of one flag.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Whether the template has the capability.
    pub status: EvidenceStatus,
    /// The reason, as one sentence for people.
    pub because: String,
    /// The name of the deciding probe.
    pub probe: &'static str,
    /// The name of the control, which differs from the probe in exactly one thing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<&'static str>,
    /// The failure, if a render failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Failure>,
    /// Variables that were bound to "" because the template does not render without them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub assumed: Vec<String>,
    /// The evidence of llama.cpp's flag of the same name, if it differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caps: Option<Box<Evidence>>,
}

impl Evidence {
    /// The evidence as JSON: `{"status","because","probe","control"?,"error"?,"assumed"?,"caps"?}`.
    pub fn to_json(&self) -> Value {
        json!(self)
    }
}
