//! GLM: keys and values in elements, on lines of their own.
//!
//! ```text
//! <tool_call>f
//! <arg_key>a</arg_key>
//! <arg_value>1</arg_value>
//! </tool_call>
//! ```
//!
//! GLM 4.5, 4.5V and 4.6, Laguna-XS.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part, Reasoning, Tagged};

pub(super) fn format() -> Format {
    Format {
        family: text("glm-kv"),
        reasoning: Some(Reasoning { open: text("<think>"), close: text("</think>"), ends_at_call: false, end_alone: true }),
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
                    close: text("</arg_value>\n"),
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
