//! A bare list of objects.
//!
//! ```text
//! [{"name": "f", "arguments": {"a": 1}}]
//! ```
//!
//! xLAM. No marker: it counts only when every name is a given tool.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("bare-array"),
        calls: Some(Calls {
            open: text("["),
            close: text("]"),
            separator: text(", "),
            call: vec![
                Part::Text(text(r#"{"name": ""#)),
                Part::Name,
                Part::Text(text(r#"", "arguments": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text("}")),
            ],
            parallel: true,
        }),
        ..bare()
    }
}
