//! Ling: GLM with fewer newlines; a call ends reasoning.
//!
//! ```text
//! <tool_call>f
//! <arg_key>a</arg_key>
//! <arg_value>1</arg_value><arg_key>b</arg_key>
//! <arg_value>2</arg_value>
//! </tool_call>
//! ```
//!
//! Ling 3.0.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part, Reasoning, Tagged};

pub(super) fn format() -> Format {
    Format {
        family: text("ling"),
        reasoning: Some(Reasoning { open: text("<think>"), close: text("</think>"), ends_at_call: true, end_alone: true }),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text("\n"),
            call: vec![
                Part::Text(text("<tool_call>")),
                Part::Name,
                Part::Text(text("\n")),
                Part::Arguments(Encoding::Tagged(Tagged {
                    open: text("<arg_key>"),
                    after_key: text("</arg_key>\n<arg_value>"),
                    kind: None,
                    close: text("</arg_value>"),
                    separator: text(""),
                })),
                Part::Text(text("\n</tool_call>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|role_end|>")],
        ..bare()
    }
}
