//! The policy of calls and results: how arguments are written, and what joins them.

use super::members::{OneOf, PlainText, members};
use super::processor::{Processor, ProcessorTarget};

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

members! {
    /// The members of `tool_policy` for calls and results.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct CallPolicy {
        /// Between calls.
        "call_joiner" => joiner: String = PlainText(""),
        /// Between the text of an answer and its calls, if it has both.
        "call_separator" => separator: String = PlainText(""),
        /// Between arguments.
        "argument_joiner" => argument_joiner: String = PlainText(""),
        "argument_values" => argument_values: ArgumentValues = OneOf(&VALUES),
        /// Around the strings of bare values.
        "argument_quote" => argument_quote: String = PlainText(""),
        /// `null` in bare values.
        "argument_null" => argument_null: String = PlainText("null"),
        /// Arguments that are a string are written verbatim, not as a JSON string.
        "text_arguments" => text_as_is: bool = OneOf(&[("json", false), ("as_is", true)]),
        /// Between consecutive results.
        "observation_joiner" => result_joiner: String = PlainText(""),
        "observation_content_processor" => result_processor: Option<Processor> =
            ProcessorTarget::Result,
        /// After consecutive results, unless a user's turn follows.
        "observations_end" => results_end: String = PlainText(""),
        /// Results are dropped if they have no template.
        "without_observations_template" => drops_results: bool =
            OneOf(&[("error", false), ("drop", true)]),
    }
}
