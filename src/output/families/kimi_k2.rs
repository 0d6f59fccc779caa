//! Kimi K2: the id holds the name.
//!
//! ```text
//! <|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|><|tool_calls_section_end|>
//! ```
//!
//! Kimi K2, K2-Instruct, K2-Thinking.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, IdForm, Part, Reasoning};

pub(super) fn format() -> Format {
    Format {
        family: text("kimi-k2"),
        reasoning: Some(Reasoning { open: text("<think>"), close: text("</think>"), ends_at_call: true, end_alone: false }),
        calls: Some(Calls {
            open: text("<|tool_calls_section_begin|>"),
            close: text("<|tool_calls_section_end|>"),
            separator: text(""),
            call: vec![
                Part::Text(text("<|tool_call_begin|>")),
                Part::Id(IdForm::Named { prefix: text("functions."), infix: text(":") }),
                Part::Text(text("<|tool_call_argument_begin|>")),
                Part::Arguments(Encoding::Json),
                Part::Text(text("<|tool_call_end|>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|im_end|>")],
        ..bare()
    }
}
