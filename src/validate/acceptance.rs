//! Decides whether text that looks like a call, or like the requested value, counts as one.
//!
//! In: the tools or the `response_format` of a request, and texts of the reply. Out: yes or no.
//! Keywords that cannot be checked count as satisfied. All checks of a reply share their steps,
//! because a reply may contain thousands of such texts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::schema::SchemaChecker;
use crate::api::{ResponseFormat, function_name, function_parameters};
use crate::json;

/// Checks the texts of one reply.
pub struct Acceptance {
    tools: Arc<Vec<Value>>,
    /// The tools by name.
    indices: HashMap<String, usize>,
    response: Option<ResponseFormat>,
    checker: Mutex<SchemaChecker>,
}

impl Acceptance {
    /// Accepts arguments of these tools.
    pub fn of_arguments(tools: Arc<Vec<Value>>) -> Acceptance {
        let named = tools.iter().enumerate();
        let indices = named.map(|(index, tool)| (function_name(tool).to_owned(), index)).collect();
        Acceptance { indices, tools, response: None, checker: Mutex::new(SchemaChecker::new()) }
    }

    /// Accepts values of this format.
    pub fn of_response(response: ResponseFormat) -> Acceptance {
        Acceptance { response: Some(response), ..Acceptance::of_arguments(Arc::default()) }
    }

    /// Whether arguments conform to the schema of this tool.
    pub fn accepts_arguments(&self, name: &str, arguments: &str) -> bool {
        let tool = self.indices.get(name).and_then(|index| self.tools.get(*index));
        let (Some(tool), Some(arguments)) = (tool, json::object(arguments)) else { return false };
        let schema = function_parameters(tool);
        schema.is_none_or(|schema| self.conforms(schema, &Value::Object(arguments)))
    }

    /// Whether a text is a value that the format accepts.
    pub fn accepts_value(&self, text: &str) -> bool {
        let Ok(value) = json::value(text) else { return false };
        match &self.response {
            Some(ResponseFormat::JsonSchema { schema, .. }) => self.conforms(schema, &value),
            _ => value.is_object(),
        }
    }

    fn conforms(&self, schema: &Value, value: &Value) -> bool {
        let mut checker = self.checker.lock().unwrap_or_else(PoisonError::into_inner);
        checker.check_next(schema, value).iter().all(|problem| problem.unchecked)
    }
}
