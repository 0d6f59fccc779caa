//! Checks a finished message against the caller's schemas.
//!
//! In: the calls and the text of a message, and the schemas as the caller wrote them, including
//! what the sampler could not enforce. Out: diagnostics. The message is not changed, no check
//! returns an error, and nothing is fetched. A keyword that cannot be checked is reported as
//! unchecked, with its path.

mod acceptance;
mod members;
mod number;
mod pattern;
mod schema;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;

use std::collections::HashMap;
use std::fmt;

use serde_json::{Value, json};

use crate::api::{ResponseFormat, ToolChoice, function_name, function_parameters};
use crate::diagnostic::Diagnostic;
use crate::json;
use crate::output::ParsedReply;

pub use acceptance::Acceptance;
pub use members::check_members;
use schema::{KeywordProblem, SchemaChecker};

/// What a schema describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The arguments of a call: the function's name, and the call's index in the message. A call
    /// that stayed text has no index.
    Arguments(String, Option<usize>),
    /// The text of a reply to a request with `response_format`.
    Response,
}

/// A violated keyword, or one that could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// `schema_violation`, or `schema_unchecked` for a keyword that could not be checked.
    pub code: &'static str,
    /// What the schema describes.
    pub subject: Subject,
    /// JSON pointer: into the value for a violation, into the schema for an unchecked keyword.
    pub path: String,
    /// The keyword. Empty if no keyword is involved, for example if the text is not JSON.
    pub keyword: String,
    /// A short description of the problem.
    pub reason: String,
}

impl Violation {
    /// The code of a violated keyword.
    const CODE: &str = "schema_violation";

    fn new(problem: KeywordProblem, subject: &Subject) -> Violation {
        let KeywordProblem { unchecked, path, keyword, reason } = problem;
        let code = if unchecked { "schema_unchecked" } else { Violation::CODE };
        Violation { code, subject: subject.clone(), path, keyword, reason }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.subject {
            Subject::Arguments(tool, _) => write!(f, "{tool}: ")?,
            Subject::Response => f.write_str("response_format: ")?,
        }
        let path = if self.path.is_empty() { "/" } else { &self.path };
        match self.keyword.as_str() {
            "" => write!(f, "{path}: {}", self.reason),
            keyword => write!(f, "{path}: {keyword}: {}", self.reason),
        }
    }
}

/// `{"code","message","tool","call","path","keyword"}`; `tool` and `call` for arguments only.
impl From<&Violation> for Diagnostic {
    fn from(violation: &Violation) -> Diagnostic {
        let mut diagnostic = Diagnostic::new(violation.code, violation.to_string());
        if let Subject::Arguments(tool, call) = &violation.subject {
            diagnostic = diagnostic.with("tool", tool.as_str());
            diagnostic.details.extend(call.map(|call| ("call", json!(call))));
        }
        diagnostic.with("path", violation.path.as_str()).with("keyword", violation.keyword.as_str())
    }
}

/// Checks a message. `beginning` is the content that the prompt already contains. Calls of unknown
/// tools and arguments that are not JSON are reported by the reply parser, not here.
pub fn check_message(
    parsed: &ParsedReply,
    beginning: &str,
    tools: &[Value],
    response: Option<&ResponseFormat>,
) -> Vec<Violation> {
    let mut checker = SchemaChecker::new();
    let mut violations = Vec::new();
    let tools = by_name(tools);
    for (index, call) in parsed.tool_calls.iter().enumerate() {
        let tool = tools.get(&*call.name).copied();
        if let Some(schema) = tool.and_then(function_parameters)
            && let Ok(arguments) = json::value(&call.arguments)
        {
            let subject = Subject::Arguments(call.name.clone(), Some(index));
            violations.extend(to_violations(checker.check(schema, &arguments), &subject));
        }
    }
    let text = format!("{beginning}{}", parsed.content);
    let text = text.trim();
    if let Some(response) = response
        // A call may take the place of the answer.
        && (!text.is_empty() || parsed.tool_calls.is_empty())
    {
        let object = json!({ "type": "object" });
        let schema = match response {
            ResponseFormat::JsonObject => &object,
            ResponseFormat::JsonSchema { schema, .. } => schema,
        };
        let problems = match json::value(text) {
            Ok(value) => checker.check(schema, &value),
            Err(_) => vec![KeywordProblem::of_text("the text is not JSON")],
        };
        violations.extend(to_violations(problems, &Subject::Response));
    }
    violations
}

/// The diagnostic for a message that lacks the call required by `tool_choice`. This happens if the
/// reply was cut short or was not constrained.
pub fn check_tool_choice(parsed: &ParsedReply, choice: &ToolChoice) -> Option<Diagnostic> {
    let calls = &parsed.tool_calls;
    let message = match choice {
        ToolChoice::Required if calls.is_empty() => {
            "tool_choice requires a call, but the reply has none".to_owned()
        }
        ToolChoice::Function(name) if calls.iter().all(|call| call.name != *name) => {
            format!("tool_choice requires a call of `{name}`, but the reply has none")
        }
        _ => return None,
    };
    Some(Diagnostic::new("required_not_met", message))
}

/// The checked tools by name. Of tools with the same name, the first one counts.
fn by_name(tools: &[Value]) -> HashMap<&str, &Value> {
    tools.iter().rev().map(|tool| (function_name(tool), tool)).collect()
}

fn to_violations(
    problems: Vec<KeywordProblem>,
    subject: &Subject,
) -> impl Iterator<Item = Violation> {
    problems.into_iter().map(move |problem| Violation::new(problem, subject))
}
