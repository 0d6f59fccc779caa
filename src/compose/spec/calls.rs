//! The policy for calls and results: how arguments are written, and the text between them.

use super::members::{OneOf, PlainText, members};
use super::processor::{Processor, ProcessorTarget};

named_enum! {
    /// How the value of one argument is written.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum ArgumentValues {
        /// Strings are verbatim, and other values are JSON.
        Text = "text",
        /// Every value is JSON.
        Json = "json",
        /// Strings are verbatim, lists and objects are JSON, and constants are `True`, `False` and
        /// `None`.
        Python = "python",
        /// Strings are in `argument_quote` at every depth, keys are unquoted and in alphabetical
        /// order, and there are no spaces.
        Bare = "bare",
    }
}

members! {
    /// The members of `tool_policy` for calls and results.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct CallPolicy {
        /// The text between calls.
        "call_joiner" => joiner: String = PlainText(""),
        /// The text between the text of an answer and its calls, if it has both.
        "call_separator" => separator: String = PlainText(""),
        /// The text between arguments.
        "argument_joiner" => argument_joiner: String = PlainText(""),
        "argument_values" => argument_values: ArgumentValues = OneOf(ArgumentValues::NAMES),
        /// The quote around strings in bare values.
        "argument_quote" => argument_quote: String = PlainText(""),
        /// The spelling of `null` in bare values.
        "argument_null" => argument_null: String = PlainText("null"),
        /// Whether arguments that are a string are written verbatim, and not as a JSON string.
        "text_arguments" => text_as_is: bool = OneOf(&[("json", false), ("as_is", true)]),
        /// The text between consecutive results.
        "observation_joiner" => result_joiner: String = PlainText(""),
        "observation_content_processor" => result_processor: Option<Processor> =
            ProcessorTarget::Result,
        /// The text after consecutive results, unless a user's turn follows.
        "observations_end" => results_end: String = PlainText(""),
        /// Whether results are dropped if they have no template.
        "without_observations_template" => drops_results: bool =
            OneOf(&[("error", false), ("drop", true)]),
    }
}
