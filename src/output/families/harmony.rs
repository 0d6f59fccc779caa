//! Harmony: messages with a channel and a recipient, one call a message.
//!
//! ```text
//! <|channel|>analysis<|message|>R<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>
//! ```
//!
//! gpt-oss. Its template writes the recipient before the channel; the model writes either.

use super::{bare, text};
use crate::output::format::{Calls, Channels, Encoding, Format, Part};

pub(super) fn format() -> Format {
    Format {
        family: text("harmony"),
        channels: Some(Channels {
            turn: text("<|start|>assistant"),
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
            separator: text("<|end|><|start|>assistant"),
            call: vec![
                Part::Text(text("<|channel|>commentary to=functions.")),
                Part::Name,
                Part::Text(text(" <|constrain|>json<|message|>")),
                Part::Arguments(Encoding::Json),
            ],
            parallel: false,
        }),
        ends: vec![text("<|call|>"), text("<|return|>"), text("<|end|>")],
        ..bare()
    }
}
