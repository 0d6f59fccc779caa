//! Seed-OSS: an element a parameter.
//!
//! ```text
//! <seed:tool_call>
//! <function=f>
//! <parameter=a>1</parameter>
//! </function>
//! </seed:tool_call>
//! ```
//!
//! Seed-OSS.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part, Tagged};

pub(super) fn format() -> Format {
    Format {
        family: text("seed-oss"),
        reasoning: reasoning("<seed:think>", "</seed:think>"),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text("\n"),
            call: vec![
                Part::Text(text("<seed:tool_call>\n<function=")),
                Part::Name,
                Part::Text(text(">\n")),
                Part::Arguments(Encoding::Tagged(Tagged {
                    open: text("<parameter="),
                    after_key: text(">"),
                    kind: None,
                    close: text("</parameter>\n"),
                    separator: text(""),
                })),
                Part::Text(text("</function>\n</seed:tool_call>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<seed:eos>")],
        ..bare()
    }
}
