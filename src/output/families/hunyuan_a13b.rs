//! Hunyuan A13B: a list between tags.
//!
//! ```text
//! <tool_calls>[{"name": "f", "arguments": {"a": 1}}]</tool_calls>
//! ```
//!
//! Hunyuan A13B. The same calls as Apriel; reasoning and text are in tags of their own.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part, Wrapper};

pub(super) fn format() -> Format {
    Format {
        family: text("hunyuan-a13b"),
        reasoning: reasoning("<think>", "</think>"),
        wrappers: vec![Wrapper { open: text("<answer>"), close: text("</answer>") }],
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
        ends: vec![text("<|eos|>")],
        ..bare()
    }
}
