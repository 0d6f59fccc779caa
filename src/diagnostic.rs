//! Diagnostics: coded remarks about what was relaxed, repaired, guessed or left out. An error ends
//! a request, but a diagnostic does not.
//!
//! Every module reports with this one type, and it stays typed until the reply is written. A lint
//! of a template is a separate type, because it has a severity and a line.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

/// The member of a polyfill's diagnostic that contains the index of the message.
pub const MESSAGE_INDEX: &str = "message_index";

/// A remark with a stable code.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// The stable code, for programs, for example `unknown_tool`.
    pub code: &'static str,
    /// The JSON path of the member that the diagnostic is about, if it is written as a separate
    /// member.
    pub path: Option<String>,
    /// The message for people, in lower case and without a full stop.
    pub message: String,
    /// Further members of the JSON, in order.
    pub details: Vec<(&'static str, Value)>,
}

/// A hidden method is for the library.
impl Diagnostic {
    /// Creates the diagnostic `{"code","message"}`.
    #[doc(hidden)]
    pub fn new(code: &'static str, message: impl Into<String>) -> Diagnostic {
        Diagnostic { code, path: None, message: message.into(), details: Vec::new() }
    }

    /// Creates the diagnostic `{"code","path","message"}`.
    #[doc(hidden)]
    pub fn at(
        code: &'static str,
        path: impl Into<String>,
        message: impl Into<String>,
    ) -> Diagnostic {
        Diagnostic { path: Some(path.into()), ..Diagnostic::new(code, message) }
    }

    /// Adds a member to `details`.
    #[doc(hidden)]
    #[must_use]
    pub fn with(mut self, key: &'static str, value: impl Into<Value>) -> Diagnostic {
        self.details.push((key, value.into()));
        self
    }

    /// The JSON `{"code","path"?,"message"}`, followed by the details.
    pub fn to_json(&self) -> Value {
        json!(self)
    }
}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        members.serialize_entry("code", self.code)?;
        if let Some(path) = &self.path {
            members.serialize_entry("path", path)?;
        }
        members.serialize_entry("message", &self.message)?;
        for (key, value) in &self.details {
            members.serialize_entry(key, value)?;
        }
        members.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_their_order() {
        let plain = Diagnostic::new("a", "b").with("z", 1).with("y", "c");
        assert_eq!(plain.to_json().to_string(), r#"{"code":"a","message":"b","z":1,"y":"c"}"#);
        let located = Diagnostic::at("a", "x.y", "b");
        assert_eq!(located.to_json().to_string(), r#"{"code":"a","path":"x.y","message":"b"}"#);
    }
}
