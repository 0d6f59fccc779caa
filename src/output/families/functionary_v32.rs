//! Functionary 3.2: messages with a recipient; the prompt ends in `>>>`.
//!
//! ```text
//! >>>all
//! T>>>f
//! {"a": 1}
//! ```
//!
//! Functionary 3.2. A line with the name, then the arguments.

use super::{bare, text};
use crate::output::format::{Calls, Channels, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("functionary-3.2"),
        channels: Some(Channels {
            turn: text(">>>"),
            header: text(""),
            body: text("\n"),
            ends: vec![],
            recipient: text(""),
            function: text(""),
            reasoning: vec![],
            content: vec![text("all")],
        }),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text(">>>"),
            call: vec![Part::Name, Part::Text(text("\n")), Part::Arguments(Encoding::Json)],
            parallel: true,
        }),
        ends: vec![text("<|eot_id|>")],
        ..bare()
    }
}
