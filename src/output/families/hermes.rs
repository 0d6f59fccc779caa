//! Hermes: one JSON object per pair of tags.
//!
//! ```text
//! <tool_call>
//! {"name": "f", "arguments": {"a": 1}}
//! </tool_call>
//! ```
//!
//! Hermes 2 Pro and 3, Qwen 2.5, QwQ, Qwen 3, Bielik 3, MiMo-VL, Granite 4, Reka Edge (no newline between two calls),
//! SmolLM3, MiniCPM-V 4.5, RNJ-1.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("hermes"),
        reasoning: reasoning("<think>", "</think>"),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text("\n"),
            call: vec![
                Part::Text(text("<tool_call>\n{\"name\": \"")),
                Part::Name,
                Part::Text(text(r#"", "arguments": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text("}\n</tool_call>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|im_end|>")],
        fenced_calls: true,
        ..bare()
    }
}
