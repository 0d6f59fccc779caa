//! Mistral, before names had markers: a list.
//!
//! ```text
//! [TOOL_CALLS][{"name": "f", "arguments": {"a": 1}, "id": "123456789"}]
//! ```
//!
//! Mistral 7B v0.3, Mistral Nemo, Mistral Small 2409 and older. Templates refuse ids of another length.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, IdForm, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("mistral-array"),
        calls: Some(Calls {
            open: text("[TOOL_CALLS]["),
            close: text("]"),
            separator: text(", "),
            call: vec![
                Part::Text(text(r#"{"name": ""#)),
                Part::Name,
                Part::Text(text(r#"", "arguments": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text(r#", "id": ""#)),
                Part::Id(IdForm::Alphanumeric(9)),
                Part::Text(text(r#""}"#)),
            ],
            parallel: true,
        }),
        ends: vec![text("</s>")],
        untagged: true,
        ..bare()
    }
}
