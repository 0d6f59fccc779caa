//! Decides whether text that looks like a call, or like the requested value, counts as one.
//!
//! In: the tools or the `response_format` of a request, and texts of the reply. Out: yes or no, and
//! for calls why not.
//! Keywords that cannot be checked count as satisfied. All checks of a reply share their steps,
//! because a reply may contain thousands of such texts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::schema::{KeywordProblem, SchemaChecker};
use super::{Subject, Violation};
use crate::api::{ResponseFormat, function_name, function_parameters};
use crate::diagnostic::Diagnostic;
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

    /// Checks that arguments conform to the schema of this tool. The error is the diagnostic about
    /// the first problem.
    pub fn check_arguments(&self, name: &str, arguments: &str) -> Result<(), Diagnostic> {
        let Some(tool) = self.indices.get(name).and_then(|index| self.tools.get(*index)) else {
            let message = format!("`{name}` is not a tool of the request");
            return Err(Diagnostic::new(Violation::CODE, message).with("name", name));
        };
        let problem = match (json::object(arguments), function_parameters(tool)) {
            (None, _) => Some(KeywordProblem::of_text("the text is not a JSON object")),
            (Some(arguments), Some(schema)) => self.problem(schema, &Value::Object(arguments)),
            (Some(_), None) => None,
        };
        let subject = Subject::Arguments(name.to_owned(), None);
        let violation = problem.map(|problem| Violation::new(problem, &subject));
        violation.map_or(Ok(()), |violation| Err(Diagnostic::from(&violation)))
    }

    /// Whether a text is a value that the format accepts.
    pub fn accepts_value(&self, text: &str) -> bool {
        let Ok(value) = json::value(text) else { return false };
        match &self.response {
            Some(ResponseFormat::JsonSchema { schema, .. }) => {
                self.problem(schema, &value).is_none()
            }
            _ => value.is_object(),
        }
    }

    /// The first keyword that the value violates.
    fn problem(&self, schema: &Value, value: &Value) -> Option<KeywordProblem> {
        let mut checker = self.checker.lock().unwrap_or_else(PoisonError::into_inner);
        checker.check_next(schema, value).into_iter().find(|problem| !problem.unchecked)
    }
}
