//! Harmony with a blank after every marker.
//!
//! ```text
//! <|channel|> commentary to=functions.f<|message|> {"a": 1}
//! ```
//!
//! LLM-jp 4.1.

use super::{bare, text};
use crate::output::format::{Calls, Channels, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("harmony-spaced"),
        channels: Some(Channels {
            turn: text("<|start|> assistant"),
            header: text("<|channel|>"),
            body: text("<|message|>"),
            ends: vec![text("<|end|>"), text("<|call|>"), text("<|return|>")],
            recipient: text("to="),
            function: text("functions."),
            reasoning: vec![text("analysis")],
            content: vec![text("final"), text("commentary")],
        }),
        calls: Some(Calls {
            open: text(""),
            close: text(""),
            separator: text("<|end|><|start|> assistant"),
            call: vec![
                Part::Text(text(" to=functions.")),
                Part::Name,
                Part::Text(text("<|channel|> commentary <|constrain|>  json<|message|> ")),
                Part::Arguments(Encoding::Json),
            ],
            parallel: true,
        }),
        ends: vec![text("<|call|>"), text("<|return|>"), text("<|end|>")],
        ..bare()
    }
}
