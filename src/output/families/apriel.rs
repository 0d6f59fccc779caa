//! Apriel: a list between tags; reasoning has an end and no beginning.
//!
//! ```text
//! R
//! [BEGIN FINAL RESPONSE]
//! <tool_calls>[{"name": "f", "arguments": {"a": 1}}]</tool_calls>
//! ```
//!
//! Apriel 1.5 and 1.6. The prompt ends in `Here are my reasoning steps:`.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part, Reasoning};

pub(super) fn format() -> Format {
    Format {
        family: text("apriel"),
        reasoning: Some(Reasoning {
            open: text(""),
            close: text("[BEGIN FINAL RESPONSE]"),
            ends_at_call: false,
            end_alone: true,
        }),
        calls: Some(Calls {
            open: text("<tool_calls>["),
            close: text("]</tool_calls>"),
            separator: text(", "),
            call: vec![
                Part::Text(text(r#"{"name": ""#)),
                Part::Name,
                Part::Text(text(r#"", "arguments": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text("}")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|end|>")],
        ..bare()
    }
}
