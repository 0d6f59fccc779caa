//! A bare list of objects with ids.
//!
//! ```text
//! [{"name": "f", "arguments": {"a": 1}, "id": "call_1"}]
//! ```
//!
//! Cogito. No marker: it counts only when every name is a given tool.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, IdForm, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("bare-array-id"),
        calls: Some(Calls {
            open: text("["),
            close: text("]"),
            separator: text(", "),
            call: vec![
                Part::Text(text(r#"{"name": ""#)),
                Part::Name,
                Part::Text(text(r#"", "arguments": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text(r#", "id": ""#)),
                Part::Id(IdForm::Free),
                Part::Text(text(r#""}"#)),
            ],
            parallel: true,
        }),
        ends: vec![text("<|eot_id|>")],
        ..bare()
    }
}
