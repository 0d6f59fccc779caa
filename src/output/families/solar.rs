//! Solar: id, name and arguments between markers.
//!
//! ```text
//! <|tool_calls|><|tool_call:begin|>ID<|tool_call:name|>f<|tool_call:args|>{"a": 1}<|tool_call:end|><|calls|>
//! ```
//!
//! Solar Open.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, IdForm, Part, Wrapper};

pub(super) fn format() -> Format {
    Format {
        family: text("solar"),
        reasoning: reasoning("<|think|>", "<|end|>"),
        wrappers: vec![Wrapper { open: text("<|content|>"), close: text("<|end|>") }],
        calls: Some(Calls {
            open: text("<|tool_calls|>"),
            close: text("<|calls|>"),
            separator: text(""),
            call: vec![
                Part::Text(text("<|tool_call:begin|>")),
                Part::Id(IdForm::Free),
                Part::Text(text("<|tool_call:name|>")),
                Part::Name,
                Part::Text(text("<|tool_call:args|>")),
                Part::Arguments(Encoding::Json),
                Part::Text(text("<|tool_call:end|>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|begin|>assistant"), text("<|calls|>"), text("<|end|>")],
        ..bare()
    }
}
