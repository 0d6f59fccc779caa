//! A finished message -> where it breaks the schemas it was asked to obey.
//!
//! In: the calls and the text of a message, and the schemas exactly as the caller wrote them,
//! whatever the sampler could enforce of them. Out: diagnostics. Nothing is changed or dropped,
//! nothing is an error, nothing is fetched; a schema that cannot be followed is said to be
//! unchecked, with the place.

mod number;
mod pattern;
mod schema;

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test reports by panicking")]
mod tests;

use std::fmt;

use serde_json::{Value, json};

use crate::api::{ResponseFormat, ToolChoice, function_name, function_parameters};
use crate::output::{Diagnostic, ParsedReply};

use schema::{KeywordProblem, SchemaChecker};

/// What a schema is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// The arguments of a call: the function, and the position among the message's calls.
    Arguments(String, usize),
    /// The text of a reply for which JSON was asked.
    Response,
}

/// A keyword that is broken, or that could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// `schema_violation`, or `schema_unchecked` where it is not known whether it is one.
    pub code: &'static str,
    /// Whose schema.
    pub subject: Subject,
    /// JSON pointer: into the value of a violation, into the schema of what is unchecked.
    pub path: String,
    /// The keyword; empty where there is none, as for text that is not JSON at all.
    pub keyword: String,
    /// A few words.
    pub reason: String,
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

impl Violation {
    /// `{"code","message","tool","call","path","keyword"}`; `tool` and `call` only of arguments.
    pub fn to_json(&self) -> Value {
        let mut members = json!({ "code": self.code, "message": self.to_string() });
        if let Subject::Arguments(tool, call) = &self.subject {
            members["tool"] = json!(tool);
            members["call"] = json!(call);
        }
        members["path"] = json!(self.path);
        members["keyword"] = json!(self.keyword);
        members
    }
}

/// Checks a message. Calls of tools that were not given, and arguments that are not JSON, are the
/// reply parser's to report.
pub fn check_message(
    parsed: &ParsedReply,
    tools: &[Value],
    response: Option<&ResponseFormat>,
) -> Vec<Violation> {
    let mut checker = SchemaChecker::new();
    let mut violations = Vec::new();
    for (index, call) in parsed.tool_calls.iter().enumerate() {
        let tool = tools.iter().find(|tool| function_name(tool) == call.name);
        if let Some(schema) = tool.and_then(function_parameters)
            && let Ok(arguments) = serde_json::from_str(&call.arguments)
        {
            let subject = Subject::Arguments(call.name.clone(), index);
            violations.extend(found(checker.check(schema, &arguments), &subject));
        }
    }
    let text = parsed.content.trim();
    if let Some(response) = response
        // A call may take the place of the answer.
        && (!text.is_empty() || parsed.tool_calls.is_empty())
    {
        let object = json!({ "type": "object" });
        let schema = match response {
            ResponseFormat::JsonObject => &object,
            ResponseFormat::JsonSchema(schema) => schema,
        };
        let broken = match serde_json::from_str(text) {
            Ok(value) => checker.check(schema, &value),
            Err(_) => vec![KeywordProblem::text("the text is not JSON")],
        };
        violations.extend(found(broken, &Subject::Response));
    }
    violations
}

/// Says so where `tool_choice` asked for a call and the message has none: the reply was cut short,
/// or nothing held it.
pub fn check_tool_choice(parsed: &ParsedReply, choice: &ToolChoice) -> Option<Diagnostic> {
    let calls = &parsed.tool_calls;
    let message = match choice {
        ToolChoice::Required if calls.is_empty() => {
            "tool_choice asks for a call, and the reply has none".to_owned()
        }
        ToolChoice::Function(name) if calls.iter().all(|call| call.name != *name) => {
            format!("tool_choice asks for a call of `{name}`, and the reply has none")
        }
        _ => return None,
    };
    Some(Diagnostic { code: "required_not_met", message })
}

/// Whether arguments obey the schema of this tool. What cannot be checked is no reason to say no.
pub fn accepts_arguments(tools: &[Value], name: &str, arguments: &str) -> bool {
    let Some(tool) = tools.iter().find(|tool| function_name(tool) == name) else { return false };
    let Ok(arguments @ Value::Object(_)) = serde_json::from_str(arguments) else { return false };
    let broken =
        function_parameters(tool).map(|schema| SchemaChecker::new().check(schema, &arguments));
    broken.into_iter().flatten().all(|broken| broken.unchecked)
}

fn found(broken: Vec<KeywordProblem>, subject: &Subject) -> impl Iterator<Item = Violation> {
    broken.into_iter().map(move |KeywordProblem { unchecked, path, keyword, reason }| Violation {
        code: if unchecked { "schema_unchecked" } else { "schema_violation" },
        subject: subject.clone(),
        path,
        keyword,
        reason,
    })
}
