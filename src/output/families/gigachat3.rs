//! GigaChat 3: a message of the role `function call`.
//!
//! ```text
//! <|message_sep|>
//!
//! function call<|role_sep|>
//! {"name": "f", "arguments": {"a": 1}}
//! ```
//!
//! GigaChat 3. Its template prints the first call only.

use super::{bare, text};
use crate::output::format::{Calls, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("gigachat3"),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text(""),
            call: vec![
                Part::Text(text("<|message_sep|>\n\nfunction call<|role_sep|>\n{\"name\": \"")),
                Part::Name,
                Part::Text(text(r#"", "arguments": "#)),
                Part::Arguments(Encoding::Json),
                Part::Text(text("}")),
            ],
            parallel: false,
        }),
        ends: vec![text("<|message_sep|>")],
        ..bare()
    }
}
