//! OLMo 3: Python calls on lines of their own.
//!
//! ```text
//! <function_calls>f(a=1, b="x")
//! g()</function_calls>
//! ```
//!
//! OLMo 3 and 3.1.

use super::{bare, reasoning, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("olmo"),
        reasoning: reasoning("<think>", "</think>"),
        calls: Some(Calls {
            open: text("<function_calls>"),
            close: text("</function_calls>"),
            separator: text("\n"),
            call: vec![Part::Name, Part::Text(text("(")), Part::Arguments(Encoding::Python), Part::Text(text(")"))],
            parallel: true,
        }),
        ends: vec![text("<|im_end|>"), text("<|endoftext|>")],
        ..bare()
    }
}
