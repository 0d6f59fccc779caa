//! DeepSeek V3.1: name, then arguments.
//!
//! ```text
//! <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
//! ```
//!
//! DeepSeek V3.1, V3.2-Exp.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part, Reasoning};

pub(super) fn format() -> Format {
    Format {
        family: text("deepseek-v3.1"),
        reasoning: Some(Reasoning { open: text("<think>"), close: text("</think>"), ends_at_call: false, end_alone: true }),
        calls: Some(Calls {
            open: text("<｜tool▁calls▁begin｜>"),
            close: text("<｜tool▁calls▁end｜>"),
            separator: text(""),
            call: vec![
                Part::Text(text("<｜tool▁call▁begin｜>")),
                Part::Name,
                Part::Text(text("<｜tool▁sep｜>")),
                Part::Arguments(Encoding::Json),
                Part::Text(text("<｜tool▁call▁end｜>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<｜end▁of▁sentence｜>")],
        ..bare()
    }
}
