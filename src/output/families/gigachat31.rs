//! GigaChat 3.1: a marker, then the call.
//!
//! ```text
//! <|function_call|>{"name": "f", "arguments": {"a": 1}}
//! ```
//!
//! GigaChat 3.1. Its template prints the first call only.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("gigachat3.1"),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text(""),
            call: vec![
                Part::Text(text(r#"<|function_call|>{"name": ""#)),
                Part::Name,
                Part::Text(text(r#"", "arguments": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text("}")),
            ],
            parallel: false,
        }),
        ends: vec![text("<|message_sep|>")],
        ..bare()
    }
}
