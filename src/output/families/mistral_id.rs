//! Mistral with an id between name and arguments.
//!
//! ```text
//! [TOOL_CALLS]f[CALL_ID]123456789[ARGS]{"a": 1}
//! ```
//!
//! Mistral Small 3.2.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, IdForm, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("mistral-id"),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text(""),
            call: vec![
                Part::Text(text("[TOOL_CALLS]")),
                Part::Name,
                Part::Text(text("[CALL_ID]")),
                Part::Id(IdForm::Alphanumeric(9)),
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
