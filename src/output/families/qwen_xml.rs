//! Qwen3-Coder: an element a parameter, each value on lines of its own.
//!
//! ```text
//! <tool_call>
//! <function=f>
//! <parameter=a>
//! 1
//! </parameter>
//! </function>
//! </tool_call>
//! ```
//!
//! Qwen3-Coder, Qwen 3.5, 3.6 and 3.8, Nemotron 3, Step 3.5. The opening `<tool_call>` may be missing.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part, Reasoning, Tagged};

pub(super) fn format() -> Format {
    Format {
        family: text("qwen-xml"),
        reasoning: Some(Reasoning { open: text("<think>"), close: text("</think>"), ends_at_call: true, end_alone: false }),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text("\n"),
            call: vec![
                Part::Text(text("<tool_call>\n<function=")),
                Part::Name,
                Part::Text(text(">\n")),
                Part::Arguments(Encoding::Tagged(Tagged {
                    open: text("<parameter="),
                    after_key: text(">\n"),
                    kind: None,
                    close: text("\n</parameter>\n"),
                    separator: text(""),
                })),
                Part::Text(text("</function>\n</tool_call>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|im_end|>")],
        ..bare()
    }
}
