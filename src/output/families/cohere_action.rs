//! Cohere: a list between action markers, each call with its position.
//!
//! ```text
//! <|START_ACTION|>[
//!     {"tool_call_id": "0", "tool_name": "f", "parameters": {"a": 1}}
//! ]<|END_ACTION|>
//! ```
//!
//! Command-R7B, Command A, Cohere2MoE (which writes text between `<|START_TEXT|>` and `<|END_TEXT|>`).

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, IdForm, Part, Wrapper};

pub(super) fn format() -> Format {
    Format {
        family: text("cohere-action"),
        reasoning: reasoning("<|START_THINKING|>", "<|END_THINKING|>"),
        wrappers: vec![
            Wrapper { open: text("<|START_RESPONSE|>"), close: text("<|END_RESPONSE|>") },
            Wrapper { open: text("<|START_TEXT|>"), close: text("<|END_TEXT|>") },
        ],
        calls: Some(Calls {
            open: text("<|START_ACTION|>[\n    "),
            close: text("\n]<|END_ACTION|>"),
            separator: text(",\n    "),
            call: vec![
                Part::Text(text(r#"{"tool_call_id": ""#)),
                Part::Id(IdForm::Index(0)),
                Part::Text(text(r#"", "tool_name": ""#)),
                Part::Name,
                Part::Text(text(r#"", "parameters": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text("}")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|END_OF_TURN_TOKEN|>")],
        ..bare()
    }
}
