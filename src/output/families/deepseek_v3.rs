//! DeepSeek V3 with an object per call.
//!
//! ```text
//! <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{"name": "f", "parameters": {"a": 1}}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//! ```
//!
//! DeepSeek V3 as some servers prompt it.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part, Reasoning};

pub(super) fn format() -> Format {
    Format {
        family: text("deepseek-v3"),
        reasoning: Some(Reasoning { open: text("<think>"), close: text("</think>"), ends_at_call: false, end_alone: true }),
        calls: Some(Calls {
            open: text("<｜tool▁calls▁begin｜>"),
            close: text("<｜tool▁calls▁end｜>"),
            separator: text(""),
            call: vec![
                Part::Text(text(r#"<｜tool▁call▁begin｜>{"name": ""#)),
                Part::Name,
                Part::Text(text(r#"", "parameters": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text("}<｜tool▁call▁end｜>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<｜end▁of▁sentence｜>")],
        ..bare()
    }
}
