//! Command-R+: a list in a fence after the word `Action:`.
//!
//! ```text
//! Action:
//! ```json
//! [
//!     {
//!         "tool_name": "f",
//!         "parameters": {"a": 1}
//!     }
//! ]```
//! ```
//!
//! Command-R and R+. The name `directly-answer` means that there is no call.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("command-r-plus"),
        calls: Some(Calls {
            open: text("Action:\n```json\n[\n    "),
            close: text("\n]```"),
            separator: text(",\n    "),
            call: vec![
                Part::Text(text("{\n        \"tool_name\": \"")),
                Part::Name,
                Part::Text(text("\",\n        \"parameters\": ")),
                Part::Arguments(Encoding::Json),
                Part::Text(text("\n    }")),
            ],
            parallel: true,
        }),
        ends: vec![text("<|END_OF_TURN_TOKEN|>")],
        ..bare()
    }
}
