//! Granite 3.3: a list after a marker that nothing closes.
//!
//! ```text
//! <|tool_call|>[{"name": "f", "arguments": {"a": 1}}]
//! ```
//!
//! Granite 3.0 to 3.3.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part, Wrapper};

pub(super) fn format() -> Format {
    Format {
        family: text("granite-3.3"),
        reasoning: reasoning("<think>", "</think>"),
        wrappers: vec![Wrapper { open: text("<response>"), close: text("</response>") }],
        calls: Some(Calls {
            open: text("<|tool_call|>["),
            close: text("]"),
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
        ends: vec![text("<|end_of_text|>")],
        untagged: true,
        ..bare()
    }
}
