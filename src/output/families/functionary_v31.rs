//! Functionary 3.1: the name in the tag.
//!
//! ```text
//! <function=f>{"a": 1}</function>
//! ```
//!
//! Functionary 3.1; Llama 3.1 with that prompt.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("functionary-3.1"),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text(""),
            call: vec![
                Part::Text(text("<function=")),
                Part::Name,
                Part::Text(text(">")),
                Part::Arguments(Encoding::Json),
                Part::Text(text("</function>")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|eom_id|>"), text("<|eot_id|>")],
        ..bare()
    }
}
