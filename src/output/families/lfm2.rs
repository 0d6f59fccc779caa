//! LFM2: a list of Python calls between markers.
//!
//! ```text
//! <|tool_call_start|>[f(a=1, b='x')]<|tool_call_end|>
//! ```
//!
//! LFM2, LFM2.5 (which may leave the markers out).

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("lfm2"),
        reasoning: reasoning("<think>", "</think>"),
        calls: Some(Calls {
            open: text("<|tool_call_start|>["),
            close: text("]<|tool_call_end|>"),
            separator: text(", "),
            call: vec![Part::Name, Part::Text(text("(")), Part::Arguments(Encoding::Python), Part::Text(text(")"))],
            parallel: true,
        }),
        ends: vec![text("<|im_end|>")],
        untagged: true,
        ..bare()
    }
}
