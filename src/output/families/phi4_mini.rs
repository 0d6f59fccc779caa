//! Phi-4-mini: a list between markers.
//!
//! ```text
//! <|tool_call|>[{"name": "f", "arguments": {"a": 1}}]<|/tool_call|>
//! ```
//!
//! Phi-4-mini.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("phi4-mini"),
        calls: Some(Calls {
            open: text("<|tool_call|>["),
            close: text("]<|/tool_call|>"),
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
