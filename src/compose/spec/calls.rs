//! The policy of calls and results: how arguments are written, and what joins them.

use serde_json::{Map, Value, json};

use super::name_of;
use super::processor::{Processor, ProcessorTarget};
use super::reader::SpecReader;
use crate::error::Result;

/// How the value of one argument is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArgumentValues {
    /// Strings verbatim, other values as JSON.
    Text,
    /// Every value as JSON.
    Json,
    /// Strings verbatim, lists and objects as JSON, and `True`, `False` and `None`.
    Python,
    /// Strings in `argument_quote` at every depth, unquoted keys in alphabetical order, no spaces.
    Bare,
}

const VALUES: [(&str, ArgumentValues); 4] = [
    ("text", ArgumentValues::Text),
    ("json", ArgumentValues::Json),
    ("python", ArgumentValues::Python),
    ("bare", ArgumentValues::Bare),
];
const NULL: &str = "null";

/// The members of `tool_policy` for calls and results.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CallPolicy {
    /// Between calls.
    pub(crate) joiner: String,
    /// Between the text of an answer and its calls, if it has both.
    pub(crate) separator: String,
    /// Between arguments.
    pub(crate) argument_joiner: String,
    pub(crate) argument_values: ArgumentValues,
    /// Around the strings of bare values.
    pub(crate) argument_quote: String,
    /// `null` in bare values.
    pub(crate) argument_null: String,
    /// Arguments that are a string are written verbatim, not as a JSON string.
    pub(crate) text_as_is: bool,
    /// Between consecutive results.
    pub(crate) result_joiner: String,
    pub(crate) result_processor: Option<Processor>,
    /// After consecutive results, unless a user's turn follows.
    pub(crate) results_end: String,
    /// Results are dropped if they have no template.
    pub(crate) drops_results: bool,
}

impl Default for CallPolicy {
    fn default() -> CallPolicy {
        CallPolicy {
            joiner: String::new(),
            separator: String::new(),
            argument_joiner: String::new(),
            argument_values: ArgumentValues::Text,
            argument_quote: String::new(),
            argument_null: NULL.to_owned(),
            text_as_is: false,
            result_joiner: String::new(),
            result_processor: None,
            results_end: String::new(),
            drops_results: false,
        }
    }
}

impl CallPolicy {
    /// Reads the members of `tool_policy`.
    pub(crate) fn read(tool: &mut SpecReader<'_>, ignored: &mut Vec<String>) -> Result<CallPolicy> {
        let path = tool.path("observation_content_processor");
        let processor = tool.get("observation_content_processor");
        Ok(CallPolicy {
            joiner: tool.text("call_joiner")?,
            separator: tool.text("call_separator")?,
            argument_joiner: tool.text("argument_joiner")?,
            argument_values: tool
                .one_of("argument_values", &VALUES)?
                .unwrap_or(ArgumentValues::Text),
            argument_quote: tool.text("argument_quote")?,
            argument_null: tool.string("argument_null")?.unwrap_or(NULL).to_owned(),
            text_as_is: tool
                .one_of("text_arguments", &[("json", false), ("as_is", true)])?
                .unwrap_or(false),
            result_joiner: tool.text("observation_joiner")?,
            result_processor: processor
                .map(|value| Processor::read(value, path, ProcessorTarget::Result, ignored))
                .transpose()?,
            results_end: tool.text("observations_end")?,
            drops_results: tool
                .one_of("without_observations_template", &[("error", false), ("drop", true)])?
                .unwrap_or(false),
        })
    }

    /// The members that differ from the defaults.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let mut members = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            members.extend(value.map(|value| (name.to_owned(), value)))
        };
        let text = |text: &String| (!text.is_empty()).then(|| json!(text));
        let values = name_of(&VALUES, self.argument_values);
        put("call_joiner", text(&self.joiner));
        put("call_separator", text(&self.separator));
        put("argument_joiner", text(&self.argument_joiner));
        put(
            "argument_values",
            values.filter(|_| self.argument_values != ArgumentValues::Text).map(Value::from),
        );
        put("argument_quote", text(&self.argument_quote));
        put("argument_null", (self.argument_null != NULL).then(|| json!(self.argument_null)));
        put("text_arguments", self.text_as_is.then(|| json!("as_is")));
        put("observation_joiner", text(&self.result_joiner));
        put(
            "observation_content_processor",
            self.result_processor.as_ref().map(Processor::to_json),
        );
        put("observations_end", text(&self.results_end));
        put("without_observations_template", self.drops_results.then(|| json!("drop")));
        members
    }
}
