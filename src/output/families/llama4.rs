//! Llama 4: bare objects one after another, text between tags.
//!
//! ```text
//! <|python_start|>T<|python_end|>{"name": "f", "parameters": {"a": 1}}{"name": "g", "parameters": {}}
//! ```
//!
//! Llama 4.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part, Wrapper};

pub(super) fn format() -> Format {
    Format {
        family: text("llama4"),
        wrappers: vec![Wrapper { open: text("<|python_start|>"), close: text("<|python_end|>") }],
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text(""),
            call: vec![
                Part::Text(text(r#"{"name": ""#)),
                Part::Name,
                Part::Text(text(r#"", "parameters": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text("}")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|eom|>"), text("<|eot|>")],
        ..bare()
    }
}
