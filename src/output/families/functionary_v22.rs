//! Functionary 2.2: messages with a recipient line.
//!
//! ```text
//! <|from|>assistant
//! <|recipient|>f
//! <|content|>{"a": 1}<|stop|>
//! ```
//!
//! Functionary 2.2.

use super::{bare, text};
use crate::output::format::{Calls, Channels, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("functionary-2.2"),
        channels: Some(Channels {
            turn: text("<|from|>assistant\n<|recipient|>"),
            header: text(""),
            body: text("\n<|content|>"),
            ends: vec![text("<|stop|>")],
            recipient: text(""),
            function: text(""),
            reasoning: vec![],
            content: vec![text("all")],
        }),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text("\n"),
            call: vec![
                Part::Text(text("<|from|>assistant\n<|recipient|>")),
                Part::Name,
                Part::Text(text("\n<|content|>")),
                Part::Arguments(Encoding::Json),
            ],
            parallel: true,
        }),
        ends: vec![text("<|stop|>")],
        ..bare()
    }
}
