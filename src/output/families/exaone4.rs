//! EXAONE 4: Hermes on one line.
//!
//! ```text
//! <tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>
//! ```
//!
//! EXAONE 4. Apart from Hermes because the model is to write it without newlines.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("exaone4"),
        reasoning: reasoning("<think>", "</think>"),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text("\n"),
            call: vec![
                Part::Text(text(r#"<tool_call>{"name": ""#)),
                Part::Name,
                Part::Text(text(r#"", "arguments": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text("}</tool_call>")),
            ],
            parallel: true,
        }),
        ends: vec![text("[|endofturn|]")],
        fenced_calls: true,
        ..bare()
    }
}
