//! A bare list of Python calls.
//!
//! ```text
//! [f(a=1, b='x'), g()]
//! ```
//!
//! Llama 3.2, Llama 4, ToolACE and Gemma 3 with a pythonic prompt. No marker: it counts only when every name is a given
//! tool.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("pythonic"),
        calls: Some(Calls {
            open: text("["),
            close: text("]"),
            separator: text(", "),
            call: vec![Part::Name, Part::Text(text("(")), Part::Arguments(Encoding::Python), Part::Text(text(")"))],
            parallel: true,
        }),
        ends: vec![text("<|eot_id|>"), text("<|eot|>"), text("<end_of_turn>")],
        ..bare()
    }
}
