//! Hermes with the arguments first.
//!
//! ```text
//! <tool_call>
//! { "arguments": {"a": 1}, "name": "f"}
//! </tool_call>
//! ```
//!
//! The JSON-Schema variant of Hermes 2 Pro.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("hermes-reversed"),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text("\n"),
            call: vec![
                Part::Text(text("<tool_call>\n{ \"arguments\": ")),
                Part::Arguments(Encoding::Json),
                Part::Text(text(r#", "name": ""#)),
                Part::Name,
                Part::Text(text("\"}\n</tool_call>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|im_end|>")],
        fenced_calls: true,
        ..bare()
    }
}
