//! GLM without the newlines.
//!
//! ```text
//! <tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>
//! ```
//!
//! GLM 4.7, 5.1, 5.2 and 5.3, Spark 2.5, Laguna-S. Apart from `glm-kv` because the model is to write it without newlines.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part, Reasoning, Tagged};

pub(super) fn format() -> Format {
    Format {
        family: text("glm-kv-compact"),
        reasoning: Some(Reasoning { open: text("<think>"), close: text("</think>"), ends_at_call: false, end_alone: true }),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text(""),
            call: vec![
                Part::Text(text("<tool_call>")),
                Part::Name,
                Part::Arguments(Encoding::Tagged(Tagged {
                    open: text("<arg_key>"),
                    after_key: text("</arg_key><arg_value>"),
                    kind: None,
                    close: text("</arg_value>"),
                    separator: text(""),
                })),
                Part::Text(text("</tool_call>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|user|>"), text("<|observation|>"), text("</assistant>")],
        ..bare()
    }
}
