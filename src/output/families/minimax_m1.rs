//! MiniMax M1: an object a line between tags.
//!
//! ```text
//! <tool_calls>
//! {"name": "f", "arguments": {"a": 1}}
//! </tool_calls>
//! ```
//!
//! MiniMax M1.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("minimax-m1"),
        reasoning: reasoning("<think>", "</think>"),
        calls: Some(Calls {
            open: text("<tool_calls>\n"),
            close: text("\n</tool_calls>"),
            separator: text("\n"),
            call: vec![
                Part::Text(text(r#"{"name": ""#)),
                Part::Name,
                Part::Text(text(r#"", "arguments": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text("}")),
            ],
            parallel: true,
        }),
        ends: vec![text("<end_of_sentence>")],
        ..bare()
    }
}
