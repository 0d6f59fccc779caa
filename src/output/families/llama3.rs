//! Llama 3: one bare object, no marker.
//!
//! ```text
//! {"name": "f", "parameters": {"a": 1}}
//! ```
//!
//! Llama 3.1, 3.2 and 3.3. Their templates refuse two calls; models write `C; C2` all the same.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("llama3"),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text("; "),
            call: vec![
                Part::Text(text(r#"{"name": ""#)),
                Part::Name,
                Part::Text(text(r#"", "parameters": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text("}")),
            ],
            parallel: false,
        }),
        ends: vec![text("<|eom_id|>"), text("<|eot_id|>"), text("<|python_tag|>")],
        ..bare()
    }
}
