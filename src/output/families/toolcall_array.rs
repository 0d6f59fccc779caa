//! Nemotron Nano 2: a list between tags.
//!
//! ```text
//! <TOOLCALL>[{"name": "f", "arguments": {"a": 1}}]</TOOLCALL>
//! ```
//!
//! Nemotron Nano v2.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("toolcall-array"),
        reasoning: reasoning("<think>", "</think>"),
        calls: Some(Calls {
            open: text("<TOOLCALL>["),
            close: text("]</TOOLCALL>"),
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
        ends: vec![text("<SPECIAL_12>")],
        ..bare()
    }
}
