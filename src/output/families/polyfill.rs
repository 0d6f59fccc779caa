//! What our own prompt shows a model whose template has no tool calls.
//!
//! ```text
//! <tool_call>
//! {"name": "f", "arguments": {"a": 1}}
//! </tool_call>
//! ```
//!
//! Any other model. Fences and the envelope of `polyfill_tool_calls` are taken as well. No template writes it.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part, Source};

pub(super) fn format() -> Format {
    Format {
        family: text("polyfilled"),
        source: Source::Polyfill,
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
        fenced_calls: true,
        envelope: true,
        untagged: true,
        ..bare()
    }
}
