//! FireFunction: a list after the word `functools`.
//!
//! ```text
//!  functools[{"name": "f", "arguments": {"a": 1}}]
//! ```
//!
//! FireFunction v2.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("firefunction"),
        calls: Some(Calls {
            open: text(" functools["),
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
        ends: vec![text("<|eot_id|>")],
        ..bare()
    }
}
