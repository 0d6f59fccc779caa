//! Hunyuan Hy3: keys and values in elements, a section around the calls.
//!
//! ```text
//! <tool_calls:opensource>
//! <tool_call:opensource>f<tool_sep:opensource>
//! <arg_key:opensource>a</arg_key:opensource>
//! <arg_value:opensource>1</arg_value:opensource>
//! </tool_call:opensource>
//! </tool_calls:opensource>
//! ```
//!
//! Hunyuan Hy3.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part, Tagged};

pub(super) fn format() -> Format {
    Format {
        family: text("hy3"),
        reasoning: reasoning("<think:opensource>", "</think:opensource>"),
        calls: Some(Calls {
            open: text("<tool_calls:opensource>\n"),
            close: text("\n</tool_calls:opensource>"),
            separator: text("\n"),
            call: vec![
                Part::Text(text("<tool_call:opensource>")),
                Part::Name,
                Part::Text(text("<tool_sep:opensource>\n")),
                Part::Arguments(Encoding::Tagged(Tagged {
                    open: text("<arg_key:opensource>"),
                    after_key: text("</arg_key:opensource>\n<arg_value:opensource>"),
                    kind: None,
                    close: text("</arg_value:opensource>\n"),
                    separator: text(""),
                })),
                Part::Text(text("</tool_call:opensource>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<｜hy_eos:opensource｜>")],
        ..bare()
    }
}
