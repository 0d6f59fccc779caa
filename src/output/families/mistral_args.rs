//! Mistral: name, then arguments.
//!
//! ```text
//! [TOOL_CALLS]f[ARGS]{"a": 1}
//! ```
//!
//! Ministral 3, Devstral 2507, Magistral.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("mistral-args"),
        reasoning: reasoning("[THINK]", "[/THINK]"),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text(""),
            call: vec![
                Part::Text(text("[TOOL_CALLS]")),
                Part::Name,
                Part::Text(text("[ARGS]")),
                Part::Arguments(Encoding::Json),
            ],
            parallel: true,
        }),
        ends: vec![text("</s>")],
        untagged: true,
        ..bare()
    }
}
